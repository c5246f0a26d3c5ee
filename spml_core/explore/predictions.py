"""Predictions: images with their annotated, true and predicted labels, a page at a time."""

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

from spml_core import figures
from spml_core.data.files.pictures import pictures
from spml_core.explore.choosing import RunPanel, names_of
from spml_core.explore.panel import choice, number, slider, table
from spml_core.runs import Labels, Run
from spml_core.studies import examples

# "show": words, and the labels of which an image has one; `above` are those that the model calls positive.
FILTERS = {
    "all": ("all images", lambda labels, above: np.ones_like(above)),
    "true": ("with a true label", lambda labels, above: labels.full == 1),
    "missing": ("with a false negative (a missing positive)", lambda labels, above: labels.missing_positive),
    "found": (
        "with a false negative that the model finds",
        lambda labels, above: labels.missing_positive & above,
    ),
    "not_found": (
        "with a false negative that the model does not find",
        lambda labels, above: labels.missing_positive & ~above,
    ),
    "wrong": (
        "with a negative that the model predicts as positive",
        lambda labels, above: labels.known & (labels.full == 0) & above,
    ),
}
ORDERS = {
    "row": "order of the data set",
    "missing_high": "score of a false negative, highest first",
    "missing_low": "score of a false negative, lowest first",
}
ROWS, BARS = 3, 6  # images per page, and bars per image, more if one has more true labels


def matching(labels: Labels, show: str, order: str, threshold: float) -> np.ndarray:
    """Return the numbers of the images that match a filter, sorted."""
    chosen = np.flatnonzero(FILTERS[show][1](labels, labels.probs > threshold).any(1))
    if order == "row":
        return chosen
    scores = labels.probs if order == "missing_low" else -labels.probs
    # An image without a false negative comes last.
    keys = np.where(labels.missing_positive, scores, np.inf).min(1)
    return chosen[np.argsort(keys[chosen], kind="stable")]


def _data_of(run: Run) -> tuple:
    """Return a key that is equal for runs on the same data."""
    options = json.dumps(run.config["data"], sort_keys=True)
    return run.config["dataset"], options, run.summary["data"]["fingerprint"]


class Predictions(RunPanel):
    """The panel of single validation images, to be shown as the last value of a cell.

    Beside each image are bars of the best epoch's probabilities: of all true labels, and of the negatives with the
    highest scores. A hatched bar is a false negative: true, but not annotated. A label whose truth is unknown has no
    bar. For training images, train a run with `data={"val_is_train": True}`.

    Args:
        root: folder of all runs.
        runs: runs to choose from, instead of a folder; the first one is shown.
        compare: a second run on the same images; the annotated labels shown are those of the first run.
        data_root: folder of the data set, if it has moved since training.
        show: the initial filter, a key of `FILTERS`: all, true, missing, found, not_found, wrong.
        order: the initial order, a key of `ORDERS`: row, missing_high, missing_low.

    Attributes:
        rows: numbers of the images that match the filter, in order.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: an unknown filter or order.
    """

    def __init__(
        self,
        root: str | Path = "runs",
        *,
        runs: Iterable[Run] | None = None,
        compare: Run | None = None,
        data_root: str | Path | None = None,
        show: str = "all",
        order: str = "row",
    ):
        self._data_root, self._shown, self.rows = data_root, ([], [1, 1]), None
        self.labels = lru_cache(4)(lambda run: run.labels("val"))
        self.ids = lru_cache(1)(lambda run: run.ids("val"))
        self._load_pictures = lru_cache(8)(self._pictures)
        self.show = choice("show", [(words, key) for key, (words, _) in FILTERS.items()], show)
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
        """Filter and sort the images of the chosen run; if they change, go back to the first page."""
        super().prepare()
        labels = self.of_class(self.run.value, self.labels(self.run.value))
        rows = matching(labels, self.show.value, self.order.value, number(self.threshold))
        if not np.array_equal(rows, self.rows):
            self.rows, self.page.value = rows, 1
        pages = max(1, math.ceil(len(rows) / ROWS))
        self.page.max, self.page.description = pages, f"page, of {pages:,}"

    def _pictures(self, _data: tuple, ids: tuple[str, ...]) -> list[np.ndarray]:
        """Return the images of the selected run with these ids."""
        config = self.run.value.config
        root = config["root"] if self._data_root is None else str(self._data_root)
        options = config["data"] | ({} if root is None else {"root": root})
        return pictures(ids, config["dataset"], **options)

    # --- drawing ---

    def update(self):
        runs, threshold, rows = self.shown, number(self.threshold), self.page_rows
        names, classes = names_of(runs), runs[0].classes
        first = self.labels(runs[0])
        probs = {name: self.labels(run).probs[rows] for name, run in zip(names, runs, strict=True)}
        full = first.full[rows]
        page = {"images": [str(n) for n in rows], "classes": classes, "labels": BARS}
        bars = examples.table(
            probs, full, first.observed[rows], first.known[rows], **page, threshold=threshold
        )
        room = max(min(BARS, len(classes)), *full.sum(1), 1)
        widest = max(map(len, bars["class"]), default=1)
        space = np.maximum(self._shown[1], (room, widest)).tolist()  # it never shrinks
        if (shown := (runs, space)) != self._shown:
            self._start_axes(names, space[0])
            self._shown = shown
        ids = self.ids(runs[0])
        shown_ids = tuple(ids[n] for n in rows)
        images = self._load_pictures(_data_of(runs[0]), shown_ids)
        examples.draw_rows(self._axes, bars, images, threshold, space[0])
        titles = [*map(_short, shown_ids)] or ["no matching image"]
        for ax, name in zip(self._axes[:, 0], [*titles, *[""] * ROWS], strict=False):
            ax.set_title(name, fontsize="small", y=1.0)
        self._read_out(rows, probs)

    def _start_axes(self, names: list[str], room: int):
        self.fig.clear()
        self.fig.set_size_inches(self.fig.get_figwidth(), 0.6 + ROWS * max(1.0, 0.15 * room))
        widths = [0.22 * len(names), *[1] * len(names)]
        self._axes = self.fig.subplots(ROWS, len(widths), width_ratios=widths, squeeze=False)
        handles = examples.legend([kind for kind in examples.KINDS if kind != "positive"])
        self.fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        self.lay_out_anew()

    def _read_out(self, rows: np.ndarray, probs: dict[str, np.ndarray]):
        first, classes = self.labels(self.run.value), np.array(self.run.value.classes)
        columns = {"annotated": first.observed[rows] == 1, "true": first.full[rows] == 1}
        columns |= {f"predicted, {name}": one > number(self.threshold) for name, one in probs.items()}
        heads = [("image", "image"), *((title.split(",")[0], title) for title in columns)]
        body = [
            [str(row), *(", ".join(classes[labels[n]]) or "none" for labels in columns.values())]
            for n, row in enumerate(rows)
        ]
        note = f"{len(self.rows):,} of {len(first.full):,} validation images"
        if "val_is_train" in self.run.value.config["data"]:
            note += " (which are the training images)"
        note += ". A cross marks predictions on the wrong side of the dotted line."
        self.readout.value = table(note, heads, body)


def _short(name: str, width: int = 24) -> str:
    return name if len(name) <= width else f"…{name[1 - width :]}"
