"""Named settings of methods, each trained with every seed: the basis of ablations and parameter studies.

settings = {"GR": ("gr", {}), "without v": ("gr", {"sigma": 1e6})}
found = sweep(settings, seeds=[0, 1, 2], runs_dir="runs", dataset="digits", epochs=6)
scores(found)      # one row per setting, one column per seed: test mAP in percent
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict
from numbers import Real
from pathlib import Path

import pandas as pd

from spml_core import metrics
from spml_core.figures.claims import Claim, Interval, mean_sd
from spml_core.paths import locate
from spml_core.runs import Experiment, Run, run_all
from spml_core.words import read_yaml

METRICS = ("mAP", "CP", "CR", "CF1", "OP", "OR", "OF1")
PUBLISHED = "data/published_ablations.csv"


def sweep(
    settings: Mapping[Hashable, tuple], seeds: Iterable[int], runs_dir: str | Path = "runs", **fields
) -> dict[Hashable, list[Run]]:
    """Train each setting with every seed, or load its finished runs.

    Args:
        settings: name -> (method, params), or (method, params, further fields of `Experiment`) where a setting
            differs in more than its method, e.g. in its backbone. A name may be a tuple such as (b, tau).
        runs_dir: folder of all runs, the `root` of `run_all`.
        fields: fields of `Experiment` that all settings share, including the data set's `root`.

    Returns:
        name -> its runs, in the order of the seeds. Settings that resolve to the same experiment share its run.

    Raises:
        ValueError: as `Experiment.resolved`, before any training.
    """
    seeds, wanted = list(seeds), []
    for method, params, *own in settings.values():
        both = fields | (own[0] if own else {})
        wanted += [Experiment(**both, method=method, params=params, seed=seed) for seed in seeds]
    runs = iter(run_all(wanted, root=runs_dir))
    return {name: list(itertools.islice(runs, len(seeds))) for name in settings}


def all_runs(found: Mapping[Hashable, Iterable[Run]]) -> list[Run]:
    """Return the runs of all settings in one list, e.g. for `figures.context`."""
    return [run for runs in found.values() for run in runs]


def scored_split(run: Run) -> str:
    """Return "test", or "val" for a data set without a test split, where validation stands in."""
    return "val" if run.summary["test_map"] is None else "test"


def measured(found: Mapping[Hashable, Iterable[Run]], names: Iterable[str] = METRICS) -> pd.DataFrame:
    """Return one row per setting and seed and one column per metric, in percent, on the test split (else validation).

    Precision, recall and F1 are taken at p > 0.5; CF1 is the mean of the classes' F1 (`metrics.f1_family`). OP is NaN
    where nothing is predicted.

    Args:
        found: setting -> its runs, one per seed, as from `sweep`.
        names: "mAP", one of the F1 family, or "val mAP", which is always that of validation.
    """
    names = list(names)
    return by_setting_and_seed(found, lambda run: _measures(run, names))


def _measures(run: Run, names: list[str]) -> dict[str, float]:
    summary = run.summary
    known = {"mAP": summary[f"{scored_split(run)}_map"], "val mAP": summary["val_map"]}
    if set(names) - set(known):
        labels = run.labels(scored_split(run))
        family = metrics.f1_family(labels.logits, labels.full, kind="logit", evaluated=labels.known)
        known |= {name: 100 * value for name, value in family.numbers.items()}
    return {name: known[name] for name in names}


def scores(found: Mapping[Hashable, Iterable[Run]], metric: str = "mAP") -> pd.DataFrame:
    """Return one row per setting and one column per seed: a metric of `measured`."""
    return measured(found, [metric])[metric].unstack("seed", sort=False)


def class_ap(found: Mapping[Hashable, Iterable[Run]]) -> pd.DataFrame:
    """Return one row per setting and seed and one column per class: average precision in percent, NaN where undefined.

    On the split of `measured`; a class is undefined where it has no positive.
    """

    def measure(run: Run) -> dict[str, float]:
        labels = run.labels(scored_split(run))
        values = metrics.average_precision(labels.logits, labels.full, labels.known).per_class
        return dict(zip(run.classes, 100 * values, strict=True))

    return by_setting_and_seed(found, measure)


def class_gains(found: Mapping[str, Iterable[Run]], baseline: str) -> pd.DataFrame:
    """Return the gains in AP over a baseline of the same seed, class by class (EM Fig. 4c), in percentage points.

    Returns:
        One row per setting, seed and class: setting, seed, class, baseline, ap, gain; NaN where a class is undefined.
    """
    ap = class_ap(found).rename_axis(index=["setting", "seed"], columns="class")
    base = ap.loc[baseline].reindex(ap.index, level="seed")
    table = pd.DataFrame({"baseline": base.stack(), "ap": ap.stack()}).drop(baseline)
    return table.assign(gain=table["ap"] - table["baseline"]).reset_index()


def by_setting_and_seed(found: Mapping[Hashable, Iterable[Run]], measure: Callable) -> pd.DataFrame:
    """Return one row per setting and seed: the mapping `measure(run)`. A setting that is a tuple has several levels."""
    rows = {}
    for name, runs in found.items():
        for run in runs:
            rows[*(name if isinstance(name, tuple) else (name,)), run.config["seed"]] = measure(run)
    index = pd.MultiIndex.from_tuples(rows).set_names("seed", level=-1)
    return pd.DataFrame(list(rows.values()), index=index, dtype=float)


def over_seeds(table: pd.DataFrame, digits: int = 1) -> pd.Series:
    """Return "96.3 ± 0.7" for each row of a table with one column per seed; "--" where a seed has no value."""
    return table.apply(lambda row: "--" if row.isna().any() else mean_sd(row.tolist(), digits), axis=1)


def gains(table: pd.DataFrame, over: Mapping[Hashable, Hashable]) -> pd.Series:
    """Return "+3.1 [1.2, 5.0]" for each row: its mean gain over another row and Student's 95 % interval over the seeds.

    Args:
        table: from `scores`.
        over: name of a row -> the row that its gain is taken over; rows without one are "--".
    """
    texts = dict.fromkeys(table.index, "--")
    for name, base in over.items():
        texts[name] = str(Interval.of_mean((table.loc[name] - table.loc[base]).tolist()))
    return pd.Series(texts)


def ablation_table(
    found: Mapping[str, Iterable[Run]],
    source: str,
    printed: Mapping[str, Mapping[str, str]],
    names: Iterable[str] = ("mAP",),
    over: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return an ablation beside the one a paper prints, for `save_table`, and the highest cell of each column.

    Args:
        source: a table of `printed_ablation`, whose rows have the names of the settings.
        printed: heading of a column -> which rows of the source, e.g. {"VOC": {"dataset": "voc2012"}}.
        names: metrics of `measured`; each is printed under the headings of `printed` as well.
        over: as in `gains`; adds a column with the gains of the first metric.
    """
    names, columns, means = list(names), {}, {}
    for name in names:
        here = scores(found, name)
        columns[name], means[name] = over_seeds(here), here.mean(axis=1)
        if over and name == names[0]:
            columns[f"gain in {name}"] = gains(here, over)
    for heading, where in printed.items():
        for name in names:
            rows = printed_ablation(source, **where, metric=name).set_index("row")["value"]
            columns[f"{name}, {heading}"] = means[f"{name}, {heading}"] = rows.reindex(list(found))
    means = pd.DataFrame(means)
    highest = (means == means.max()).reset_index(drop=True)
    table = pd.DataFrame(columns, index=list(found)).rename_axis("setting").reset_index()
    return table, highest.reindex(columns=table.columns, fill_value=False)


def pairs(
    text: str, table: pd.DataFrame, better: Iterable[tuple[Hashable, Hashable]], source: str = ""
) -> Claim:
    """Return the claim that in each pair the first setting is better, judged by the differences over the seeds.

    Args:
        table: from `scores`.
        better: (higher, lower) names of settings.
    """
    of = table.index.name
    gaps = {f"{_term(a, of)} − {_term(b, of)}": (table.loc[a] - table.loc[b]).tolist() for a, b in better}
    return Claim.differences(text, gaps, source)


def best(text: str, table: pd.DataFrame, name: Hashable, source: str = "") -> Claim:
    """Return the claim that a setting is better than every other one of a table, judged as by `pairs`."""
    return pairs(text, table, [(name, other) for other in table.index if other != name], source)


def above(text: str, table: pd.DataFrame, baseline: pd.Series, source: str = "") -> Claim:
    """Return the claim that every setting is above a baseline, judged by the differences over the seeds.

    Args:
        table: from `scores`.
        baseline: a row of `scores`.
    """
    gains = {_named(name, table.index.name): row.tolist() for name, row in (table - baseline).iterrows()}
    return Claim.differences(text, gains, source)


def _named(name, of: str | None = None) -> str:
    """Return a row's name in evidence; a number is preceded by the name of the index, if it has one."""
    if isinstance(name, tuple):
        return f"({', '.join(map(_named, name))})"
    if isinstance(name, Real):
        return f"{of} = {name:g}" if of else f"{name:g}"
    return str(name)


def _term(name, of: str | None) -> str:
    """Return a row as the term of a difference, in parentheses where it has several words or signs."""
    text = _named(name, of)
    return f"({text})" if set(" +−") & set(text) and not text.startswith("(") else text


def errorbars(ax, table: pd.DataFrame, *, interval: bool = False, **look) -> None:
    """Plot the rows of `scores` against their names, which are numbers: means with bars of one standard deviation.

    Args:
        interval: bars are 95 % intervals of the mean instead, for differences over the seeds.
    """
    spread = half_widths(table) if interval else table.std(axis=1).fillna(0)
    ax.errorbar(table.index, table.mean(axis=1), spread, **{"ms": 3, "elinewidth": 0.7} | look)


def half_widths(table: pd.DataFrame) -> pd.Series:
    """Return half the width of Student's 95 % interval of each row's mean, 0 for a single seed, which gives none."""
    widths = [Interval.of_mean(row.tolist()).high - row.mean() for _, row in table.iterrows()]
    return pd.Series(widths, table.index).replace(math.inf, 0.0)


def printed_ablation(source: str, **where: str) -> pd.DataFrame:
    """Return rows of the papers' ablation tables: row, setting, dataset, labels, metric, value, sd.

    Args:
        source: paper and table, e.g. "GR Table 3".
        where: columns and the value they must have, e.g. dataset="coco2014".

    Raises:
        ValueError: there is no such row; names the sources there are.
    """
    return printed_rows(PUBLISHED, source, where)


def printed_rows(file: str, source: str, where: Mapping[str, str | list[str]]) -> pd.DataFrame:
    """Return the rows of a source in a file of printed numbers that have one of the given values in each column."""
    table = pd.read_csv(locate(file), dtype={"setting": str})
    chosen = table[table["source"] == source]
    for column, values in where.items():
        chosen = chosen[chosen[column].isin([values] if isinstance(values, str) else values)]
    if chosen.empty:
        asked = "".join(f", {column} = {value!r}" for column, value in where.items())
        raise ValueError(
            f"{file} has no row of {source!r}{asked}; sources: {', '.join(table.source.unique())}"
        )
    return chosen.reset_index(drop=True)


def searched(
    runs_dir: str | Path, dataset: str, method: str, root: str | Path | None = None
) -> dict[str, dict]:
    """Return what searches chose for a method on a data set: name of the search -> fields of `Experiment`, filled in.

    Read from RUNS_DIR/search/NAME.best.yaml; empty where nothing was searched.

    Args:
        root: folder of the data set; searches on another one are left out.
    """
    chosen = {}
    for file in sorted((locate(runs_dir) / "search").glob("*.best.yaml")):
        fields = read_yaml(file)
        same_folder = locate(fields.get("root") or "") == locate(root or "")
        if same_folder and fields.get("dataset") == dataset and fields.get("method") == method:
            chosen[file.name.removesuffix(".best.yaml")] = asdict(Experiment(**fields).resolved())
    return chosen


def final_values(fields: Mapping, names: Iterable[str]) -> dict[str, float | None]:
    """Return hyperparameters as papers tabulate them: of a (start, end) pair the end; None if there is no such value.

    Args:
        fields: of `Experiment` (a run's `config`), or a plain mapping of names to values.
    """
    known = dict(fields) | dict(fields.get("params", {}))
    return {
        name: value[-1] if isinstance(value := known.get(name), list | tuple) else value for name in names
    }
