"""Predictions: images with their annotated, true and predicted labels, a page at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from scipy.special import log_expit

from spml_core import figures, metrics
from spml_core.data import Dataset
from spml_core.data.files.pictures import pictures
from spml_core.explore.choosing import RunPanel, names_of
from spml_core.explore.panel import choice, offer, slider, table
from spml_core.paths import locate
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
ROWS = 3  # images per page


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
    """Return the panel of single images, to be shown as the last value of a cell.

    Beside each image are bars of the best epoch's probabilities: of all true labels, and of the negatives with the
    highest scores. A hatched bar is a false negative: true, but not annotated. A label whose truth is unknown has no
    bar. A run keeps its predictions of validation and test images; for training images, train it with
    `data={"val_is_train": True}`.

    Args:
        root: folder of all runs, which "Look again" reads again.
        runs: these, instead of a folder; the first one is shown.
        compare: a second run on the same images; annotated labels are those of the first.
        dataset: of these runs, if it is loaded already; else it is loaded as in training.
        data_root: folder of the data set, if it is not where it was in training.
        split: at first; "val" or "test".
        show: at first, a key of `FILTERS`: all, missing, found, not_found, annotated_missed, missed, wrong.
        order: at first, a key of `ORDERS`: row, missing_high, missing_low, negative, loss, ap.
        labels: bars per image, more if it has more true labels.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: an unknown split, filter or order, or one that test images do not have.
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
    """A run's predictions for a split, in numbers to sort and filter by; arrays are (N, C) or (N,).

    Labels whose truth is unknown are neither positive nor negative.
    """

    def __init__(self, run: Run, split: str):
        labels = run.labels(split)
        self.logits, self.probs, self.known = labels.logits, labels.probs, labels.known
        self.positive, self.negative = ((labels.full == truth) & labels.known for truth in (1, 0))
        self.observed = labels.observed if split == "val" else None  # in a test split nothing is annotated
        self.annotated = labels.observed == 1
        self.missing = labels.missing_positive & (split == "val")

    @cached_property
    def loss(self) -> np.ndarray:
        """(N,) binary cross-entropy with the whole truth, mean over the labels that are known."""
        each = -np.where(self.positive, log_expit(self.logits), log_expit(-self.logits)).astype(float)
        return (each * self.known).sum(1) / np.maximum(self.known.sum(1), 1)

    @cached_property
    def ap(self) -> np.ndarray:
        """(N,) average precision of each image's labels; NaN for an image without a positive."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # constant scores are worth a warning for a class, not for an image
            return metrics.average_precision(self.logits.T, self.positive.T, self.known.T).per_class

    def fits(self, show: str, threshold: float, column: int | None = None) -> np.ndarray:
        """(N,) bool: which images match a filter; of one class, only its labels count."""
        above = self.probs > threshold
        cells = {
            "all": np.ones_like(above) if column is None else self.positive,
            "missing": self.missing,
            "found": self.missing & above,
            "not_found": self.missing & ~above,
            "annotated_missed": self.annotated & ~above,
            "missed": self.positive & ~above,
            "wrong": self.negative & above,
        }[show]
        return cells.any(1) if column is None else cells[:, column]

    def keys(self, order: str, column: int | None = None) -> np.ndarray:
        """(N,) what is sorted by, ascending; NaN (an image without such a label) comes last."""
        if order == "row":
            return np.arange(len(self.probs), dtype=float)
        if order == "loss":
            return -self.loss
        if order == "ap":
            return self.ap
        cells = self.negative if order == "negative" else self.missing
        if column is not None:
            cells = cells & (np.arange(cells.shape[1]) == column)
        sign = 1 if order == "missing_low" else -1
        best = np.where(cells, sign * self.probs, np.inf).min(1)
        return np.where(cells.any(1), best, np.nan)

    def rows(self, show: str, order: str, threshold: float, column: int | None = None) -> np.ndarray:
        """Return the numbers of the images that match a filter, sorted."""
        chosen = np.flatnonzero(self.fits(show, threshold, column))
        return chosen[np.argsort(self.keys(order, column)[chosen], kind="stable")]


def same_images(run: Run) -> tuple:
    """Return what is equal for runs whose images, and labels to be found, are the same."""
    return *_data_of(run), run.config["seed"], run.config["protocol"]


def _data_of(run: Run) -> tuple:
    """Return what is equal for runs of the same data."""
    options = tuple(sorted((k, str(v)) for k, v in run.config["data"].items()))
    return run.config["dataset"], options, run.summary["data"]["fingerprint"]


class Predictions(RunPanel):
    """See `predictions`.

    Attributes:
        rows: numbers of the images that match the filter, in order.
    """

    def __init__(self, root, runs, compare, dataset, data_root, split, show, order, labels):
        self._labels, self._data_root = labels, data_root
        self.scores = lru_cache(4)(Scores)
        self._load_pictures = lru_cache(8)(self._pictures)
        self._shown, self._room, self._widest = None, 0, 0
        self.split = choice("images", [(SPLITS["val"], "val")])
        self.show, self.order = choice("show", _words(FILTERS)), choice("sort images by", _words(ORDERS))
        self.threshold = slider("positive above p =", 0.5, 0, 1, 0.01)
        self.page = slider("page", 1, 1, 1, 1, whole=True)
        self.back = widgets.Button(description="Previous", layout={"width": "8em"})
        self.forward = widgets.Button(description="Next", layout={"width": "8em"})
        fig, _ = figures.detached(height_to_width=0.5)
        choices = [self.split, self.show, self.order, self.threshold]
        pages = [self.page, widgets.HBox([self.back, self.forward])]
        super().__init__(root, runs, compare, fig, [*choices, *pages], same_images)
        run = self.list.value
        self._dataset = None if dataset is None else (_data_of(run), dataset)
        if split not in dict(map(reversed, self.split.options)):
            raise ValueError(f"{run.path.name} has no {SPLITS[split]}")
        self.split.value, self.show.value, self.order.value = split, show, order
        self.prepare()
        for widget in (self.class_name, *choices):
            widget.observe(self._prepare, "value")
        self.on_click(self.back, lambda: self._turn(-1))
        self.on_click(self.forward, lambda: self._turn(1))
        self.follow(self.page)

    @property
    def page_rows(self) -> np.ndarray:
        """Numbers of the images on this page."""
        return self.rows[(self.page.value - 1) * ROWS : self.page.value * ROWS]

    def dataset(self) -> Dataset:
        """Return the data set of the run, for its pictures."""
        run = self.list.value
        if self._dataset is None or self._dataset[0] != _data_of(run):
            fields = {name: run.config[name] for name in ("dataset", "data", "mode", "backbone", "root")}
            if self._data_root is not None:
                fields["root"] = str(self._data_root)
            self._dataset = _data_of(run), Experiment(**fields).load_data(locate(self.root) / "cache")
        return self._dataset[1]

    def _pictures(self, data: tuple, split: str, rows: tuple[int, ...]) -> list[np.ndarray]:
        """Return the images of some rows of the data that are shown."""
        config = self.list.value.config
        root = self._data_root or config["root"]
        options = config["data"] | ({} if root is None else {"root": root})
        return pictures(self.dataset(), split, rows, config["dataset"], **options)

    def look_again(self):
        self.scores.cache_clear()
        super().look_again()

    # --- drawing ---

    def update(self):
        runs, split, threshold = self.shown, self.split.value, self.threshold.value
        rows, names, classes = self.page_rows, names_of(runs), runs[0].classes
        scores = [self.scores(run, split) for run in runs]
        first = scores[0]
        probs = {name: one.probs[rows] for name, one in zip(names, scores, strict=True)}
        observed = None if first.observed is None else first.observed[rows]
        page = {"images": [str(n) for n in rows], "classes": classes, "labels": self._labels}
        truth = {"full": first.positive[rows].astype(int), "observed": observed, "known": first.known[rows]}
        bars = examples.table(probs, **truth, **page, threshold=threshold)
        widest = max(map(len, bars["class"]), default=1)
        room = max(min(self._labels, len(classes)), *first.positive[rows].sum(1), 1)
        shown = (runs[0], split, *names)
        if shown != self._shown or room > self._room or widest > self._widest:
            self._shown, self._room, self._widest = shown, room, widest
            self._start_axes(names)
        images = self._load_pictures(_data_of(runs[0]), split, tuple(rows))
        examples.draw_rows(self._axes, bars, images, threshold, self._room)
        ids = [_short(self.dataset().parts[split].ids[n]) for n in rows] or ["no such image"]
        for ax, name in zip(self._axes[:, 0], [*ids, *[""] * ROWS], strict=False):
            ax.set_title(name, fontsize="small", y=1.0)
        self._read_out(rows, names, scores)

    def _start_axes(self, names: list[str]):
        self.fig.clear()
        self.fig.set_size_inches(self.fig.get_figwidth(), 0.6 + ROWS * max(1.0, 0.15 * self._room))
        widths = [0.22 * len(names), *[1] * len(names)]
        self._axes = self.fig.subplots(ROWS, len(widths), width_ratios=widths, squeeze=False)
        absent = ("annotated", "missing") if self.split.value == "test" else ("positive",)
        handles = examples.legend([kind for kind in examples.KINDS if kind not in absent])
        self.fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        self.lay_out_anew()

    def _read_out(self, rows: np.ndarray, names: list[str], scores: list[Scores]):
        first, classes, split = scores[0], np.array(self.list.value.classes), self.split.value
        columns = [("image", rows.astype(str))]
        if first.observed is not None:
            columns.append(("annotated", first.annotated[rows]))
        columns.append(("true", first.positive[rows]))
        for name, one in zip(names, scores, strict=True):
            columns.append((f"predicted, {name}", one.probs[rows] > self.threshold.value))
            columns += [(f"loss, {name}", one.loss[rows]), (f"AP, {name}", one.ap[rows])]
        heads = [(title.split(",")[0], title) for title, _ in columns]
        listed = lambda value: ", ".join(classes[value]) or "none" if np.ndim(value) else value  # noqa: E731
        body = [[listed(values[n]) for _, values in columns] for n in range(len(rows))]
        note = f"{len(self.rows):,} of {len(first.probs):,} {SPLITS[split]}"
        if "val_is_train" in self.list.value.config["data"]:
            note += " (which are the training images)"
        self.readout.value = table(f"{note}. A cross marks the wrong side of the dotted line.", heads, body)

    # --- what the controls do ---

    def prepare(self):
        """Offer what the chosen run has, filter and sort by it, and show the first page."""
        super().prepare()
        run = self.list.value
        splits = SPLITS if run.summary["test_map"] is not None else ["val"]
        offer(self.split, [(SPLITS[one], one) for one in splits])
        test = self.split.value == "test"
        offer(self.show, _words(FILTERS, test))
        offer(self.order, _words(ORDERS, test))
        scores, filtered = self.scores(run, self.split.value), (self.show.value, self.order.value)
        self.rows = scores.rows(*filtered, self.threshold.value, self.column(run))
        pages = max(1, math.ceil(len(self.rows) / ROWS))
        self.page.value = 1
        self.page.max, self.page.description = pages, f"page, of {pages:,}"

    def _turn(self, by: int):
        self.page.value = min(max(self.page.value + by, self.page.min), self.page.max)


def _words(choices: dict, test: bool = False) -> list[tuple[str, str]]:
    """Return (words, key) of the choices that make sense: on test images, those that need no annotated label."""
    return [(words, key) for key, (words, annotated) in choices.items() if not (test and annotated)]


def _short(name: str, width: int = 24) -> str:
    return name if len(name) <= width else f"…{name[1 - width :]}"
