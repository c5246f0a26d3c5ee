"""Predictions: images with their annotated, true and predicted labels, a page at a time."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from spml_core import figures, metrics
from spml_core.data import Dataset
from spml_core.data.files.pictures import pictures
from spml_core.explore.choosing import RunPanel, names_of
from spml_core.explore.panel import choice, number, slider, table
from spml_core.paths import locate
from spml_core.runs.experiment import Experiment
from spml_core.runs.record import Labels, Run
from spml_core.studies import examples

FILTERS = {
    "all": "all images",
    "missing": "with a false negative (a missing positive)",
    "found": "with a false negative that the model finds",
    "not_found": "with a false negative that it does not find",
    "missed": "with a true label that it misses",
    "wrong": "with a negative that it calls positive",
}
ORDERS = {
    "row": "as in the data set",
    "missing_high": "score of a false negative, highest first",
    "missing_low": "score of a false negative, lowest first",
    "loss": "loss with all labels, highest first",
    "ap": "average precision of the image, worst first",
}
ROWS, BARS = 3, 6  # images per page, and bars per image, more if one has more true labels


class Scores(Labels):
    """A run's labels and predictions in numbers to sort and filter by.

    Labels whose truth is unknown are neither positive nor negative.
    """

    @property
    def positive(self) -> np.ndarray:
        """(N, C) bool: known to be positive."""
        return self.known & (self.full == 1)

    @cached_property
    def loss(self) -> np.ndarray:
        """(N,) binary cross-entropy with the whole truth, mean over the labels that are known."""
        each = np.logaddexp(0, np.where(self.positive, -1.0, 1.0) * self.logits)
        return (each * self.known).sum(1) / self.known.sum(1).clip(1)

    @cached_property
    def ap(self) -> np.ndarray:
        """(N,) average precision of each image's labels; NaN for an image without a positive."""
        with warnings.catch_warnings():  # constant scores are worth a warning for a class, not for an image
            warnings.simplefilter("ignore")
            return metrics.average_precision(self.logits.T, self.positive.T, self.known.T).per_class

    def rows(self, show: str, order: str, threshold: float, column: int | None = None) -> np.ndarray:
        """Return the numbers of the images that match a filter, sorted; of one class, only its labels count."""
        above, missing = self.probs > threshold, self.missing_positive
        cells = {
            "all": np.ones_like(above) if column is None else self.positive,
            "missing": missing,
            "found": missing & above,
            "not_found": missing & ~above,
            "missed": self.positive & ~above,
            "wrong": self.known & (self.full == 0) & above,
        }[show]
        labels = slice(None) if column is None else [column]
        chosen = np.flatnonzero(cells[:, labels].any(1))
        if order == "row":
            return chosen
        if order in ("loss", "ap"):
            keys = -self.loss if order == "loss" else self.ap
        else:  # an image without such a label comes last
            scores = self.probs if order == "missing_low" else -self.probs
            keys = np.where(missing, scores, np.inf)[:, labels].min(1)
        return chosen[np.argsort(keys[chosen], kind="stable")]


def _data_of(run: Run) -> tuple:
    """Return what is equal for runs of the same data."""
    options = json.dumps(run.config["data"], sort_keys=True)
    return run.config["dataset"], options, run.summary["data"]["fingerprint"]


class Predictions(RunPanel):
    """The panel of single validation images, to be shown as the last value of a cell.

    Beside each image are bars of the best epoch's probabilities: of all true labels, and of the negatives with the
    highest scores. A hatched bar is a false negative: true, but not annotated. A label whose truth is unknown has no
    bar. For training images, train a run with `data={"val_is_train": True}`.

    Args:
        root: folder of all runs.
        runs: these, instead of a folder; the first one is shown.
        compare: a second run on the same images; annotated labels are those of the first.
        dataset: of all these runs, if it is loaded already; else it is loaded as in training.
        data_root: folder of the data set, if it is not where it was in training.
        show: at first, a key of `FILTERS`: all, missing, found, not_found, missed, wrong.
        order: at first, a key of `ORDERS`: row, missing_high, missing_low, loss, ap.

    Attributes:
        rows: numbers of the images that match the filter, in order.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: an unknown filter or order, or `compare` has other images.
    """

    def __init__(
        self,
        root: str | Path = "runs",
        *,
        runs: Iterable[Run] | None = None,
        compare: Run | None = None,
        dataset: Dataset | None = None,
        data_root: str | Path | None = None,
        show: str = "all",
        order: str = "row",
    ):
        self._data_root, self._shown, self.rows = data_root, ([], [1, 1]), None
        self.scores = lru_cache(4)(lambda run: Scores(**vars(run.labels("val"))))
        self.dataset = lru_cache(1)(self._load if dataset is None else lambda _: dataset)
        self._load_pictures = lru_cache(8)(self._pictures)
        self.show = choice("show", [(words, key) for key, words in FILTERS.items()], show)
        self.order = choice("sort images by", [(words, key) for key, words in ORDERS.items()], order)
        self.threshold = slider("positive above p =", 0.5, 0, 1, 0.01)
        self.page = slider("page", 1, 1, 1, 1)
        fig, _ = figures.detached(height_to_width=0.5)
        choices = [self.show, self.order, self.threshold]
        super().__init__(root, runs, compare, fig, [*choices, self.page])
        for widget in (self.class_name, *choices):
            widget.observe(self.prepare_anew, "value")
        self.follow(self.page)

    @property
    def page_rows(self) -> np.ndarray:
        """Numbers of the images on this page."""
        return self.rows[(self.page.value - 1) * ROWS : self.page.value * ROWS]

    def alike(self, run):
        return *_data_of(run), run.config["seed"], run.config["protocol"]

    def prepare(self):
        """Offer what the chosen run has, filter and sort by it, and show the first page of what is new."""
        super().prepare()
        run = self.run.value
        wanted = (self.show.value, self.order.value, number(self.threshold), self.column(run))
        if not np.array_equal(rows := self.scores(run).rows(*wanted), self.rows):
            self.rows, self.page.value = rows, 1
        pages = max(1, math.ceil(len(rows) / ROWS))
        self.page.max, self.page.description = pages, f"page, of {pages:,}"

    def _root(self, run: Run) -> str | None:
        """Return the folder of a run's data set."""
        return run.config["root"] if self._data_root is None else str(self._data_root)

    def _load(self, _data: tuple) -> Dataset:
        """Load the data set of the run."""
        run = self.run.value
        fields = {name: run.config[name] for name in ("dataset", "data", "mode", "backbone")}
        return Experiment(**fields, root=self._root(run)).load_data(locate(self.root) / "cache")

    def _pictures(self, data: tuple, rows: tuple[int, ...]) -> list[np.ndarray]:
        """Return the images of some rows of the data that are shown."""
        config, root = self.run.value.config, self._root(self.run.value)
        options = config["data"] | ({} if root is None else {"root": root})
        return pictures(self.dataset(data), "val", rows, config["dataset"], **options)

    # --- drawing ---

    def update(self):
        runs, threshold, rows = self.shown, number(self.threshold), self.page_rows
        names, classes, data = names_of(runs), runs[0].classes, _data_of(runs[0])
        scores = [self.scores(run) for run in runs]
        probs = {name: one.probs[rows] for name, one in zip(names, scores, strict=True)}
        positive = scores[0].positive[rows]
        truth = {
            "full": positive.astype(int),
            "observed": scores[0].observed[rows],
            "known": scores[0].known[rows],
        }
        page = {"images": [str(n) for n in rows], "classes": classes, "labels": BARS}
        bars = examples.table(probs, **truth, **page, threshold=threshold)
        room = max(min(BARS, len(classes)), *positive.sum(1), 1)
        widest = max(map(len, bars["class"]), default=1)
        space = np.maximum(self._shown[1], (room, widest)).tolist()  # it never shrinks
        if (shown := (runs, space)) != self._shown:
            self._start_axes(names, space[0])
            self._shown = shown
        images = self._load_pictures(data, tuple(rows))
        examples.draw_rows(self._axes, bars, images, threshold, space[0])
        ids = [_short(self.dataset(data).parts["val"].ids[n]) for n in rows] or ["no such image"]
        for ax, name in zip(self._axes[:, 0], [*ids, *[""] * ROWS], strict=False):
            ax.set_title(name, fontsize="small", y=1.0)
        self._read_out(rows, names, scores)

    def _start_axes(self, names: list[str], room: int):
        self.fig.clear()
        self.fig.set_size_inches(self.fig.get_figwidth(), 0.6 + ROWS * max(1.0, 0.15 * room))
        widths = [0.22 * len(names), *[1] * len(names)]
        self._axes = self.fig.subplots(ROWS, len(widths), width_ratios=widths, squeeze=False)
        handles = examples.legend([kind for kind in examples.KINDS if kind != "positive"])
        self.fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        self.lay_out_anew()

    def _read_out(self, rows: np.ndarray, names: list[str], scores: list[Scores]):
        first, classes = scores[0], np.array(self.run.value.classes)
        columns = [
            ("image", rows.astype(str)),
            ("annotated", first.observed[rows] == 1),
            ("true", first.positive[rows]),
        ]
        for name, one in zip(names, scores, strict=True):
            columns.append((f"predicted, {name}", one.probs[rows] > number(self.threshold)))
            columns += [(f"loss, {name}", one.loss[rows]), (f"AP, {name}", one.ap[rows])]
        heads = [(title.split(",")[0], title) for title, _ in columns]
        listed = lambda value: ", ".join(classes[value]) or "none" if np.ndim(value) else value  # noqa: E731
        body = [[listed(values[n]) for _, values in columns] for n in range(len(rows))]
        note = f"{len(self.rows):,} of {len(first.probs):,} validation images"
        if "val_is_train" in self.run.value.config["data"]:
            note += " (which are the training images)"
        self.readout.value = table(f"{note}. A cross marks the wrong side of the dotted line.", heads, body)


def _short(name: str, width: int = 24) -> str:
    return name if len(name) <= width else f"…{name[1 - width :]}"
