"""Predictions: images with their annotated, true and predicted labels, a page at a time."""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from scipy.special import expit, log_expit

from spml_core import figures, metrics
from spml_core.data import Dataset
from spml_core.data.files.pictures import pictures
from spml_core.explore.choosing import NONE, RunList, names_of
from spml_core.explore.panel import Panel, cell, choice, slider
from spml_core.paths import locate
from spml_core.runs import record
from spml_core.runs.experiment import Experiment
from spml_core.runs.record import Run
from spml_core.studies import examples

SPLITS = {"val": "validation images", "test": "test images"}
# Filters: words, and whether they need annotated labels, which test images do not have.
FILTERS = {
    "all": ("all images", False),
    "missing": ("with a false negative (a missing positive)", True),
    "found": ("with a false negative that the model finds", True),
    "not_found": ("with a false negative that it does not find", True),
    "annotated_missed": ("with an annotated label that it misses", True),
    "missed": ("with a true label that it misses", False),
    "wrong": ("with a negative that it calls positive", False),
}
ORDERS = {
    "row": ("as in the data set", False),
    "missing_high": ("score of a false negative, highest first", True),
    "missing_low": ("score of a false negative, lowest first", True),
    "negative": ("score of a negative, highest first", False),
    "loss": ("loss with all labels, highest first", False),
    "ap": ("average precision of the image, worst first", False),
}
ROWS = 3  # images a page


def predictions(
    root: str | Path = "runs",
    *,
    runs: Iterable[Run] | None = None,
    compare: Run | None = None,
    dataset: Dataset | None = None,
    data_root: str | Path | None = None,
    split: str = "val",
    show: str = "all",
    order: str = "row",
    labels: int = 6,
) -> Predictions:
    """The panel of single images, to be shown as the last value of a cell.

    Each image stands beside bars of the best epoch's probabilities: all true labels, and those negatives that are
    likeliest. A hatched bar is a false negative: true, and not annotated. A run keeps its predictions of validation and
    test images; for training images, train it with `data={"val_is_train": True}`.

    Args:
        root: folder of all runs.
        runs: these, instead of a folder; the first one is shown.
        compare: a second run on the same images; annotated labels are those of the first.
        dataset: of these runs, where it is loaded already; else it is loaded as they did.
        data_root: folder of the data set, if it is not where it was in training.
        split: at first; "val" or "test".
        show: at first, a key of `FILTERS`: all, missing, found, not_found, annotated_missed, missed, wrong.
        order: at first, a key of `ORDERS`: row, missing_high, missing_low, negative, loss, ap.
        labels: bars an image, more if it has more true labels.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: a split, filter or order that is not known, or that test images do not have.
    """
    for name, value, known in (("split", split, SPLITS), ("show", show, FILTERS), ("order", order, ORDERS)):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}: use one of {', '.join(known)}")
    if split == "test" and (FILTERS[show][1] or ORDERS[order][1]):
        raise ValueError(
            "on test images no label is annotated, so none is missing: choose another show or order"
        )
    return Predictions(root, runs, compare, dataset, data_root, split, show, order, labels)


class Scores:
    """A run's predictions for a split, in numbers that sort and filter; arrays are (N, C) or (N,)."""

    def __init__(self, run: Run, split: str):
        self.logits = run.logits(split)
        self.probs = expit(self.logits.astype(float))
        known = run.known(split)
        self.known = np.ones(self.logits.shape, bool) if known is None else known
        self.positive = (run.full(split) == 1) & self.known
        self.negative = ~self.positive & self.known
        self.observed = run.observed(split) if split == "val" else None
        annotated = np.zeros(self.logits.shape, bool) if self.observed is None else self.observed == 1
        self.annotated, self.missing = annotated, self.positive & ~annotated
        if self.observed is None:
            self.missing = np.zeros(self.logits.shape, bool)

    @cached_property
    def loss(self) -> np.ndarray:
        """(N,) binary cross-entropy with the whole truth, mean over the labels that are known."""
        each = -np.where(self.positive, log_expit(self.logits), log_expit(-self.logits)).astype(float)
        return (each * self.known).sum(1) / np.maximum(self.known.sum(1), 1)

    @cached_property
    def ap(self) -> np.ndarray:
        """(N,) average precision of each image's labels; NaN for an image without a positive."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a score of 0 or 1 throughout is told where classes are ranked
            return metrics.average_precision(self.logits.T, self.positive.T, self.known.T).per_class

    def fits(self, show: str, threshold: float, column: int | None = None) -> np.ndarray:
        """(N,) bool: which images a filter lets through; of one class, only its labels count."""
        above = self.probs > threshold
        cells = {
            "all": self.known if column is None else self.positive,
            "missing": self.missing,
            "found": self.missing & above,
            "not_found": self.missing & ~above,
            "annotated_missed": self.annotated & ~above,
            "missed": self.positive & ~above,
            "wrong": self.negative & above,
        }[show]
        if column is None:
            return np.ones(len(cells), bool) if show == "all" else cells.any(1)
        return cells[:, column]

    def keys(self, order: str, column: int | None = None) -> np.ndarray:
        """(N,) what is sorted by, ascending; NaN (nothing of the kind in an image) comes last."""
        if order == "row":
            return np.arange(len(self.probs), dtype=float)
        if order == "loss":
            return -self.loss
        if order == "ap":
            return self.ap
        cells = self.negative if order == "negative" else self.missing
        if column is not None:
            cells = cells & (np.arange(cells.shape[1]) == column)
        best = np.where(cells, self.probs, np.inf).min(1) if order == "missing_low" else -self._highest(cells)
        return np.where(cells.any(1), best, np.nan)

    def _highest(self, cells: np.ndarray) -> np.ndarray:
        return np.where(cells, self.probs, -np.inf).max(1)

    def rows(self, show: str, order: str, threshold: float, column: int | None = None) -> np.ndarray:
        """Numbers of the images that a filter lets through, sorted."""
        chosen = np.flatnonzero(self.fits(show, threshold, column))
        return chosen[np.argsort(self.keys(order, column)[chosen], kind="stable")]


def same_images(run: Run) -> tuple:
    """Equal for runs whose images, and labels to be found, are the same."""
    config = run.config
    data = tuple(sorted((k, str(v)) for k, v in config["data"].items()))
    return config["dataset"], data, run.summary["data"]["fingerprint"], config["seed"], config["protocol"]


class Predictions(Panel):
    """See `predictions`.

    Attributes:
        list: `list.value` is the run, `list.other` what it is compared with, or None.
        rows: numbers of the images that the filter lets through, in order.
    """

    def __init__(self, root, runs, compare, dataset, data_root, split, show, order, labels):
        self.root, self._given, self._labels, self._data_root = root, runs is not None, labels, data_root
        known = [*runs] if self._given else record.finished(root)
        self.list = RunList(known, known[0] if self._given and known else None, compare, alike=same_images)
        self._datasets, self._scores, self._pictures = {}, {}, {}
        if dataset is not None:
            self._datasets[same_images(self.list.value)[:3]] = dataset
        self._shown, self._room, self._widest = None, 0, 0
        self.split = choice("images", [("validation images", "val")])
        self.class_name = choice("class", [("all classes", NONE)])
        self.show, self.order = choice("show", _words(FILTERS)), choice("sort images by", _words(ORDERS))
        self.threshold = slider("positive above p =", 0.5, 0, 1, 0.01)
        self.page = slider("page", 1, 1, 1, 1, whole=True)
        self.back = widgets.Button(description="Previous", layout={"width": "8em"})
        self.forward = widgets.Button(description="Next", layout={"width": "8em"})
        self.readout = widgets.HTML()
        fig, _ = figures.detached(height_to_width=0.5)
        turned = [self.split, self.class_name, self.show, self.order, self.threshold, self.page]
        super().__init__(
            fig,
            [self.list, self.list.compare, *turned, widgets.HBox([self.back, self.forward])],
            [self.readout],
        )
        self._offer()
        if split not in [value for _, value in self.split.options]:
            raise ValueError(f"{self.list.value.path.name} has no {SPLITS[split]}")
        self.split.value = split
        self._offer()
        self.show.value, self.order.value = show, order
        self._arrange()
        self.list.observe(self._changed_what, ["value", "other"])
        for widget in (self.split, self.class_name, self.show, self.order, self.threshold):
            widget.observe(self._changed_what, "value")
        self.on_click(self.back, lambda: self._turn(-1))
        self.on_click(self.forward, lambda: self._turn(1))
        self.follow(self.page)

    @property
    def shown(self) -> list[Run]:
        return [self.list.value, *([self.list.other] if self.list.other else [])]

    @property
    def column(self) -> int | None:
        """Number of the chosen class."""
        name = self.class_name.value
        return self.list.value.classes.index(name) if name else None

    @property
    def page_rows(self) -> np.ndarray:
        """Numbers of the images on this page."""
        return self.rows[(self.page.value - 1) * ROWS : self.page.value * ROWS]

    def scores(self, run: Run) -> Scores:
        key = (run.path, self.split.value)
        if key not in self._scores:
            while len(self._scores) > 3:
                del self._scores[next(iter(self._scores))]
            self._scores[key] = Scores(run, self.split.value)
        return self._scores[key]

    def dataset(self) -> Dataset:
        """Of the first run, for its pictures."""
        run, key = self.list.value, same_images(self.list.value)[:3]
        if key not in self._datasets:
            config = run.config
            fields = {name: config[name] for name in ("dataset", "data", "mode", "backbone", "root")}
            if self._data_root is not None:
                fields["root"] = str(self._data_root)
            self._datasets = {key: Experiment(**fields).load_data(locate(self.root) / "cache")}
        return self._datasets[key]

    def pictures(self, rows: np.ndarray) -> list[np.ndarray]:
        """Of these images; those seen before are kept."""
        config, split = self.list.value.config, self.split.value
        key = (same_images(self.list.value)[:3], split)
        wanted = [n for n in rows if (key, n) not in self._pictures]
        root = self._data_root or config["root"]
        options = config["data"] | ({} if root is None else {"root": root})
        if wanted:
            found = pictures(self.dataset(), split, wanted, config["dataset"], **options)
            self._pictures |= {(key, n): picture for n, picture in zip(wanted, found, strict=True)}
        return [self._pictures[key, n] for n in rows]

    # --- drawing ---

    def update(self):
        rows, runs, classes = self.page_rows, self.shown, self.list.value.classes
        first, threshold = self.scores(runs[0]), self.threshold.value
        names = names_of(runs)
        probs = {name: self.scores(run).probs[rows] for name, run in zip(names, runs, strict=True)}
        observed = None if first.observed is None else first.observed[rows]
        told = {"images": [str(n) for n in rows], "classes": classes, "labels": self._labels}
        bars = examples.table(probs, first.positive[rows].astype(int), observed, threshold=threshold, **told)
        widest = max(map(len, bars["class"]), default=1)
        room = max(min(self._labels, len(classes)), *first.positive[rows].sum(1), 1)
        shown = (self.list.value.path, self.split.value, *names)
        if shown != self._shown or room > self._room or widest > self._widest:
            self._shown, self._room, self._widest = shown, room, widest
            self._start_axes(names)
        self._rows.show(bars, self.pictures(rows), threshold)
        ids = [self.dataset().parts[self.split.value].ids[n] for n in rows] or ["no such image"]
        for n, ax in enumerate(self._rows.axes[:, 0]):
            ax.title.set_text(_short(ids[n]) if n < len(ids) else "")
        self._read_out(rows, runs)

    def _start_axes(self, names: list[str]):
        self.fig.clear()
        self.fig.set_size_inches(self.fig.get_figwidth(), 0.6 + ROWS * max(1.0, 0.15 * self._room))
        widths = [0.22 * len(names), *[1] * len(names)]
        axes = self.fig.subplots(ROWS, len(widths), width_ratios=widths, squeeze=False)
        self._rows = examples.Rows(axes, [self._room] * ROWS)
        for ax in axes[:, 0]:
            ax.set_title("image", fontsize="small", y=1.0)
        handles = examples.legend([kind for kind in examples.KINDS if self._has(kind)])
        self.fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        self.moves(*self._rows.moving(), *(ax.title for ax in axes[:, 0]))
        self.lay_out_anew()

    def _has(self, kind: str) -> bool:
        return kind not in (("annotated", "missing") if self.split.value == "test" else ("positive",))

    def _read_out(self, rows, runs):
        classes, threshold, body = self.list.value.classes, self.threshold.value, ""
        first = self.scores(runs[0])
        listed = lambda mask: html.escape(", ".join(np.array(classes)[mask])) or "none"  # noqa: E731
        heads = ["image", *(["annotated"] if first.observed is not None else []), "true"]
        heads += [f"{kind}, {name}" for name in names_of(runs) for kind in ("predicted", "loss", "AP")]
        measured = [(self.scores(run), self.scores(run).loss, self.scores(run).ap) for run in runs]
        for n in rows:
            cells = (
                [str(n)]
                + [listed(first.annotated[n])] * (first.observed is not None)
                + [listed(first.positive[n])]
            )
            for scores, loss, ap in measured:
                cells += [listed(scores.probs[n] > threshold), loss[n], ap[n]]
            body += "".join(
                cell(h.split(",")[0], *([c] if isinstance(c, str) else [f"{c:.4f}", f"{c:.8f}"]))
                for h, c in zip(heads, cells, strict=True)
            )
            body += "</tr><tr>"
        count = f"{len(self.rows):,} of {len(first.probs):,} {SPLITS[self.split.value]}"
        if "val_is_train" in self.list.value.config["data"]:
            count += " (which are the training images)"
        head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
        self.readout.value = (
            f"<small>{count}. A cross: on the wrong side of the dotted line.</small>"
            f"<table style='border-spacing: 1em 0; text-align: left; font-size: 90%'>"
            f"<tr>{head}</tr><tr>{body}</tr></table>"
        )

    # --- what the controls do ---

    def _changed_what(self, _):
        if self._held:
            return
        with self.told(), self.at_once():
            self._offer()
            self._arrange()

    def _arrange(self):
        """Filter and sort, by the first run; the first page is shown."""
        first = self.scores(self.list.value)
        found = first.rows(self.show.value, self.order.value, self.threshold.value, self.column)
        self.rows = found
        pages = max(1, math.ceil(len(found) / ROWS))
        self.page.value = 1
        self.page.max, self.page.description = pages, f"page, of {pages:,}"

    def _offer(self):
        """What the chosen run has: splits, classes, and the filters that make sense."""
        run = self.list.value
        splits = ["val", *(["test"] if run.summary["test_map"] is not None else [])]
        _renew(self.split, [(SPLITS[one], one) for one in splits])
        _renew(self.class_name, [("all classes", NONE), *((name, name) for name in run.classes)])
        test = self.split.value == "test"
        _renew(self.show, _words(FILTERS, test))
        _renew(self.order, _words(ORDERS, test))

    def _turn(self, by: int):
        self.page.value = min(max(self.page.value + by, self.page.min), self.page.max)


def _words(choices: dict, test: bool = False) -> list[tuple[str, str]]:
    """(words, key) of those that make sense without annotated labels (`test`) or with them."""
    return [(words, key) for key, (words, annotated) in choices.items() if not (test and annotated)]


def _renew(dropdown: widgets.Dropdown, options: list) -> None:
    """Other options; the chosen value stays where it can."""
    if list(dropdown.options) != options:
        before = dropdown.value
        dropdown.options = options
        values = [value for _, value in options]
        dropdown.value = before if before in values else values[0]


def _short(name: str, width: int = 24) -> str:
    return name if len(name) <= width else f"…{name[1 - width :]}"
