"""Runs to choose from: a list that is sorted, filtered and walked through with the arrow keys."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import ipywidgets as widgets
import traitlets

from spml_core import figures, methods
from spml_core.explore.panel import WIDE, choice
from spml_core.runs.experiment import Experiment
from spml_core.runs.record import Run

# Columns of the list: what is shown above them, their width, whether their numbers are right-aligned.
COLUMNS = {
    "method": ("method", 13, False),
    "seed": ("seed", 4, True),
    "val_map": ("val", 5, True),
    "test_map": ("test", 5, True),
    "best_epoch": ("best", 4, True),
    "settings": ("settings", 0, False),
}
# "sort by": what to sort by, whether the highest stands first.
ORDERS = {
    "fewest settings": ("plain", False),  # then data set, method and seed
    "method": ("method", False),
    "validation mAP": ("val_map", True),
    "test mAP": ("test_map", True),
    "seed": ("seed", False),
    "best epoch": ("best_epoch", True),
    "data set and settings": ("settings", False),
    "newest": ("written", True),
}
NONE = ""  # the value of "no other run" and "all classes": None would show as an empty line
SPACE = "\N{NO-BREAK SPACE}"  # a list in a browser drops the plain ones
STYLE = "<style>.spml-runs select, .spml-runs pre {font-family: monospace; font-size: 12px; line-height: 1.3}</style>"


class NothingToShow(ValueError):
    """There is nothing yet that a panel could show; the text says what makes it."""


def name_of(run: Run) -> str:
    """E.g. "GR, seed 0"."""
    config = run.config
    return f"{figures.METHOD_LABELS.get(config['method'], config['method'])}, seed {config['seed']}"


def names_of(runs: list[Run]) -> list[str]:
    """`name_of` each of one or two runs; a second one of that name has ", other settings"."""
    names = [name_of(run) for run in runs]
    return names if len({*names}) == len(names) else [names[0], f"{names[1]}, other settings"]


def settings(run: Run) -> str:
    """The data set, and `changes`: e.g. "digits, train=300, w=(0.0, 10.0)"."""
    return ", ".join([run.config["dataset"], *changes(run)])


def changes(run: Run) -> list[str]:
    """In what a run differs from the defaults of its data set and method, e.g. ["train=300", "w=(0.0, 10.0)"]."""
    config = run.config
    usual, params = _defaults(config["dataset"]), _hyperparameters(config["method"])
    changed = {k: v for k, v in config["params"].items() if k not in params or not _same(v, params[k])}
    changed = config["data"] | changed
    left_out = ("dataset", "method", "params", "data", "seed", "root", "observe")
    changed |= {
        k: v for k, v in config.items() if k not in left_out and k in usual and not _same(v, usual[k])
    }
    asked = methods.get(config["method"]).observes if params else (1, 0)
    if not _same(config["observe"], asked):
        changed["observe"] = config["observe"]
    return [f"{k}={tuple(v) if isinstance(v, list) else v}" for k, v in changed.items()]


def _same(a, b) -> bool:
    plain = lambda value: list(value) if isinstance(value, tuple) else value  # noqa: E731
    return plain(a) == plain(b)


@cache
def _defaults(dataset: str) -> dict:
    return dataclasses.asdict(Experiment(dataset=dataset).resolved())


def _hyperparameters(method: str) -> dict:
    """None are known of a method that was registered elsewhere, so that a run names them all."""
    return methods.defaults(method) if method in methods.names() else {}


class RunList(widgets.VBox):
    """A list of runs; `value` is the chosen one, and what a panel follows.

    Sorting and filtering leave the chosen one chosen, so that no picture changes; where it does not fit the filter, the
    list has no line of it, and none is marked. Words of the filter are looked for in the whole row, in any order:
    "gr train=300 w=".

    Args:
        runs: at least one.
        chosen: the first one chosen, default the first of the list.
        other: the run that it is compared with at first; None = no other. `compare`, a dropdown of the same rows, is
            for the panel to show or to leave out; the filter keeps the one that is chosen there.
        rows: how many are seen at once.
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
        self._alike = alike
        self._arranging = False
        wide = widgets.Layout(width="29em")
        self.select = widgets.Select(rows=rows, layout=wide)
        self.compare = widgets.Dropdown(description="compare with", style=WIDE, layout=wide)
        self.order = choice("sort runs by", [*ORDERS])
        self.words = widgets.Text(
            placeholder="words, e.g. gr digits", description="show runs with", style=WIDE
        )
        self.words.layout.width = "29em"
        self.reverse = widgets.Checkbox(False, description="in reverse", indent=True, style=WIDE)
        head = "".join(_cell(title, wide, right) for title, wide, right in COLUMNS.values())
        self.head = widgets.HTML()
        self.note = widgets.HTML(layout=wide)
        self._title = head
        super().__init__(
            [widgets.HTML(STYLE), self.order, self.reverse, self.words, self.head, self.select, self.note]
        )
        self.add_class("spml-runs")
        self.replace(runs, chosen, other)
        for widget in (self.order, self.words, self.reverse):
            widget.observe(lambda _: self.arrange(), "value")
        self.select.observe(self._chosen, "value")
        self.compare.observe(self._chosen, "value")

    def replace(self, runs: Iterable[Run], chosen: Run | None = None, other: Run | None = None) -> None:
        """Other runs; what was chosen stays so, if it is among them."""
        found = {run.path: run for run in runs}
        if not found:
            raise NothingToShow("there is no run yet: train one, in the loss lab or by spml train")
        self.rows = {path: _row(run) for path, run in found.items()}
        self.runs = found
        for run in (chosen, other):
            if run is not None and run.path not in found:
                raise ValueError(f"{run.path.name} is not among the {len(found)} runs of this list")
        self._kinds = {path: self._alike(run) for path, run in found.items()}
        first = chosen or self.value
        self._second = None if other is None else other.path
        self._first = first.path if first is not None and first.path in found else self._sorted()[0]
        self.arrange()

    def arrange(self) -> None:
        """Sort and filter as the controls say."""
        words = self.words.value.lower().split()
        order = self._sorted()
        fits = [p for p in order if all(word in self.rows[p]["text"].lower() for word in words)]
        self._offered = [p for p in order if p in fits or p == self._second]
        self._arranging = True
        try:
            self.select.options = [(self.rows[p]["text"], p) for p in fits]
            self.select.value = self._first if self._first in fits else None
            self._offer_others()
        finally:
            self._arranging = False
        self._count = f"{len(fits)} of {len(self.rows)} runs" if words else f"{len(self.rows)} runs"
        if not fits:
            self._count = f"no run has {' '.join(words)!r}"
        self.head.value = f"<pre style='margin: 0 0 0 7px'>{html.escape(self._title)}</pre>"
        self._tell()

    def _sorted(self) -> list[Path]:
        key, falling = ORDERS[self.order.value]
        plain = sorted(self.rows, key=lambda path: self.rows[path]["plain"])
        order = sorted(plain, key=lambda path: _sortable(self.rows[path][key]), reverse=falling)
        return order[::-1] if self.reverse.value else order

    def _offer_others(self) -> None:
        kind = self._kinds[self._first]
        alike = [path for path in self._offered if self._kinds[path] == kind]
        others = [(self.rows[path]["brief"], path) for path in alike if path != self._first]
        options = [("no other run", NONE), *others]
        if options != list(self.compare.options):
            self.compare.options = options
        if self._second not in [path for _, path in others]:
            self._second = None
        self.compare.value = self._second or NONE

    def _chosen(self, _) -> None:
        if self._arranging:
            return
        self._first = self.select.value or self._first  # none is marked if the chosen one is filtered out
        self._second = self.compare.value or None
        self._arranging = True
        try:
            self._offer_others()
        finally:
            self._arranging = False
        self._tell()

    def _tell(self) -> None:
        self.value = self.runs[self._first]
        self.other = None if self._second is None else self.runs[self._second]
        said = [
            f"{name_of(self.runs[p])}: {self.rows[p]['settings']}" for p in (self._first, self._second) if p
        ]
        still = "" if self.select.value else "; still shown is the one chosen before"
        self.note.value = (
            f"<small>{html.escape(self._count + still)}<br>{'<br>'.join(map(html.escape, said))}</small>"
        )


def _row(run: Run) -> dict:
    config, summary = run.config, run.summary
    label, changed = figures.METHOD_LABELS.get(config["method"], config["method"]), changes(run)
    row = {
        "method": label,
        "seed": config["seed"],
        "settings": ", ".join([config["dataset"], *changed]),
        "plain": (len(changed), config["dataset"], label.lower(), config["seed"], changed),
        "written": (run.path / "summary.json").stat().st_mtime,
    }
    row |= {name: summary[name] for name in ("val_map", "test_map", "best_epoch")}
    row["text"] = "".join(_cell(row[name], wide, right) for name, (_, wide, right) in COLUMNS.items())
    row["brief"] = f"{name_of(run)}, val mAP {summary['val_map']:.1f} %, {row['settings']}"
    return row


def _cell(value, width: int, right: bool) -> str:
    text = "--" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
    return (text.rjust(width) if right else text[: width or None].ljust(width)).replace(" ", SPACE) + SPACE


def _sortable(value):
    """What is not there (a test mAP without a test split) stands before everything."""
    return (value is not None, value.lower() if isinstance(value, str) else value or 0)
