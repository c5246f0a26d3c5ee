"""Named settings of methods, each trained once a seed: what ablations and parameter studies are made of.

settings = {"GR": ("gr", {}), "without v": ("gr", {"sigma": 1e6})}
found = sweep(settings, seeds=[0, 1, 2], runs_dir="runs", dataset="digits", epochs=6)
scores(found)      # a row a setting, a column a seed: test mAP in percent
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict
from numbers import Real
from pathlib import Path

import pandas as pd
import yaml

from spml_core import metrics
from spml_core.figures.claims import Claim, doubt, mean_sd
from spml_core.paths import locate
from spml_core.runs import Experiment, Run, run_all

SHOWN = 3  # differences in the evidence of a claim of more than four
PUBLISHED = "data/published_ablations.csv"


def sweep(
    settings: Mapping[Hashable, tuple], seeds: Iterable[int], runs_dir: str | Path = "runs", **fields
) -> dict[Hashable, list[Run]]:
    """Train each setting with each seed, or load what is there.

    Args:
        settings: name -> (method, params), or (method, params, further fields of `Experiment`) where a setting
            differs in more than its method, e.g. in its backbone. A name may be a tuple such as (b, tau).
        runs_dir: folder of all runs, as `root` of `run_all`.
        fields: what all settings share, by the names of `Experiment`, `root` of the data set among them.

    Returns:
        name -> its runs, in the order of the seeds. Settings that come to the same experiment share its run.

    Raises:
        ValueError: as `Experiment.resolved`, before any training.
    """
    seeds, wanted = list(seeds), []
    for method, params, *own in settings.values():
        both = fields | (own[0] if own else {})
        wanted += [Experiment(**both, method=method, params=params, seed=seed) for seed in seeds]
    runs = iter(run_all(wanted, root=runs_dir))
    return {name: list(itertools.islice(runs, len(seeds))) for name in settings}


def scores(found: Mapping[Hashable, Iterable[Run]], metric: str = "mAP") -> pd.DataFrame:
    """A row a setting, a column a seed, in percent, on the test split (where there is none, on validation).

    Args:
        metric: "mAP"; "CF1" or "OF1" at p > 0.5 (`metrics.f1_family`); or "val mAP", on validation in any case.
    """
    rows = {name: {run.config["seed"]: _score(run, metric) for run in runs} for name, runs in found.items()}
    index = list(rows)
    if index and all(isinstance(name, tuple) for name in index):
        index = pd.MultiIndex.from_tuples(index)
    return pd.DataFrame(list(rows.values()), index=index, dtype=float)


def _score(run: Run, metric: str) -> float:
    tested = run.summary["test_map"] is not None
    if metric == "mAP" and tested:
        return run.summary["test_map"]
    if metric in ("mAP", "val mAP"):
        return run.summary["val_map"]
    split = "test" if tested else "val"
    family = metrics.f1_family(run.logits(split), run.full(split), kind="logit").row()
    if metric not in family:
        raise ValueError(f"unknown metric {metric!r}: use mAP, val mAP or one of {', '.join(family)}")
    return 100 * family[metric]


def curves(found: Mapping[Hashable, Iterable[Run]]) -> pd.DataFrame:
    """Validation mAP of every epoch: columns setting, seed, epoch, val_map; epoch 0 is before training."""
    rows = [
        run.history[["epoch", "val_map"]].assign(setting=str(name), seed=run.config["seed"])
        for name, runs in found.items()
        for run in runs
    ]
    return pd.concat(rows, ignore_index=True)[["setting", "seed", "epoch", "val_map"]]


def report(
    found: Mapping[str, Iterable[Run]],
    source: str,
    printed: Mapping[str, Mapping[str, str]],
    names: Iterable[str] = ("mAP",),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """An ablation beside the one a paper prints, for `save_table`: the table, and the highest cell of each column.

    Args:
        source: a table of `published`, whose rows are called like the settings.
        printed: heading of a column -> which rows of the source, e.g. {"VOC": {"dataset": "voc2012"}}.
        names: metrics of `scores`; each is printed under the headings of `printed` as well.
    """
    table, means = pd.DataFrame({"setting": list(found)}), pd.DataFrame(index=list(found))
    for name in names:
        here = scores(found, name)
        table[name], means[name] = [mean_sd(row.tolist()) for _, row in here.iterrows()], here.mean(axis=1)
    for heading, where in printed.items():
        for name in names:
            rows = published(source, **where, metric=name).set_index("row")["value"].reindex(list(found))
            table[f"{name}, {heading}"], means[f"{name}, {heading}"] = rows.to_numpy(), rows
    highest = (means == means.max()).to_numpy()
    return table, pd.DataFrame(highest, columns=means.columns).reindex(
        columns=table.columns, fill_value=False
    )


def pairs(
    text: str, table: pd.DataFrame, better: Iterable[tuple[Hashable, Hashable]], source: str = ""
) -> Claim:
    """The claim that in each pair the first setting has the higher mean; the evidence is the difference seed by seed.

    Both settings of a seed share its labels, weights and order of examples, so that their difference is steadier than
    either.

    Args:
        table: of `scores`.
        better: (higher, lower) names of settings.
    """
    gaps = {
        f"{_plain(one)} − {_plain(other)}": (table.loc[one] - table.loc[other]).tolist()
        for one, other in better
    }
    holds = all(sum(values) > 0 for values in gaps.values())
    shown = sorted(gaps, key=lambda name: sum(gaps[name]))[:SHOWN] if len(gaps) > SHOWN + 1 else gaps
    found = ", ".join(f"{name} {mean_sd(gaps[name])}" for name in shown)
    if len(shown) < len(gaps):
        found = f"smallest of {len(gaps)} differences: {found}"
    found += doubt(min(gaps.values(), key=sum))
    return Claim(text, holds, found, source, table.shape[1])


def above(text: str, table: pd.DataFrame, baseline: pd.Series, source: str = "") -> Claim:
    """The claim that every setting has a higher mean than a baseline, seed by seed; the evidence is the smallest gain.

    Args:
        table: of `scores`.
        baseline: a row of `scores`.
    """
    gains = table - baseline
    worst = gains.mean(axis=1).idxmin()
    found = f"smallest gain {mean_sd(gains.loc[worst].tolist())}, at {_plain(worst)}{doubt(gains.loc[worst].tolist())}"
    return Claim(text, bool(gains.loc[worst].sum() > 0), found, source, table.shape[1])


def _plain(name) -> str:
    if isinstance(name, tuple):
        return f"({', '.join(map(_plain, name))})"
    return f"{name:g}" if isinstance(name, Real) else str(name)


def errorbars(ax, table: pd.DataFrame, **look) -> None:
    """Draw the rows of `scores` against their names, which are numbers: means, bars of one standard deviation."""
    spread = table.std(axis=1).fillna(0)
    ax.errorbar(table.index, table.mean(axis=1), spread, **{"ms": 3, "elinewidth": 0.7} | look)


def band(ax, course: pd.DataFrame, **look) -> None:
    """Draw a column a seed against the index: their mean, and a band from the lowest to the highest."""
    (line,) = ax.plot(course.mean(axis=1), **look)
    low, high = course.min(axis=1), course.max(axis=1)
    ax.fill_between(course.index, low, high, color=line.get_color(), alpha=0.12, lw=0)


def published(source: str, **where: str) -> pd.DataFrame:
    """Rows of the papers' ablation tables: row, setting, dataset, labels, metric, value, sd.

    Args:
        source: paper and table, e.g. "GR Table 3".
        where: columns and the value they must have, e.g. dataset="coco2014".

    Raises:
        ValueError: nothing is printed there; names what there is.
    """
    table = pd.read_csv(locate(PUBLISHED), dtype={"setting": str})
    chosen = table[table["source"] == source]
    if chosen.empty:
        raise ValueError(f"no table {source!r} in {PUBLISHED}; there are: {', '.join(table.source.unique())}")
    for column, value in where.items():
        if column not in chosen or not (chosen[column] == value).any():
            raise ValueError(f"{source} has no row with {column} = {value!r}")
        chosen = chosen[chosen[column] == value]
    return chosen.reset_index(drop=True)


def searched(runs_dir: str | Path, dataset: str, method: str) -> dict[str, dict]:
    """What searches chose for a method on a data set: name of the search -> fields of `Experiment`, filled in.

    Read from RUNS_DIR/search/NAME.best.yaml; empty where nothing was searched.
    """
    chosen = {}
    for file in sorted((locate(runs_dir) / "search").glob("*.best.yaml")):
        fields = yaml.safe_load(file.read_text(encoding="utf-8"))
        if fields.get("dataset") == dataset and fields.get("method") == method:
            chosen[file.name.removesuffix(".best.yaml")] = asdict(Experiment(**fields).resolved())
    return chosen


def final_values(fields: Mapping, names: Iterable[str]) -> dict[str, float | None]:
    """Hyperparameters as papers tabulate them: of a (start, end) pair the end; None where there is no such value.

    Args:
        fields: of `Experiment` (a run's `config`), or a plain mapping of names to values.
    """
    known = dict(fields) | dict(fields.get("params", {}))
    return {
        name: value[-1] if isinstance(value := known.get(name), list | tuple) else value for name in names
    }
