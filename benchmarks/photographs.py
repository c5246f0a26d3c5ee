"""Test mAP on folders of real photographs, by a linear head on frozen features or by fine-tuning the whole network.

    python -m benchmarks.photographs --root path/to/corel5k --root path/to/voc_subset
    python -m benchmarks.photographs --root path/to/voc_subset --mode end_to_end
    python -m benchmarks.photographs                       print the tables of what is written already

linear: each method with the hyperparameters published for VOC 2012, at the default learning rate; nine of them also
with those of a search over the space in benchmarks/spaces, by validation mAP of seed 0.

end_to_end: EfficientNet-Lite0 from its ImageNet weights at 160 pixels, with flips and ten times the learning rate for
the head; published hyperparameters, and one learning rate for all, the better one for AN and GR by validation mAP of
seed 0.

Each result is written to a CSV file in data/ as it comes, and the tables are printed from there. Runs are kept, so the
same command resumes what was interrupted, and loads what is finished.
"""

import json
from functools import partial
from pathlib import Path

import click
import numpy as np
import pandas as pd
from tqdm import tqdm

from spml_core import data, methods
from spml_core.data.files import pixels
from spml_core.figures import Claim, Interval
from spml_core.paths import locate, write_whole
from spml_core.runs import Experiment, Run, run
from spml_core.runs.executors import outcomes, processes
from spml_core.search import read, search
from spml_core.studies import comparison

SPACES = Path(__file__).parent / "spaces"
SEARCHED = ("bce", "gr", "em", "ll_r", "wan", "an", "role", "hill", "lasd")
OTHERS = ("pr", "iu", "two_way", "pu_mlc", "mime", "smile")  # with published or default hyperparameters only
METHODS = {"linear": SEARCHED + OTHERS, "end_to_end": ("bce", "gr", "em", "wan", "an")}
SEEDS = {"linear": 5, "end_to_end": 3}
RESULTS = {"linear": "data/results-photographs.csv", "end_to_end": "data/results-voc-subset.csv"}
DATA = {"min_images": 100, "unlabeled": "drop"}  # 44 words of Corel5k, 11 classes of the VOC subset
PUBLISHED, FOUND = "published", "searched"
RATES, JUDGES = (1e-4, 3e-4), ("an", "gr")  # of end_to_end
FINETUNING = {  # notebooks/finetuned.yaml has the same
    "mode": "end_to_end", "pretrained": True, "flip": True, "epochs": 6, "data": DATA | {"size": 160},
}  # fmt: skip
KEY = ["dataset", "setting", "method", "seed"]


class Results:
    """A CSV file with one row per run, read when it is opened and written anew with each result.

    Attributes:
        dataset: name of the folder whose results are added.
    """

    def __init__(self, file: Path):
        self.file, self.dataset = file, ""
        self.rows = pd.read_csv(file) if file.is_file() else pd.DataFrame(columns=[*KEY, "test_map"])

    def add(self, setting: str, finished: Run, **more) -> None:
        config, summary = finished.config, finished.summary
        row = {"dataset": self.dataset, "setting": setting}
        row |= {name: config[name] for name in ("method", "seed", "lr", "batch_size", "epochs")}
        row |= {name: round(summary[name], 3) for name in ("val_map", "test_map", "best_epoch", "seconds")}
        row |= {"classes": len(finished.classes)} | summary["data"]["sizes"]
        row |= {"params": json.dumps(config["params"])} | more
        rows = pd.concat([self.rows.astype(object), pd.DataFrame([row], dtype=object)])
        rows = rows.drop_duplicates(KEY, keep="last").sort_values(KEY)
        write_whole(self.file, rows.to_csv(index=False))
        self.rows = pd.read_csv(self.file)
        tqdm.write(f"{' '.join(str(row[name]) for name in KEY)}: test mAP {row['test_map']:.2f}")

    def forget(self, setting: str, method: str) -> None:
        """Remove the results of an earlier search with another choice."""
        own = self.rows[KEY[:3]].eq([self.dataset, setting, method]).all(axis=1)
        self.rows = self.rows[~own]

    def train(self, setting: str, experiments: list[Experiment], pool, runs_dir: str) -> None:
        """Train experiments, or load their runs, and add each as it is finished."""
        failed = []
        work = outcomes(partial(run, root=runs_dir, progress=False), experiments, pool)
        for n, outcome in tqdm(work, setting, len(experiments), unit="run", leave=False, disable=None):
            if isinstance(outcome, Exception):
                failed.append(f"{experiments[n].method}, seed {experiments[n].seed}: {outcome}")
            else:
                self.add(setting, outcome)
        if failed:
            raise click.ClickException("\n".join(failed))


def experiments(names, seeds, **fields) -> list[Experiment]:
    """Return one for each method and seed, with the hyperparameters published for VOC 2012.

    The number of positive labels is a property of the data, and is counted.
    """
    params = comparison.parameters(names, "voc2012")
    params = {
        m: own | dict.fromkeys(own.keys() & {"expected_positives"}, "auto") for m, own in params.items()
    }
    fields = {"dataset": "folder", "data": DATA} | fields
    return [Experiment(method=m, params=params[m], seed=seed, **fields) for m in names for seed in seeds]


def linear(root: str, names, seeds: int, trials: int, results: Results, pool, runs_dir: str, **fields):
    wanted = experiments(names, range(seeds), root=root, **fields)
    wanted[0].resolved().load_data(locate(runs_dir) / "cache")  # features are computed once, here
    results.train(PUBLISHED, wanted, pool, runs_dir)
    for method in (m for m in names if m in SEARCHED):
        changes = {"root": root, "data": DATA} | fields
        name = f"photographs-{results.dataset}-{method}"
        space = read(SPACES / f"photographs-{method}.yaml", changes, name)
        found = search(space.model_copy(update={"trials": trials, "test_seeds": seeds}), pool, runs_dir)
        results.forget(FOUND, method)
        for finished in found.runs:
            counts = {"trials": sum(found.counts.values()), "pruned": found.counts["pruned"]}
            results.add(FOUND, finished, **counts)


def end_to_end(root: str, names, seeds: int, _, results: Results, pool, runs_dir: str, **fields):
    size = FINETUNING["data"]["size"]
    pixels.prepare(data.read("folder", root=root, **DATA).paths, size, locate(runs_dir) / "cache")
    fields = {"root": root} | FINETUNING | fields
    for rate in RATES:
        results.train(f"lr {rate:g}", experiments(JUDGES, [0], lr=rate, **fields), pool, runs_dir)
    setting = best_rate(results.rows[results.rows.dataset == results.dataset])
    rate = float(setting.split()[1])
    results.train(setting, experiments(names, range(seeds), lr=rate, **fields), pool, runs_dir)


def best_rate(rows: pd.DataFrame) -> str:
    """Return the setting in which AN and GR have the highest validation mAP of seed 0."""
    judged = rows[rows.method.isin(JUDGES) & (rows.seed == 0)]
    return judged.groupby("setting").val_map.mean().idxmax()


def overview(modes: dict[str, pd.DataFrame]) -> str:
    """Return one table, as Markdown: the methods that are also searched, with a column per data set and setting.

    Fine-tuning has a column once all its methods are there. The last rows are differences of GR, paired by seed.
    """
    columns = {}
    for mode, rows in modes.items():
        for name, own in rows.groupby("dataset", sort=False):
            complete = mode == "linear" or {*METHODS[mode]} <= {*own.method}
            for setting, column in scores(own, mode).items() if complete else ():
                columns[f"{name}, {'fine-tuned' if mode == 'end_to_end' else setting}"] = column
    found = pd.DataFrame(columns).reindex(SEARCHED)
    cells = labelled(found.dropna(how="all"))
    for other in ("em", "wan", "an"):
        pairs = {name: column[["gr", other]].tolist() for name, column in found.items()}
        gaps = {name: gap(*pair) for name, pair in pairs.items()}
        if any(gaps.values()):
            cells.loc[f"gr - {other}"] = {"method": f"GR − {comparison.label(other)}"} | gaps
    return markdown(cells)


def gap(values, others) -> str:
    """Return the mean difference of two methods with its 95 % interval, paired by seed; "" where one is missing."""
    if not (isinstance(values, list) and isinstance(others, list)) or len(values) != len(others):
        return ""
    return str(Interval.of_mean(np.subtract(values, others).tolist()))


def scores(own: pd.DataFrame, mode: str) -> pd.DataFrame:
    """Return the test mAP of each seed, as lists by method and setting: end to end, of the best learning rate only."""
    if mode == "end_to_end":
        own = own[own.setting == best_rate(own)]
    found = own.groupby(["setting", "method"]).test_map.agg(list).unstack("setting")
    return found.reindex([method for method in METHODS["linear"] if method in found.index])


def labelled(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a table of `scores`: means with intervals, and the names of the methods first."""
    cells = found.map(with_interval, na_action="ignore").fillna("")
    cells.insert(0, "method", [comparison.label(method) for method in found.index])
    return cells


def report(rows: pd.DataFrame, mode: str) -> str:
    """Return the tables as Markdown: mean test mAP over the seeds with its 95 % interval (Student's)."""
    texts = []
    for name, own in rows.groupby("dataset", sort=False):
        found, first = scores(own, mode), own.iloc[0]
        head = f"{name}: {first.classes} classes; {first.train} / {first.val} / {first.test} images"
        cells = labelled(found)
        if mode == "end_to_end":
            own = own[own.setting == best_rate(own)]
            cells["minutes a run"] = (own.groupby("method").seconds.mean() / 60).map("{:.0f}".format)
            printed = comparison.published("GR Table 2").VOC.reindex(found.index)
            cells["printed for VOC (GR Table 2)"] = printed.fillna("--")
        texts.append(f"{head}\n\n{markdown(cells)}")
        if mode == "end_to_end" and {"gr", "em", "an"} <= set(found.index):
            column = found.iloc[:, 0]
            claim = Claim.order("GR > EM > AN", {m.upper(): column[m] for m in ("gr", "em", "an")})
            texts.append(f"{claim.claim}: {claim.verdict} ({claim.evidence})")
        chosen = own[(own.setting == FOUND) & (own.seed == 0)].set_index("method", drop=False)
        if len(chosen):
            chosen = chosen.reindex([method for method in SEARCHED if method in chosen.index])
            chosen["params"] = [unusual(*row) for row in zip(chosen.method, chosen.params, strict=True)]
            chosen = chosen.astype({"trials": int, "pruned": int})
            chosen = chosen[["method", "lr", "batch_size", "val_map", "params", "trials", "pruned"]]
            texts.append(markdown(chosen.assign(lr=chosen.lr.map("{:.2g}".format))))
    return "\n\n".join(texts)


def unusual(method: str, params: str) -> str:
    """Return the hyperparameters that are not the method's defaults."""
    usual = json.loads(json.dumps(methods.defaults(method)))
    changed = {k: v for k, v in json.loads(params).items() if v != usual[k]}
    return ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in changed.items())


def with_interval(values: list[float]) -> str:
    mean = Interval.of_mean(values)
    return f"{mean.value:.1f}" if len(values) < 2 else f"{mean.value:.1f} ± {mean.high - mean.value:.1f}"


def markdown(table: pd.DataFrame) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    lines = (" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)


@click.command(help=__doc__)
@click.option("--root", "roots", multiple=True, type=click.Path(exists=True, file_okay=False),
              help="Folder with labels.csv; repeatable.")  # fmt: skip
@click.option("--mode", type=click.Choice(list(METHODS)), default="linear", show_default=True)
@click.option("--methods", "names", help="Some of them, separated by commas.")
@click.option("--seeds", type=click.IntRange(1), help="Default: 5, and 3 end to end.")
@click.option("--trials", default=40, show_default=True, type=click.IntRange(1), help="Of each search.")
@click.option("--epochs", type=click.IntRange(1), help="Default: 10, and 6 end to end.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--runs-dir", default="runs", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False),
              help="Default: data/results-photographs.csv, and results-voc-subset.csv end to end.")  # fmt: skip
def main(roots, mode, names, seeds, trials, epochs, jobs, runs_dir, output):
    chosen = METHODS[mode] if names is None else tuple(names.split(","))
    if unknown := sorted(set(chosen) - set(METHODS[mode])):
        raise click.UsageError(f"--methods: no {', '.join(unknown)} in {', '.join(METHODS[mode])}")
    results = Results(locate(output or RESULTS[mode]))
    fields = {} if epochs is None else {"epochs": epochs}
    with processes(jobs) as pool:
        for root in roots:
            work = {"linear": linear, "end_to_end": end_to_end}[mode]
            root = str(Path(root).resolve())
            results.dataset = Path(root).name
            work(root, chosen, seeds or SEEDS[mode], trials, results, pool, runs_dir, **fields)
    click.echo(report(results.rows, mode))


if __name__ == "__main__":
    main()
