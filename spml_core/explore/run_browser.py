"""The run browser: what a run's scores say about its missing labels, by epoch and class, beside another run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from spml_core import analysis, figures, methods
from spml_core.explore.choosing import RunPanel, name_of, names_of
from spml_core.explore.panel import colors, slider, table
from spml_core.runs.record import Run
from spml_core.studies import unobserved

NUM_BINS = 25  # of histograms and buckets
MIN_COUNT = 10  # buckets with fewer missing labels are faded
THRESHOLDS = np.linspace(0, 1, 101).round(2)  # row 100 p is the threshold p
P = np.linspace(0, 1, 201)
KEPT = 64  # measured runs and classes that are kept in memory, about 100 kB each
# What tells the first run from the one that it is compared with: histogram, buckets, marker of curves.
BARS = ({"fill": True, "alpha": 0.6}, {"fill": False, "alpha": 1.0, "lw": 1.2})
DOTS = ({"fmt": "o", "ms": 3}, {"fmt": "s", "ms": 3, "mfc": "white"})
CURVES = ({"marker": "o", "ms": 3}, {"marker": "s", "ms": 3, "mfc": "white"})
RATES = {"precision": "-", "recall": ":"}
COLUMNS = {
    "run": "",
    "epoch": "epoch",
    "false": "false negatives",
    "true": "true negatives",
    "distance": "signed Wasserstein distance",
    "precision": "precision",
    "recall": "recall",
    "chance": "a guess",
    "map": "val mAP (%)",
}
LEGEND = {
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "columnspacing": 0.9, "handlelength": 1.4,
    "handletextpad": 0.5, "fontsize": "small",
}  # fmt: skip


def run_browser(
    root: str | Path = "runs",
    *,
    runs: Iterable[Run] | None = None,
    compare: Run | None = None,
    epoch: int | None = None,
    threshold: float = 0.5,
    class_name: str | None = None,
) -> RunBrowser:
    """Return the panel of finished runs, to be shown as the last value of a cell.

    One slider of the epoch updates four pictures of the missing labels of validation images (training images for a run
    with `data={"val_is_train": True}`): the scores of false and true negatives, the share of false negatives by score
    (GR Fig. 5), their Wasserstein distance (GR Fig. 3a), and precision and recall above a threshold (Hill Fig. 7).

    Args:
        root: folder of all runs, which "Look again" reads again.
        runs: these, instead of a folder; the first one is shown.
        compare: drawn beside it.
        epoch: at first; None = the last one. 0 = before training.
        class_name: at first; None = all classes.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: an epoch, a threshold or a class that the run does not have.
    """
    return RunBrowser(root, runs, compare, epoch, threshold, class_name)


@dataclass(frozen=True)
class Measured:
    """A run and a class (or all) in numbers, by epoch.

    Attributes:
        histograms: of `analysis.histogram`, with the share of the group.
        buckets: of `analysis.bucket_false_negatives`.
        distance: Wasserstein, negative where the positives score lower; NaN where a group is empty.
        found: of `analysis.identification_curve`, by epoch and threshold in percent.
        counts: how many false and true negatives there are.
    """

    histograms: list[pd.DataFrame]
    buckets: list[pd.DataFrame]
    distance: np.ndarray
    found: pd.DataFrame
    counts: tuple[int, int]

    @property
    def chance(self) -> float:
        """The precision of a guess, NaN without missing labels."""
        return self.counts[0] / sum(self.counts) if any(self.counts) else np.nan

    def above(self, threshold: float) -> pd.DataFrame:
        """Return a row per epoch: found, precision and recall of the scores above a threshold."""
        return self.found.xs(round(100 * threshold), level="percent")


def measure(run: Run, column: int | None = None, progress=lambda epoch: None) -> Measured:
    """Measure every epoch of a run.

    Args:
        column: number of a class; None = all.
        progress: called with each epoch before it is measured.
    """
    histograms, buckets, distance, found = [], [], [], []
    for epoch in run.history["epoch"]:
        progress(epoch)
        labels = run.labels("val", epoch)
        labels = labels if column is None else labels.of_class(column)
        truth = {"observed": labels.observed, "full": labels.full, "known": labels.known}
        masks = labels.missing_positive, labels.missing_negative
        scores = {name: labels.probs[mask] for name, mask in zip(unobserved.GROUPS, masks, strict=True)}
        histograms.append(analysis.histogram(scores, NUM_BINS))
        buckets.append(analysis.bucket_false_negatives(labels.probs, **truth, num_bins=NUM_BINS))
        distance.append(unobserved.distance(labels))
        found.append(analysis.identification_curve(labels.probs, **truth, thresholds=THRESHOLDS))
    counts = int(labels.missing_positive.sum()), int(labels.missing_negative.sum())
    curves = pd.concat(dict(enumerate(found)), names=["epoch", "percent"])
    return Measured(histograms, buckets, np.array(distance), curves, counts)


class RunBrowser(RunPanel):
    """See `run_browser`."""

    def __init__(self, root, runs, compare, epoch, threshold, class_name):
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is a probability in [0, 1], got {threshold}")
        self.measured = lru_cache(KEPT)(self._measured)
        self._background = None
        self.epoch = slider("epoch", 1, 0, 1, 1, whole=True)
        self.threshold = slider("threshold on p", threshold, 0, 1, 0.01)
        fig, axes = figures.detached(2, 2, height_to_width=0.62)
        self.axes = axes.ravel()
        super().__init__(root, runs, compare, fig, [self.epoch, self.threshold])
        run, last = self.list.value, len(self.list.value.history) - 1
        if epoch is not None:
            if not 0 <= epoch <= last:
                raise ValueError(f"{run.path.name} has epochs 0 to {last}, not {epoch}")
            self.epoch.value = epoch
        if class_name is not None:
            if class_name not in run.classes:
                raise ValueError(f"{run.path.name} has no class {class_name!r}, but {', '.join(run.classes)}")
            self.class_name.value = class_name
        self.follow(self.class_name, self.epoch, self.threshold)

    def prepare(self):
        super().prepare()
        at_end = self.epoch.value == self.epoch.max
        self.epoch.max = max(len(run.history) - 1 for run in self.shown)
        if at_end:
            self.epoch.value = self.epoch.max

    def look_again(self):
        self.measured.cache_clear()
        self._background = None
        super().look_again()

    def _measured(self, run: Run, column: int | None) -> Measured:
        last = len(run.history) - 1

        def progress(epoch):
            self.note.value = f"reading {name_of(run)}, epoch {epoch} of {last}"

        measured = measure(run, column, progress)
        self.note.value = ""
        return measured

    # --- drawing ---

    def update(self):
        runs, threshold = self.shown, self.threshold.value
        found = [self.measured(run, self.column(run)) for run in runs]
        if (background := (*runs, self.class_name.value)) != self._background:
            self._draw_background(runs, found)
            self._background = background
        scores, buckets, distance, rates = self.axes
        names, hues = names_of(runs), colors([run.config["method"] for run in runs])
        rows = []
        with self.drawn_anew(*self.axes):
            scores.axvline(threshold, ls=":", lw=0.9, color="0.2")
            for ax in (distance, rates):
                ax.axvline(self.epoch.value, lw=0.6, color="0.6", zorder=0)
            for name, run, one, color, bars, dots, curve in zip(
                names, runs, found, hues, BARS, DOTS, CURVES, strict=False
            ):
                epoch = min(self.epoch.value, len(one.distance) - 1)
                above, now = one.above(threshold), {"color": color, "marker": curve["marker"], "ms": 6}
                unobserved.draw_histogram(scores, one.histograms[epoch], **bars)
                dots = dots | {"color": "0.25" if len(runs) == 1 else color}
                unobserved.draw_buckets(buckets, one.buckets[epoch], MIN_COUNT, **dots)
                if run.config["method"] == "gr":
                    buckets.plot(P, k_hat(run, epoch), "--", color=color, lw=1)
                distance.plot(epoch, one.distance[epoch], **now)
                for rate, line in RATES.items():
                    rates.plot(above[rate], line, color=color, **curve)
                    rates.plot(epoch, above[rate][epoch], **now)
                rows.append(self._row(name, run, one, epoch, above.loc[epoch]))
        where = f"class {self.class_name.value}" if self.class_name.value else "all classes"
        note = f"Missing labels of {where}; found are those with p > {threshold:.2f}. "
        self.readout.value = table(f"{note}Buckets with few labels are faded.", COLUMNS.items(), rows)

    @staticmethod
    def _row(name: str, run: Run, one: Measured, epoch: int, above: pd.Series) -> list:
        false, true = one.counts
        return [
            name,
            str(epoch),
            f"{false:,}",
            f"{true:,}",
            (one.distance[epoch], min(false, true)),
            (above["precision"], int(above["found"])),
            (above["recall"], false),
            (one.chance, false + true),
            f"{run.history['val_map'].iloc[epoch]:.1f}",
        ]

    def _draw_background(self, runs, found):
        """Draw what depends neither on the epoch nor on the threshold: axes, distances, chance, legends."""
        scores, buckets, distance, rates = self.axes
        self.lay_out_anew()
        for ax in self.axes:
            ax.clear()
        last = max(len(one.distance) for one in found) - 1
        distances = [value for one in found for value in one.distance]
        top, bottom = np.nanmax([0.05, *distances]), np.nanmin([0, *distances])
        # The limits come before the scale, since an empty group leaves nothing to scale by.
        scores.set(xlim=(0, 1), ylim=(2e-4, 1.5))
        scores.set(yscale="log", xlabel="predicted probability $p$", ylabel="share of the group")
        buckets.set(
            xlim=(0, 1), ylim=(-0.03, 1.03), xlabel="predicted probability $p$", ylabel="FN / (FN + TN)"
        )
        distance.set(ylim=(1.08 * bottom, 1.08 * top), ylabel="signed Wasserstein distance")
        rates.set(ylim=(-0.03, 1.03), ylabel="precision and recall")
        for ax in (distance, rates):
            ax.set(xlim=(-0.2, last + 0.2), xlabel="epoch")
            ax.locator_params(axis="x", integer=True)
        hues = colors([run.config["method"] for run in runs])
        for name, one, color, curve in zip(names_of(runs), found, hues, CURVES, strict=False):
            distance.plot(one.distance, "-", color=color, label=name, **curve)
            rates.axhline(one.chance, ls="--", lw=0.7, color=color, alpha=0.6)
            buckets.axhline(one.chance, ls=":", lw=0.8, color=color)
        self._explain(runs)

    def _explain(self, runs):
        """Draw the legends, each above its picture, where nothing moves."""

        def line(label, style="-", width=1):
            return Line2D([], [], ls=style, color="0.3", lw=width, label=label)

        looks = zip(unobserved.GROUPS, (figures.POSITIVE, figures.NEGATIVE), strict=True)
        groups = [Patch(facecolor=color, alpha=0.6, label=name) for name, color in looks]
        outline = [line(f"outline: {name}") for name in names_of(runs)[1:]]
        is_gr = any(run.config["method"] == "gr" for run in runs)
        k_hats = [line(r"$\hat k(p)$ that GR uses", "--")] * is_gr
        rates = [line(name, style) for name, style in RATES.items()]
        handles = (
            [*groups, *outline],
            [line("of all missing labels", ":"), *k_hats],
            self.axes[2].get_legend_handles_labels()[0],
            [*rates, line("a guess", "--", 0.7)],
        )
        for ax, entries in zip(self.axes, handles, strict=True):
            ax.legend(handles=entries, ncols=len(entries), **LEGEND)


def k_hat(run: Run, epoch: int) -> np.ndarray:
    """Return the false-negative probability that a run of GR assumes over `P` in an epoch."""
    config = run.config
    method = methods.build("gr", len(run.classes), **config["params"])
    used = method.at(methods.Step(max(epoch, 1), config["epochs"]))
    return analysis.k_hat_logistic(P, used["w"], used["b"])
