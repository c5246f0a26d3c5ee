"""Test mAP on a folder of real photographs: full-label BCE, AN, WAN, EM and GR on frozen features.

    python -m benchmarks.photographs --root path/to/corel5k

Each method's learning rate and parameters are chosen by validation mAP of seed 0 from the grids below; the choice then
runs with every seed. Test images are read for the chosen configurations only. Runs and features are kept, so that it
can be stopped and started again.
"""

import itertools
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click

from spml_core.runs import Experiment, run_all

LR = (1e-2, 1e-3, 3e-4, 1e-4)
GRID = {
    "bce": [{}],
    "an": [{}],
    "wan": [{}],
    "em": [{"alpha": alpha} for alpha in (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)],  # the grid of EM B.2
    "gr": [
        {"w": (0, w), "b": (b0, b), "mu": mu, "sigma": sigma, "q2": q2, "q3": q3}
        for (w, b), b0, (mu, sigma), (q2, q3) in itertools.product(
            [(2, -2), (10, -8)],  # VOC's and COCO's end values (GR Table 6)
            [-2, -4],  # released start value; near logit(0.03) = -3.5, which Remark 1 asks for on Corel5k
            [((0.5, 0.8), (2, 0.5)), ((0.8, 0.8), (0.3, 0.15))],  # published; narrow from the start
            [(0.01, 1), (0.01, 1.5), (0.5, 1), (0.5, 1.5)],
        )
    ],
}


@click.command(help=__doc__)
@click.option(
    "--root", required=True, type=click.Path(exists=True, file_okay=False), help="Folder with labels.csv."
)
@click.option(
    "--min-images", default=100, show_default=True, help="Keep words with at least this many images."
)
@click.option("--seeds", default=3, show_default=True, help="Runs of each chosen configuration.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--runs-dir", default="runs", show_default=True)
def main(root, min_images, seeds, jobs, runs_dir):
    data = {"min_images": min_images, "fractions": [0.7, 0.1, 0.2], "unlabeled": "drop"}
    common = {"dataset": "folder", "root": root, "data": data}

    def train(experiments):
        run_all(
            experiments[:1], root=runs_dir
        )  # alone, so that features are computed once and with a progress bar
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
            return run_all(experiments, executor, root=runs_dir)

    tried = [
        Experiment(**common, method=method, params=params, lr=lr)
        for method, grid in GRID.items()
        for params in grid
        for lr in LR
    ]
    runs = train(tried)
    best = {}
    for experiment, run in zip(tried, runs, strict=True):
        score = run.summary["val_map"]
        if experiment.method not in best or score > best[experiment.method][0]:
            best[experiment.method] = (score, experiment)
    final = [
        Experiment(**common, method=method, params=chosen.params, lr=chosen.lr, seed=seed)
        for method, (_, chosen) in best.items()
        for seed in range(seeds)
    ]
    results = [run.summary for run in train(final)]

    sizes = results[0]["data"]["sizes"]
    classes = len(runs[0].classes)
    click.echo(f"{classes} classes; {sizes} images; validation labels {results[0]['val_labels']}")
    click.echo("| method | test mAP | validation mAP | learning rate | parameters | tried |")
    click.echo("|---|---|---|---|---|---|")
    for n, (method, (score, chosen)) in enumerate(best.items()):
        maps = [summary["test_map"] for summary in results[n * seeds : (n + 1) * seeds]]
        spread = statistics.stdev(maps) if seeds > 1 else 0
        parameters = json.dumps(chosen.params).replace('"', "").strip("{}") or "none"
        click.echo(
            f"| {method} | {statistics.mean(maps):.1f} ± {spread:.1f} | {score:.1f} | {chosen.lr:g} | {parameters} "
            f"| {len(GRID[method]) * len(LR)} |"
        )


if __name__ == "__main__":
    main()
