"""How many of the first suggestions of `spml data suggest` are right, and what answering them is worth.

    python -m benchmarks.suggestions                                     digits
    python -m benchmarks.suggestions --root path/to/voc_subset           photographs, with frozen features
    python -m benchmarks.suggestions --report                            print the table of what is written already

For each method and seed: a run with single-positive labels, its out-of-fold predictions, the precision of the first
100, 500 and 1,000 suggestions against the truth, and test mAP before and after the truth has answered the first 1,000:
with all answers, and with those that are positive. Methods have the hyperparameters published for VOC 2012. Each
result is written to data/results-suggestions.csv as it comes. Runs are kept, so the same command resumes what was
interrupted.
"""

from pathlib import Path

import click
import numpy as np
import pandas as pd
from tqdm import tqdm

from benchmarks.photographs import DATA, experiments, markdown
from spml_core.data import manifest
from spml_core.paths import locate, write_whole
from spml_core.runs import Experiment, Labels, Run, run
from spml_core.studies import comparison, suggestions

METHODS = ("an", "wan", "em", "gr", "ll_r")
AT = (100, 500, 1000)
KEY = ["dataset", "method", "seed"]
RESULTS = "data/results-suggestions.csv"


def answered(first: Run, labels: Labels, number: int, file: Path, values: tuple[int, ...]) -> None:
    """Write the run's manifest with the truth as the answer to the first suggestions, where it is one of `values`."""
    suggested = suggestions.ranked(labels, number, 0)
    row, column = suggested["row"].to_numpy(), suggested["column"].to_numpy()
    before = manifest.read(first.path / "labels.csv", first.classes)
    train = np.flatnonzero(np.array(before.splits) == "train")
    after = before.observed.copy()
    truth = (np.where(labels.full == 1, 1, -1) * labels.known)[row, column]
    after[train[row], column] = np.where(np.isin(truth, values), truth, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    manifest.write(file, before.ids, before.splits, after, first.classes)


def measure(experiment: Experiment, folds: int, runs_dir: Path) -> dict:
    """Return precision of the first suggestions and test mAP before and after, in percent."""
    first = run(experiment, runs_dir)
    labels = suggestions.out_of_fold(first, folds)
    precision = suggestions.judged(labels, AT)
    missing = labels.missing_positive.sum() / (labels.observed == 0)[labels.known].sum()
    maps = {"test_map": first.summary["test_map"]}
    for name, values in (("answered", (1, -1)), ("positives", (1,))):
        file = runs_dir / "suggestions" / f"{first.path.name}-{name}.csv"
        answered(first, labels, AT[-1], file, values)
        second = run(Experiment(**vars(experiment) | {"observe": {"manifest": str(file)}}), runs_dir)
        maps[f"test_map_{name}"] = second.summary["test_map"]
    numbers = {f"precision_{k}": 100 * value for k, value in precision.items()} | {"a_guess": 100 * missing}
    return {"folds": folds, "images": len(labels.full)} | {
        k: round(v, 2) for k, v in (numbers | maps).items()
    }


def report(rows: pd.DataFrame) -> str:
    """Return the means over the seeds as Markdown, one table per data set."""
    texts = []
    for name, own in rows.groupby("dataset", sort=False):
        means = own.groupby("method", sort=False).mean(numeric_only=True).round(1)
        numbers = means.drop(columns=["seed", "folds", "images"]).dropna(axis=1, how="all")
        numbers.insert(0, "method", [comparison.label(method) for method in numbers.index])
        seeds = own["seed"].nunique()
        texts.append(
            f"{name}: {own['images'].iloc[0]:,} training images, seeds: {seeds}\n\n{markdown(numbers)}"
        )
    return "\n\n".join(texts)


@click.command(help=__doc__)
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="Folder with labels.csv.")
@click.option("--methods", "names", default=",".join(METHODS), show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True)
@click.option("--runs-dir", default="runs", show_default=True)
@click.option("--output", default=RESULTS, show_default=True)
@click.option("--report", "only_report", is_flag=True)
def main(root, names, seeds, folds, runs_dir, output, only_report):
    file = locate(output)
    rows = pd.read_csv(file) if file.is_file() else pd.DataFrame(columns=KEY)
    fields = {"dataset": "digits", "data": {}}
    if root is not None:
        fields = {"root": str(Path(root).resolve()), "data": DATA}
    wanted = [] if only_report else experiments(names.split(","), range(seeds), **fields)
    for experiment in tqdm(wanted, "suggestions", leave=False, disable=None):
        name = "digits" if root is None else Path(root).resolve().name
        row = {"dataset": name, "method": experiment.method, "seed": experiment.seed}
        row |= measure(experiment, folds, locate(runs_dir))
        rows = pd.concat([rows.astype(object), pd.DataFrame([row], dtype=object)])
        rows = rows.drop_duplicates(KEY, keep="last")
        write_whole(file, rows.to_csv(index=False))
    click.echo(report(pd.read_csv(file)))


if __name__ == "__main__":
    main()
