"""A list of runs that can be sorted, filtered and walked through with the arrow keys; the base of panels of runs."""

import dataclasses
import html
import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from spml_core import figures, methods
from spml_core.explore.panel import WIDE, Panel, choice, offer
from spml_core.runs import Experiment, Labels, Run, record

COLUMNS = ["method", "seed", "val", "test", "best", "settings"]  # of the list: mAP, and the best epoch
HEAD = "method         seed   val  test best  settings"
LINE = "{method:14} {seed:4} {val:5.1f} {test:5.1f} {best:4}  {settings}"
ORDERS = {  # "sort by": columns of `overview`, whether the lowest comes first
    "fewest changed settings": (["changes", "settings", "method", "seed"], True),
    "method": ("method", True),
    "validation mAP": ("val", False),
    "test mAP": ("test", False),
    "newest": ("written", False),
}
NONE = ""  # the value of "no other run" and "all classes": None would show as an empty line
STYLE = "<style>.spml-runs select, .spml-runs pre {font-family: monospace; font-size: 12px; line-height: 1.3}</style>"


class NothingToShow(ValueError):
    """There is nothing for a panel to show yet; the message says how to create something."""


def names_of(runs: list[Run]) -> list[str]:
    """Return e.g. ["GR, seed 0"]; a second run of the same name has ", other settings" appended."""
    names = [f"{figures.label(run.config['method'])}, seed {run.config['seed']}" for run in runs]
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
    """Return the default fields of `Experiment` and the default hyperparameters, as JSON returns them.

    If a method is not registered here, its defaults are unknown, and all hyperparameters of a run count as changed.
    """
    known = method in methods.names()
    fields = dataclasses.asdict(Experiment(dataset=dataset).resolved())
    fields["observe"] = methods.get(method).observes if known else (1, 0)
    for name in ("dataset", "method", "params", "data", "seed", "root"):
        del fields[name]
    return json.loads(json.dumps([fields, methods.defaults(method) if known else {}]))


def overview(runs: Iterable[Run]) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`, further columns to sort by, and the run's line in the list."""
    rows = []
    for run in dict.fromkeys(runs):
        config, summary, changed = run.config, run.summary, changes(run)
        row = {
            "method": figures.label(config["method"]),
            "seed": config["seed"],
            "val": summary["val_map"],
            "test": math.nan if summary["test_map"] is None else summary["test_map"],
            "best": summary["best_epoch"],
            "settings": ", ".join([config["dataset"], *changed]),
        }
        line = LINE.format(**row).replace(" ", "\N{NO-BREAK SPACE}")  # a browser collapses plain ones
        written = (run.path / "summary.json").stat().st_mtime
        rows.append(row | {"changes": len(changed), "written": written, "run": run, "line": line})
    return pd.DataFrame(rows)


class RunPanel(Panel):
    """A panel that shows one run or compares two, for one class or all.

    The filter keeps the runs whose line has all of its words, in any order: "gr train=300 w=". Selected runs stay in
    the list.

    Args:
        root: folder of all runs.
        runs: these, instead of a folder; the first one is shown.
        compare: the run to compare with at first, if it is a different run and `alike`.
        fig, controls: of the panel; the list of runs and the choice of a class come first.

    Attributes:
        run: the control for the run. other: the control for the run to compare with, or `NONE`.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: `compare` is not one of the runs.
    """

    def __init__(
        self,
        root: str | Path,
        runs: Iterable[Run] | None,
        compare: Run | None,
        fig: Figure,
        controls: Iterable[widgets.Widget],
    ):
        known = record.finished(root) if runs is None else [*runs]
        if not known:
            raise NothingToShow("there are no runs yet: train one in the loss lab or with spml train")
        self.table = overview(known)
        self._kinds = {run: self.alike(run) for run in known}
        self.sort = choice("sort runs by", ORDERS)
        self.words = widgets.Text(placeholder="words, e.g. gr digits", description="filter runs by", **WIDE)
        self.run = widgets.Select(rows=8, layout={"width": "31em"})
        self.other = widgets.Dropdown(description="compare with", **WIDE)
        self.class_name = choice("class", [("all classes", NONE)])
        self.chosen, self.readout = widgets.HTML(), widgets.HTML()
        head = widgets.HTML(f"{STYLE}<pre style='margin: 0 0 0 7px'>{HEAD}</pre>")
        listed = widgets.VBox([self.sort, self.words, head, self.run, self.other, self.chosen])
        listed.add_class("spml-runs")
        super().__init__(fig, [listed, self.class_name, *controls], [self.readout])
        self.prepare()
        if compare not in (None, *known):
            raise ValueError(f"{compare.path.name} is not among the runs of this panel")
        for control, run in ((self.run, known[0] if runs else None), (self.other, compare)):
            if run in [offered for _, offered in control.options]:
                control.value = run
                self.prepare()
        for control in (self.sort, self.words, self.run, self.other):
            control.observe(self.prepare_anew, "value")

    @property
    def shown(self) -> list[Run]:
        """The selected run and, if there is one, the run it is compared with."""
        return [run for run in (self.run.value, self.other.value) if run]

    def of_class(self, run: Run, labels: Labels) -> Labels:
        """Return the labels of the selected class, or all labels of the run."""
        name = self.class_name.value
        return labels.of_class(run.classes.index(name)) if name else labels

    def alike(self, run: Run) -> object:
        """Return a key that is equal for runs that can be compared."""

    def prepare(self) -> None:
        """Update the lists: the runs that match the filter, and the classes of the selected runs."""
        by, ascending = ORDERS[self.sort.value]
        table = self.table.sort_values(by, ascending=ascending, kind="stable")
        words, chosen = self.words.value.lower().split(), self.shown
        lines = [
            (line, run)
            for line, run in zip(table["line"], table["run"], strict=True)
            if run in chosen or all(word in line.lower() for word in words)
        ]
        offer(self.run, lines)
        first, kinds = self.run.value, self._kinds
        others = [(line, run) for line, run in lines if run != first and kinds[run] == kinds[first]]
        offer(self.other, [("no other run", NONE), *others])
        common = set.intersection(*(set(run.classes) for run in self.shown))
        names = [(name, name) for name in first.classes if name in common]
        offer(self.class_name, [("all classes", NONE), *names])
        said = zip(names_of(self.shown), overview(self.shown)["settings"], strict=True)
        self.chosen.value = "<br>".join(html.escape(": ".join(one)) for one in said)

    def prepare_anew(self, _) -> None:
        """Prepare, and redraw once."""
        if not self._held:
            with self.at_once():
                self.prepare()
