"""The run browser: what a run's scores say about its missing labels, by epoch and class, beside another run."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core import analysis, figures, methods
from spml_core.explore.choosing import RunPanel, names_of
from spml_core.explore.panel import LEGEND, colors, number, slider, table
from spml_core.runs import Labels, Run
from spml_core.studies import every_epoch, unobserved

NUM_BINS = 25  # of histograms and buckets
MIN_COUNT = 10  # buckets with fewer missing labels are faded
THRESHOLDS = np.linspace(0, 1, 101).round(2)
P = np.linspace(0, 1, 201)
KEPT = 64  # measured runs and classes that are kept in memory, about 100 kB each
# How the first run and the one it is compared with are drawn: histogram, markers of buckets and curves.
BARS = ({"fill": True, "alpha": 0.6}, {"fill": False, "alpha": 1.0, "lw": 1.2})
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
    "chance": "precision of a guess",
    "map": "val mAP (%)",
}


def measure(labels: Labels) -> pd.DataFrame:
    """Return `analysis.identification_curve`, with columns that are the same for all thresholds.

    These are the numbers of false and true negatives, and their Wasserstein distance, negative if the false negatives
    score lower, NaN if a group is empty.
    """
    false, true = int(labels.missing_positive.sum()), int(labels.missing_negative.sum())
    curve = analysis.identification_curve(labels.probs, **unobserved.truth(labels), thresholds=THRESHOLDS)
    return curve.assign(false=false, true=true, distance=unobserved.distance(labels))


class RunBrowser(RunPanel):
    """The panel of finished runs, to be shown as the last value of a cell.

    One slider of the epoch updates four pictures of the missing labels of validation images (training images for a run
    with `data={"val_is_train": True}`): the scores of false and true negatives, the share of false negatives by score
    (GR Fig. 5), their Wasserstein distance (GR Fig. 3a), and precision and recall above a threshold (Hill Fig. 7).

    Args:
        root: folder of all runs.
        runs: runs to choose from, instead of a folder; the first one is shown.
        compare: a run to compare it with.
        threshold: the initial threshold on p.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: a threshold outside [0, 1].
    """

    def __init__(
        self,
        root: str | Path = "runs",
        *,
        runs: Iterable[Run] | None = None,
        compare: Run | None = None,
        threshold: float = 0.5,
    ):
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is a probability in [0, 1], got {threshold}")
        self.measured = lru_cache(KEPT)(self._measured)
        self._background = None
        self.epoch = slider("epoch", 1, 0, 1, 1)
        self.threshold = slider("threshold on p", threshold, 0, 1, 0.01)
        fig, axes = figures.detached(2, 2, height_to_width=0.62)
        self.axes = axes.ravel()
        super().__init__(root, runs, compare, fig, [self.epoch, self.threshold])
        self.follow(self.class_name, self.epoch, self.threshold)

    def prepare(self):
        super().prepare()
        at_end = self.epoch.value == self.epoch.max
        self.epoch.max = max(len(run.history) - 1 for run in self.shown)
        if at_end:
            self.epoch.value = self.epoch.max

    def _measured(self, run: Run, _class_name: str) -> pd.DataFrame:
        """Return `measure` of the chosen class, or of all, by epoch and threshold."""
        found = every_epoch({"": [run]}, lambda labels: measure(self.of_class(run, labels)))
        return found.set_index(["epoch", "threshold"])

    # --- drawing ---

    def update(self):
        runs, threshold = self.shown, number(self.threshold)
        found = [self.measured(run, self.class_name.value).xs(threshold, level="threshold") for run in runs]
        if (background := (*runs, self.class_name.value)) != self._background:
            self._draw_background(runs, found)
            self._background = background
        scores, buckets, distance, rates = self.axes
        hues = colors([run.config["method"] for run in runs])
        rows = []
        with self.drawn_anew(*self.axes):
            scores.axvline(threshold, ls=":", lw=0.9, color="0.2")
            for ax in (distance, rates):
                ax.axvline(self.epoch.value, lw=0.6, color="0.6", zorder=0)
            looks = zip(names_of(runs), runs, found, hues, BARS, CURVES, strict=False)
            for name, run, one, color, bars, curve in looks:
                epoch = min(self.epoch.value, len(one) - 1)
                now = {"color": color, "marker": curve["marker"], "ms": 6}
                labels = self.of_class(run, run.labels("val", epoch))
                shares = analysis.histogram(unobserved.missing_scores(labels), NUM_BINS)
                unobserved.draw_histogram(scores, shares, **bars)
                truth = unobserved.truth(labels)
                bins = analysis.bucket_false_negatives(labels.probs, **truth, num_bins=NUM_BINS)
                unobserved.draw_buckets(buckets, bins, MIN_COUNT, color=color, fmt="", ls="", **curve)
                if run.config["method"] == "gr":
                    buckets.plot(P, k_hat(run, epoch), "--", color=color, lw=1)
                distance.plot(epoch, one["distance"][epoch], **now)
                for rate, line in RATES.items():
                    rates.plot(one[rate], line, color=color, **curve)
                    rates.plot(epoch, one[rate][epoch], **now)
                val_map = run.history["val_map"][epoch]
                rows.append([name, str(epoch), *_cells(one.loc[epoch]), f"{val_map:.1f}"])
        where = f"class {self.class_name.value}" if self.class_name.value else "all classes"
        note = f"Unobserved labels of {where}; labels with p > {threshold:.2f} count as found. "
        self.readout.value = table(f"{note}Buckets with few labels are faded.", COLUMNS.items(), rows)

    def _draw_background(self, runs, found):
        """Draw everything that depends on neither epoch nor threshold: axes, distances, the guess, legends."""
        scores, buckets, distance, rates = self.axes
        self.lay_out_anew()
        for ax in self.axes:
            ax.clear()
        last = max(len(one) for one in found) - 1
        distances = pd.concat(found)["distance"]
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
            distance.plot(one["distance"], "-", color=color, label=name, **curve)
            rates.axhline(one["chance"][0], ls="--", lw=0.7, color=color, alpha=0.6)
            buckets.axhline(one["chance"][0], ls=":", lw=0.8, color=color)
        self._explain(runs)

    def _explain(self, runs):
        """Draw the legends, each above its plot, where nothing moves."""
        scores, buckets, _, rates = self.axes
        for name, color in zip(unobserved.GROUPS, (figures.POSITIVE, figures.NEGATIVE), strict=True):
            scores.plot([], [], color=color, lw=5, alpha=0.6, label=name)
        for name in names_of(runs)[1:]:
            scores.plot([], [], color="0.3", lw=1, label=f"outline: {name}")
        buckets.plot([], [], ":", color="0.3", lw=1, label="all unobserved labels")
        if any(run.config["method"] == "gr" for run in runs):
            buckets.plot([], [], "--", color="0.3", lw=1, label=r"$\hat k(p)$ that GR uses")
        for name, line in RATES.items():
            rates.plot([], [], line, color="0.3", lw=1, label=name)
        rates.plot([], [], "--", color="0.3", lw=0.7, label="a guess")
        for ax in self.axes:
            ax.legend(ncols=3, **LEGEND)


def _cells(row: pd.Series) -> list:
    """Return the cells of `measure` for the table; a value measured on no label is marked as undefined."""
    false, true, found = (int(row[name]) for name in ("false", "true", "found"))
    numbers = {"distance": min(false, true), "precision": found, "recall": false, "chance": false + true}
    return [f"{false:,}", f"{true:,}", *((row[name], n) for name, n in numbers.items())]


def k_hat(run: Run, epoch: int) -> np.ndarray:
    """Return the false-negative probability that a run of GR assumes over `P` in an epoch."""
    config = run.config
    method = methods.build("gr", len(run.classes), **config["params"])
    used = method.at(methods.Step(max(epoch, 1), config["epochs"]))
    return analysis.k_hat_logistic(P, used["w"], used["b"])
