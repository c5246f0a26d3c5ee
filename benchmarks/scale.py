"""24 small experiments, here and on local workers: throughput, and equal results.

    python -m benchmarks.scale --jobs 2

Everything is trained from scratch, in a temporary folder. Compare on an otherwise idle machine.
"""

import os
import tempfile
import time

import click
import numpy as np

from spml_core.runs import Experiment, run_all
from spml_core.runs.executors import processes


@click.command(help=__doc__)
@click.option("--number", default=24, show_default=True, help="Experiments.")
@click.option("--jobs", default=2, show_default=True, help="Workers.")
@click.option("--epochs", default=3, show_default=True)
def main(number, jobs, epochs):
    methods = ("an", "gr", "em", "wan")
    experiments = [
        Experiment(method=methods[n % 4], seed=n // 4, epochs=epochs, accelerator="cpu")
        for n in range(number)
    ]
    seconds, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, jobs):
            with processes(workers) as pool:
                list(pool.map(_ready, range(workers)))  # starting, and importing torch, is no part of it
                start = time.perf_counter()
                found[workers] = run_all(experiments, pool, os.path.join(folder, str(workers)))
                seconds[workers] = time.perf_counter() - start
        equal = all(
            np.array_equal(one.logits("test"), other.logits("test"))
            for one, other in zip(found[1], found[jobs], strict=True)
        )
        spent = {w: sum(run.summary["processor_seconds"] for run in found[w]) for w in found}
    for workers, took in seconds.items():
        click.echo(
            f"{workers} worker(s): {took:.1f} s for {number} experiments, {spent[workers]:.1f} s of processor time"
        )
    click.echo(
        f"throughput x{seconds[1] / seconds[jobs]:.2f}; test logits {'equal' if equal else 'DIFFERENT'}; "
        f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )


def _ready(number: int) -> int:
    import spml_core.runs  # noqa: F401

    time.sleep(0.5)  # so that each worker takes one
    return number


if __name__ == "__main__":
    main()
