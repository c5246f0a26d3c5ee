"""Measures of runs after every epoch, in one table, and their curves over the seeds."""

from collections.abc import Callable, Hashable, Iterable, Mapping

import pandas as pd

from spml_core.runs import Labels, Run


def every_epoch(
    found: Mapping[Hashable, Iterable[Run]],
    measure: Callable[[Labels], Mapping | pd.DataFrame],
    *,
    only_last: bool = False,
) -> pd.DataFrame:
    """Return a table with the columns setting, seed, epoch, and those of the row or table `measure(labels)`.

    Args:
        found: setting -> its runs, as from `sweep`.
        measure: function of the validation labels after an epoch (`Run.labels`). All epochs that a run kept are
            measured, from 0 = before training.
        only_last: measure only the last epoch.
    """
    tables = []
    for setting, runs in found.items():
        for run in runs:
            for epoch in range(run.last_epoch if only_last else 0, run.last_epoch + 1):
                result = measure(run.labels("val", epoch))
                table = result if isinstance(result, pd.DataFrame) else pd.DataFrame([result])
                where = {"setting": setting, "seed": run.config["seed"], "epoch": epoch}
                tables.append(pd.DataFrame(where, index=table.index).join(table))
    return pd.concat(tables, ignore_index=True)


def histories(found: Mapping[Hashable, Iterable[Run]]) -> pd.DataFrame:
    """Return the validation mAP of every epoch: columns setting, seed, epoch, val_map; epoch 0 is before training."""
    rows = [
        run.history[["epoch", "val_map"]].assign(setting=str(name), seed=run.config["seed"])
        for name, runs in found.items()
        for run in runs
    ]
    return pd.concat(rows, ignore_index=True)[["setting", "seed", "epoch", "val_map"]]


def by_seed(table: pd.DataFrame, value: str, **chosen) -> pd.DataFrame:
    """Return one row per epoch and one column per seed: `value` where the columns in `chosen` have these values."""
    for column, wanted in chosen.items():
        table = table[table[column] == wanted]
    return table.pivot(index="epoch", columns="seed", values=value)


def by_class(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return one row per class and one column per (setting, seed): `value`. Classes undefined in any run are left out.

    So every setting and seed counts the same classes. A run in which no class is defined excludes none.
    """
    wide = table.pivot(index="class", columns=["setting", "seed"], values=value)
    wide = wide.reindex(table["class"].unique())
    return wide[wide.loc[:, wide.notna().any()].notna().all(axis=1)]


def class_means(wide: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean and standard deviation over the seeds (0 for one seed) of `by_class`: one column per setting."""
    groups = wide.T.groupby(level=0, sort=False)
    return groups.mean().T, groups.std().fillna(0).T


def band(ax, table: pd.DataFrame, **look) -> None:
    """Plot a table with one column per seed against its index: the mean, in a band from the lowest to the highest."""
    (line,) = ax.plot(table.mean(axis=1), **{"ms": 2.5} | look)
    low, high = table.min(axis=1), table.max(axis=1)
    ax.fill_between(table.index, low, high, color=line.get_color(), alpha=0.2, lw=0)
    if pd.api.types.is_integer_dtype(table.index):
        ax.locator_params(axis="x", integer=True, min_n_ticks=1)
