"""Kill trainings with SIGKILL at random places, start them again, and compare them with undisturbed ones.

    python -m benchmarks.resume --kills 20

A kill hits a step of the optimizer or the writing of a checkpoint, before or after it gets its name. Every training
must end with the same bits: weights and method state of the best epoch, logits of all epochs, history.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import click
import torch

from spml_core import train
from spml_core.runs import Experiment, run

METHODS = {
    "an": {},
    "ll_cp": {"delta": 0.02},
    "em_apl": {"warmup": 1},
    "role": {"expected_positives": 1.5},
    "gr": {},
    "gr_trainable": {},
    "pseudo_label": {},
}
EPOCHS, SIZES = 4, {"train": 192, "val": 60, "test": 40}
STEPS = EPOCHS * 192 // 32


def experiment(method: str, accelerator: str = "cpu") -> Experiment:
    """Return a small training with everything that has a state: augmentation, schedule, running average."""
    options = {
        "flip": True,
        "schedule": "one_cycle",
        "ema": 0.9,
        "weight_decay": 1e-4,
        "accelerator": accelerator,
    }
    return Experiment(
        method=method, params=METHODS[method], data=SIZES, epochs=EPOCHS, batch_size=32, **options
    )


def die_at(place: str, number: int) -> None:
    """Arm this process: SIGKILL at the `number`-th (from 1) time that a place is reached."""
    owner, name = {"step": (train.Trainer, "step"), "write": (os, "fsync"), "rename": (Path, "replace")}[
        place
    ]
    original, reached = getattr(owner, name), []

    def armed(*arguments, **options):
        result = original(*arguments, **options)
        reached.append(None)
        if len(reached) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, armed)


def train_or_die(wanted: Experiment, root: Path, kill: tuple[str, int] | None) -> None:
    if kill is not None:
        die_at(*kill)
    run(wanted, root=root, progress=False)


def trained(wanted: Experiment, root: Path, kill: tuple[str, int] | None = None, start: str = "fork") -> int:
    """Train in a process of its own, started by "fork" or "spawn"; returns its exit code, negative for a signal."""
    child = get_context(start).Process(target=train_or_die, args=(wanted, root, kill))
    child.start()
    child.join()
    return child.exitcode


def contents(root: Path) -> dict[str, bytes]:
    """Return everything in the single run in `root` that must not depend on interruptions."""
    (path,) = (p for p in root.iterdir() if p.name.startswith("digits-"))
    files = {f.name: f.read_bytes() for f in path.glob("*.safetensors")}
    rows = (path / "history.csv").read_text().splitlines()
    return files | {"history.csv": "\n".join(row.rpartition(",")[0] for row in rows).encode()}


def compare(kills: int, seed: int = 0, methods=tuple(METHODS)) -> list[tuple[str, list, list[str]]]:
    """Return (method, where it was killed, files that differ) for each method; `kills` are divided among them."""
    rng, rows = random.Random(seed), []
    for n, method in enumerate(methods):
        wanted = experiment(method)
        with tempfile.TemporaryDirectory() as folder:
            whole, killed, hits = Path(folder) / "whole", Path(folder) / "killed", []
            if trained(wanted, whole) != 0:
                raise RuntimeError(f"{method}: the undisturbed training failed")
            for _ in range(kills // len(methods) + (n < kills % len(methods))):
                place = rng.choice(["step", "step", "write", "rename"])
                kill = (place, rng.randint(1, STEPS // 2 if place == "step" else 3))
                hits += [kill] if trained(wanted, killed, kill) == -signal.SIGKILL else []
            if trained(wanted, killed) != 0:
                raise RuntimeError(f"{method}: the killed training cannot be finished")
            one, two = contents(whole), contents(killed)
            rows.append((method, hits, [f for f in one.keys() | two.keys() if one.get(f) != two.get(f)]))
    return rows


@click.command(help=__doc__)
@click.option("--kills", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kills, seed):
    torch.set_num_threads(1)  # a thread pool does not survive a fork
    with tempfile.TemporaryDirectory() as folder:
        run(experiment("an"), root=folder, progress=False)  # imports, before they are made in each process
    start, rows = time.perf_counter(), compare(kills, seed)
    for method, hits, different in rows:
        where = ", ".join(f"{place} {number}" for place, number in hits)
        print(f"{method:13} killed {len(hits)} times ({where}): {', '.join(different) or 'the same bits'}")
    total = sum(len(hits) for _, hits, _ in rows)
    print(f"{total} kills, {time.perf_counter() - start:.0f} s")
    sys.exit(any(different for _, _, different in rows))


if __name__ == "__main__":
    main()
