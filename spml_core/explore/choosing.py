"""Runs to choose from: a list that can be sorted, filtered and walked through with the arrow keys; panels of runs."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
import traitlets
from matplotlib.figure import Figure

from spml_core import figures, methods
from spml_core.explore.panel import WIDE, Panel, choice, offer
from spml_core.runs import record
from spml_core.runs.experiment import Experiment
from spml_core.runs.record import Run

COLUMNS = ["method", "seed", "val", "test", "best", "settings"]  # of the list: mAP, and the best epoch
PLAIN = ["changes", "dataset", "method", "seed", "settings"]
# "sort by": columns of `overview`, whether the lowest comes first.
ORDERS = {
    "fewest settings": (PLAIN, True),
    "method": ("method", True),
    "validation mAP": ("val", False),
    "test mAP": ("test", False),
    "seed": ("seed", True),
    "best epoch": ("best", False),
    "data set and settings": ("settings", True),
    "newest": ("written", False),
}
NONE = ""  # the value of "no other run" and "all classes": None would show as an empty line
SPACE = "\N{NO-BREAK SPACE}"  # a browser collapses plain ones
STYLE = "<style>.spml-runs select, .spml-runs pre {font-family: monospace; font-size: 12px; line-height: 1.3}</style>"


class NothingToShow(ValueError):
    """There is nothing yet that a panel could show; the text says how to make some."""


def name_of(run: Run) -> str:
    """Return e.g. "GR, seed 0"."""
    return f"{figures.label(run.config['method'])}, seed {run.config['seed']}"


def names_of(runs: list[Run]) -> list[str]:
    """Return `name_of` one or two runs; a second one of the same name has ", other settings" appended."""
    names = [name_of(run) for run in runs]
    return names if len({*names}) == len(names) else [names[0], f"{names[1]}, other settings"]


def changes(run: Run) -> list[str]:
    """Return how a run differs from the defaults of its data set and method: ["train=300", "w=(0.0, 10.0)"]."""
    config = run.config
    fields, params = _defaults(config["dataset"], config["method"])
    chosen = {k: v for k, v in config["params"].items() if k not in params or v != params[k]}
    others = {k: config[k] for k, usual in fields.items() if k in config and config[k] != usual}
    changed = config["data"] | chosen | others
    return [f"{k}={tuple(v) if isinstance(v, list) else v}" for k, v in changed.items()]


@cache
def _defaults(dataset: str, method: str) -> tuple[dict, dict]:
    """Return fields of `Experiment` and hyperparameters as JSON gives them back.

    Of a method that is not registered here, the hyperparameters are unknown, so that a run names them all.
    """
    known = method in methods.names()
    fields = dataclasses.asdict(Experiment(dataset=dataset).resolved())
    fields["observe"] = methods.get(method).observes if known else (1, 0)
    for name in ("dataset", "method", "params", "data", "seed", "root"):
        del fields[name]
    return json.loads(json.dumps([fields, methods.defaults(method) if known else {}]))


def overview(runs: Iterable[Run]) -> pd.DataFrame:
    """Return a row per run, by its path: what the list shows, sorts by, and says of it; plain runs come first."""
    rows = {}
    for run in runs:
        config, summary, changed = run.config, run.summary, changes(run)
        row = rows[run.path] = {
            "method": figures.label(config["method"]),
            "seed": config["seed"],
            "val": summary["val_map"],
            "test": summary["test_map"],
            "best": summary["best_epoch"],
            "settings": ", ".join([config["dataset"], *changed]),
            "dataset": config["dataset"],
            "changes": len(changed),
            "written": (run.path / "summary.json").stat().st_mtime,
        }
        row["brief"] = f"{name_of(run)}, val mAP {row['val']:.1f} %, {row['settings']}"
    table = pd.DataFrame(list(rows.values()), index=list(rows)).astype({"test": float})
    return table.sort_values(PLAIN, key=_lower_case)


def _lower_case(column: pd.Series) -> pd.Series:
    return column.str.lower() if pd.api.types.is_string_dtype(column) else column


def _lines(table: pd.DataFrame) -> list[str]:
    """Return the heading and the rows of `overview` as lines of equal columns; texts are left-aligned."""
    columns = {}
    for name in COLUMNS:
        column, width = table[name], 0
        if pd.api.types.is_string_dtype(column):
            width = max(len(name), column.str.len().max())
            column = column.str.ljust(width)
        columns[name.ljust(width)] = column
    text = pd.DataFrame(columns).to_string(index=False, na_rep="--", float_format="{:.1f}".format)
    return [line.rstrip().replace(" ", SPACE) for line in text.splitlines()]


class RunList(widgets.VBox):
    """A list of runs: `value` is the chosen one, `other` the one that it is compared with, or None.

    Sorting and filtering change neither, so that no picture changes; where the chosen run does not match the filter, no
    line is marked. The words of the filter are looked for in the whole row, in any order: "gr train=300 w=".

    Args:
        runs: at least one.
        chosen: at first, default the first of the list.
        other: at first. `compare`, a dropdown of the same rows, is for the panel to show or to leave out; the filter
            keeps the run that is chosen there.
        rows: how many are visible at once.
        alike: runs can be compared for which this is equal.
    """

    value = traitlets.Any()
    other = traitlets.Any()

    def __init__(
        self,
        runs: Iterable[Run],
        chosen: Run | None = None,
        other: Run | None = None,
        rows: int = 8,
        alike: Callable[[Run], object] = lambda run: None,
    ):
        wide = widgets.Layout(width="29em")
        self.select = widgets.Select(rows=rows, layout=wide)
        self.compare = widgets.Dropdown(description="compare with", style=WIDE, layout=wide)
        self.order = choice("sort runs by", [*ORDERS])
        self.words = widgets.Text(
            placeholder="words, e.g. gr digits", description="show runs with", style=WIDE, layout=wide
        )
        self.reverse = widgets.Checkbox(False, description="in reverse", indent=True, style=WIDE)
        self.head, self.note = widgets.HTML(), widgets.HTML(layout=wide)
        super().__init__(
            [widgets.HTML(STYLE), self.order, self.reverse, self.words, self.head, self.select, self.note]
        )
        self.add_class("spml-runs")
        self._alike, self._arranging = alike, False
        self.replace(runs)
        for run in (chosen, other):
            if run is not None and run.path not in self.runs:
                raise ValueError(f"{run.path.name} is not among the {len(self.runs)} runs of this list")
        self.value, self.other = chosen or self.value, other
        self.arrange()
        for widget in (self.order, self.words, self.reverse):
            widget.observe(self.arrange, "value")
        for widget in (self.select, self.compare):
            widget.observe(self._choose, "value")

    def replace(self, runs: Iterable[Run]) -> None:
        """List other runs; the chosen ones stay chosen if they are among them."""
        self.runs = {run.path: run for run in runs}
        if not self.runs:
            raise NothingToShow("there is no run yet: train one, in the loss lab or by spml train")
        self.table = overview(self.runs.values())
        head, *texts = _lines(self.table)
        self.table = self.table.assign(text=texts)
        self.head.value = f"<pre style='margin: 0 0 0 7px'>{html.escape(head)}</pre>"
        self._kinds = {path: self._alike(run) for path, run in self.runs.items()}
        self.value = self.value if self.value in self.runs.values() else self.runs[self._sorted().index[0]]
        self.other = self.other if self.other in self.runs.values() else None
        self.arrange()

    def arrange(self, _=None) -> None:
        """Sort and filter as the controls say."""
        words, table = self.words.value.lower().split(), self._sorted()
        fits = table[[all(word in text.lower() for word in words) for text in table["text"]]]
        self._offered = [p for p in table.index if p in fits.index or self.runs[p] == self.other]
        self._arranging = True
        self.select.options = [*zip(fits["text"], fits.index, strict=True)]
        self.select.value = self.value.path if self.value.path in fits.index else None
        self._arranging = False
        self._offer_others()

    def _sorted(self) -> pd.DataFrame:
        by, ascending = ORDERS[self.order.value]
        how = {"ascending": ascending, "na_position": "first" if ascending else "last"}  # NaN is the lowest
        table = self.table.sort_values(by, kind="stable", key=_lower_case, **how)
        return table[::-1] if self.reverse.value else table

    def _choose(self, _) -> None:
        if self._arranging:
            return
        with self.hold_trait_notifications():
            self.value = self.runs.get(self.select.value, self.value)  # no line may be marked
            self.other = self.runs.get(self.compare.value)
            self._offer_others()

    def _offer_others(self) -> None:
        """Offer the runs that the chosen one can be compared with, and say what is chosen."""
        chosen, kind = self.value.path, self._kinds[self.value.path]
        others = [p for p in self._offered if p != chosen and self._kinds[p] == kind]
        if self.other and self.other.path not in others:
            self.other = None
        self._arranging = True
        self.compare.options = [("no other run", NONE), *((self.table.at[p, "brief"], p) for p in others)]
        self.compare.value = self.other.path if self.other else NONE
        self._arranging = False
        self._describe()

    def _describe(self) -> None:
        shown, words = len(self.select.options), self.words.value.split()
        count = f"{shown} of {len(self.runs)} runs" if words else f"{shown} runs"
        if not shown:
            count = f"no run has {' '.join(words)!r}"
        if self.select.value is None:
            count += "; still shown is the one chosen before"
        runs = [run for run in (self.value, self.other) if run is not None]
        chosen = [f"{name_of(run)}: {self.table.at[run.path, 'settings']}" for run in runs]
        self.note.value = f"<small>{'<br>'.join(map(html.escape, [count, *chosen]))}</small>"


class RunPanel(Panel):
    """A panel of one run, or of two beside each other, and of one of their classes or all.

    Args:
        root: folder of all runs, which "Look again" reads again.
        runs: these, instead of a folder; the first one is shown.
        compare: the run that it is compared with at first.
        fig, controls: of the panel; the list of runs and the choice of a class come first.
        alike: of `RunList`.

    Attributes:
        list: `list.value` is the run, `list.other` the one that it is compared with, or None.
    """

    def __init__(
        self,
        root: str | Path,
        runs: Iterable[Run] | None,
        compare: Run | None,
        fig: Figure,
        controls: Iterable[widgets.Widget],
        alike: Callable[[Run], object] = lambda run: None,
    ):
        self.root, given = root, None if runs is None else [*runs]
        known = record.finished(root) if given is None else given
        self.list = RunList(known, given[0] if given else None, compare, alike=alike)
        self.class_name = choice("class", [("all classes", NONE)])
        self.again = widgets.Button(description="Look again", tooltip="read the folder of runs again")
        self.readout, self.note = widgets.HTML(), widgets.HTML()
        controls = [self.list, self.list.compare, self.class_name, *controls]
        super().__init__(fig, [*controls, *[self.again] * (given is None)], [self.readout, self.note])
        self.prepare()
        self.list.observe(self._prepare, ["value", "other"])
        self.on_click(self.again, self.look_again)

    @property
    def shown(self) -> list[Run]:
        """The run, and the one that it is compared with."""
        return [run for run in (self.list.value, self.list.other) if run is not None]

    def column(self, run: Run) -> int | None:
        """Return the number of the chosen class in a run; None = all classes."""
        return run.classes.index(self.class_name.value) if self.class_name.value else None

    def prepare(self) -> None:
        """Let the controls offer what the chosen runs have, here the classes that both have."""
        others = [run.classes for run in self.shown[1:]]
        common = [name for name in self.list.value.classes if all(name in classes for classes in others)]
        offer(self.class_name, [("all classes", NONE), *((name, name) for name in common)])

    def look_again(self) -> None:
        """Read the folder of runs again."""
        with self.at_once():
            self.list.replace(record.finished(self.root))
            self.prepare()

    def _prepare(self, _) -> None:
        if not self._held:
            with self.told(), self.at_once():
                self.prepare()
