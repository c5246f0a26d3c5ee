"""From epoch to epoch: a measure of many runs in one table, and its line over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from spml_core.runs import Run


def every_epoch(
    runs: Mapping[tuple[str, int], Run], measure: Callable[[Run, int], Mapping | pd.DataFrame]
) -> pd.DataFrame:
    """Columns setting, seed, epoch, and those of `measure(run, epoch)`: a row, or a table with several.

    Args:
        runs: by (setting, seed). All epochs that a run kept are measured, from 0 = before training.
    """
    tables = []
    for (setting, seed), run in runs.items():
        for epoch in run.history["epoch"]:
            found = measure(run, int(epoch))
            table = found if isinstance(found, pd.DataFrame) else pd.DataFrame([found])
            where = {"setting": setting, "seed": seed, "epoch": int(epoch)}
            tables.append(pd.DataFrame(where, index=table.index).join(table))
    return pd.concat(tables, ignore_index=True)


def by_seed(table: pd.DataFrame, value: str, **chosen) -> pd.DataFrame:
    """A row an epoch, a column a seed: `value` where the columns named in `chosen` have these values."""
    for column, wanted in chosen.items():
        table = table[table[column] == wanted]
    return table.pivot(index="epoch", columns="seed", values=value)


def draw(ax, table: pd.DataFrame, **look) -> None:
    """The mean over the seeds of a table of `by_seed`, in a band from the lowest to the highest seed."""
    (line,) = ax.plot(table.mean(axis=1), ms=2.5, **look)
    ax.fill_between(
        table.index, table.min(axis=1), table.max(axis=1), color=line.get_color(), alpha=0.2, lw=0
    )
    ax.locator_params(axis="x", integer=True)
