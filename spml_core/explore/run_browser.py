"""The run browser: what a run says of its missing labels, epoch by epoch and class by class, beside another run."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from spml_core import analysis, figures, methods
from spml_core.analysis import Buckets, or_undefined
from spml_core.explore.choosing import NONE, RunList, names_of
from spml_core.explore.panel import Panel, cell, choice, slider
from spml_core.runs import record
from spml_core.runs.record import Run
from spml_core.studies import unobserved as finding

NUM_BINS = 25  # of histograms and buckets
MIN_COUNT = 10  # buckets with fewer missing labels are faded
THRESHOLDS = np.round(np.linspace(0, 1, 101), 2)
P = np.linspace(0, 1, 201)
KEPT = 64  # measured runs and classes that are kept in memory, about 100 kB each
# How the first run and the one that it is compared with are told apart, in each of the four pictures.
BARS = ({"fill": True, "alpha": 0.6}, {"fill": False, "alpha": 1.0, "lw": 1.2})
DOTS = ({"fmt": "o", "ms": 3}, {"fmt": "s", "ms": 3, "mfc": "white"})
CURVES = ({"marker": "o", "ms": 3}, {"marker": "s", "ms": 3, "mfc": "white"})
RATES = {"precision": "-", "recall": ":"}


def run_browser(
    root: str | Path = "runs",
    *,
    runs: Iterable[Run] | None = None,
    compare: Run | None = None,
    epoch: int | None = None,
    threshold: float = 0.5,
    class_name: str | None = None,
) -> RunBrowser:
    """The panel of finished runs, to be shown as the last value of a cell.

    Four pictures of a run's missing labels, on validation images (training images for a run with
    `data={"val_is_train": True}`), follow one slider of the epoch: scores of false and true negatives, the share of
    false negatives by score (GR Fig. 5), their Wasserstein distance (GR Fig. 3a), precision and recall of what lies
    above a threshold (Hill Fig. 7).

    Args:
        root: folder of all runs, which is read again by "Look again".
        runs: these, instead of a folder; the first one is shown.
        compare: drawn over it.
        epoch: at first; None = the last one. 0 = before training.
        class_name: at first; None = all classes.

    Raises:
        NothingToShow: there is no finished run.
        ValueError: an epoch, a threshold or a class that the run does not have.
    """
    return RunBrowser(root, runs, compare, epoch, threshold, class_name)


@dataclass(frozen=True)
class Measured:
    """A run and a class (or all) in numbers; an entry an epoch.

    Attributes:
        histograms: of `finding.score_histogram`. buckets: of `analysis.bucket_false_negatives`.
        distance: Wasserstein, NaN where a group is empty.
        found: of `analysis.identification_curve` at `THRESHOLDS`.
        chance: precision of a guess.
    """

    histograms: list[pd.DataFrame]
    buckets: list[Buckets]
    distance: np.ndarray
    found: list[pd.DataFrame]
    chance: float

    @property
    def groups(self) -> dict[str, int]:
        """How many labels each of `finding.GROUPS` has."""
        return self.histograms[0].groupby("group")["n"].first().to_dict()

    def rates(self, threshold: float) -> dict[str, np.ndarray]:
        """precision and recall of the scores above a threshold, an entry an epoch."""
        row = int(np.abs(THRESHOLDS - threshold).argmin())
        return {name: np.array([table[name].iloc[row] for table in self.found]) for name in RATES}


def measure(run: Run, column: int | None = None, tell=lambda epoch: None) -> Measured:
    """Measure every epoch of a run.

    Args:
        column: number of a class; None = all.
        tell: called with each epoch before it is measured.
    """
    histograms, buckets, distance, found, chance = [], [], [], [], np.nan
    for epoch in range(last_epoch(run) + 1):
        tell(epoch)
        arrays = finding.labels(run, epoch, column)
        histograms.append(finding.score_histogram(run, epoch, NUM_BINS, column))
        buckets.append(analysis.bucket_false_negatives(*arrays[:3], NUM_BINS, known=arrays[3]))
        distance.append(analysis.wasserstein_missing(*arrays))
        found.append(analysis.identification_curve(*arrays[:3], THRESHOLDS, arrays[3]))
        chance = finding.found(run, epoch, 0.5, column).chance
    return Measured(histograms, buckets, np.array(distance), found, chance)


def last_epoch(run: Run) -> int:
    return int(run.history["epoch"].max())


class RunBrowser(Panel):
    """See `run_browser`.

    Attributes:
        list: `list.value` is the run, `list.other` what it is compared with, or None.
    """

    def __init__(self, root, runs, compare, epoch, threshold, class_name):
        self.root, self._given = root, runs is not None
        known = [*runs] if self._given else record.finished(root)
        self.list = RunList(known, known[0] if self._given and known else None, compare)
        self._measured, self._drawn, self._shown = {}, [], None
        self.class_name = choice("class", [("all classes", NONE)])
        last = last_epoch(self.list.value)
        start = last if epoch is None else epoch
        if not 0 <= start <= last:
            raise ValueError(f"{self.list.value.path.name} has epochs 0 to {last}, not {epoch}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is a probability in [0, 1], got {threshold}")
        self.epoch = slider("epoch", start, 0, last, 1, whole=True)
        self.threshold = slider("threshold on p", threshold, 0, 1, 0.01)
        self.again = widgets.Button(description="Look again", tooltip="read the folder of runs again")
        self.readout, self.note = widgets.HTML(), widgets.HTML()
        fig, axes = figures.detached(2, 2, height_to_width=0.62)
        self.axes = axes.ravel()
        controls = [self.list, self.list.compare, self.class_name, self.epoch, self.threshold]
        super().__init__(fig, [*controls, *[self.again] * (not self._given)], [self.readout, self.note])
        self._offer_classes()
        if class_name is not None:
            if class_name not in self.list.value.classes:
                raise ValueError(
                    f"{self.list.value.path.name} has no class {class_name!r}, but {', '.join(self.list.value.classes)}"
                )
            self.class_name.value = class_name
        self.on_click(self.again, self._look_again)
        self.list.observe(self._changed_runs, ["value", "other"])
        self.follow(self.class_name, self.epoch, self.threshold)

    @property
    def shown(self) -> list[Run]:
        """The run, and the one it is compared with."""
        return [self.list.value, *([self.list.other] if self.list.other else [])]

    def measured(self, run: Run) -> Measured:
        """Of the chosen class."""
        name = self.class_name.value
        column = run.classes.index(name) if name else None
        key = (run.path, column)
        if key not in self._measured:
            last = last_epoch(run)
            said = f"reading {html.escape(run.path.name)}, epoch {{}} of {last}"

            def tell(epoch):
                self.note.value = said.format(epoch)

            self._measured[key] = measure(run, column, tell)
            self.note.value = ""
            while len(self._measured) > KEPT:
                del self._measured[next(iter(self._measured))]
        return self._measured[key]

    # --- drawing ---

    def update(self):
        runs, threshold = self.shown, self.threshold.value
        found = [self.measured(run) for run in runs]
        epochs = [min(self.epoch.value, len(one.distance) - 1) for one in found]
        if (key := (*(run.path for run in runs), self.class_name.value)) != self._shown:
            self._start_axes(runs, found)
            self._shown = key
        for drawn, run, one, epoch in zip(self._drawn, runs, found, epochs, strict=True):
            table = one.histograms[epoch]
            for group, steps in drawn["histogram"].items():
                steps.set_data(table.loc[table["group"] == group, "share"].to_numpy())
            finding.move_buckets(drawn["buckets"], one.buckets[epoch], MIN_COUNT)
            if "k" in drawn:
                drawn["k"].set_ydata(self._k_hat(run, epoch))
            for name, rates in one.rates(threshold).items():
                drawn[name].set_ydata(rates)
            for name, values in {"distance": one.distance, **one.rates(threshold)}.items():
                drawn[f"{name} now"].set_data([epoch], values[[epoch]])
        self._limit.set_xdata([threshold, threshold])
        for line in self._now:
            line.set_xdata([self.epoch.value, self.epoch.value])
        self._read_out(runs, found, epochs)

    def _start_axes(self, runs, found):
        """Axes with all that moves, at its place for epoch 0, and all that does not."""
        scores, buckets, distance, rates = self.axes
        for ax in self.axes:
            ax.clear()
        for legend in self.fig.legends[:]:
            legend.remove()
        scores.set(
            xlim=(0, 1), ylim=(2e-4, 1.5)
        )  # before the scale: an empty group leaves nothing to scale by
        scores.set_yscale("log")
        self._drawn = []
        looks = zip(self.colors(runs), BARS, DOTS, CURVES, strict=False)
        for name, run, one, look in zip(names_of(runs), runs, found, looks, strict=False):
            color, bars, dots, curve = look
            x = np.arange(len(one.distance))
            drawn = {"histogram": finding.draw_histogram(scores, one.histograms[0], **bars)}
            colored = {"color": "0.25" if len(runs) == 1 else color}
            drawn["buckets"] = finding.draw_buckets(buckets, one.buckets[0], MIN_COUNT, **dots, **colored)
            if run.config["method"] == "gr":
                (drawn["k"],) = buckets.plot(P, self._k_hat(run, 0), "--", color=color, lw=1)
            distance.plot(x, one.distance, "-", color=color, label=name, **curve)
            (drawn["distance now"],) = distance.plot([0], [0], color=color, marker=curve["marker"], ms=6)
            for name, line in RATES.items():
                (drawn[name],) = rates.plot(x, x * np.nan, line, color=color, **curve)
                (drawn[f"{name} now"],) = rates.plot([0], [0], color=color, marker=curve["marker"], ms=6)
            rates.axhline(one.chance, ls="--", lw=0.7, color=color, alpha=0.6)
            buckets.axhline(one.chance, ls=":", lw=0.8, color=color)
            self._drawn.append(drawn)
        self._limit = scores.axvline(0, ls=":", lw=0.9, color="0.2")
        last = max(len(one.distance) for one in found) - 1
        self._now = [ax.axvline(0, ls="-", lw=0.6, color="0.6", zorder=0) for ax in (distance, rates)]
        scores.set(xlabel="predicted probability $p$", ylabel="share of the group")
        buckets.set(xlim=(0, 1), ylim=(-0.03, 1.03))
        top = np.nanmax([0.05, *(value for one in found for value in one.distance)])
        distance.set(
            xlabel="epoch", ylabel="Wasserstein distance", xlim=(-0.2, last + 0.2), ylim=(0, 1.08 * top)
        )
        rates.set(xlabel="epoch", ylabel="precision and recall", xlim=(-0.2, last + 0.2), ylim=(-0.03, 1.03))
        for ax in (distance, rates):
            ax.locator_params(axis="x", integer=True)
        self._explain(runs)
        for drawn in self._drawn:
            self.moves(*drawn["histogram"].values())
            self.moves(*(part for line, _, bars in drawn["buckets"] for part in (line, *bars)))
            self.moves(*(drawn[k] for k in drawn if k not in ("histogram", "buckets")))
        self.moves(self._limit, *self._now)
        self.lay_out_anew()

    def _explain(self, runs):
        """The legends, each above its picture, where nothing moves."""
        gray = {"color": "0.3", "lw": 1}
        groups = [*reversed(self._drawn[0]["histogram"].items())]
        shown = [(steps, name) for name, steps in groups]
        if len(runs) == 2:
            shown.append((Line2D([], [], **gray), f"outline: {names_of(runs)[1]}"))
        known = [(Line2D([], [], ls=":", **gray), "of all missing labels")]
        if any(run.config["method"] == "gr" for run in runs):
            known.append((Line2D([], [], ls="--", **gray), r"$\hat k(p)$ that GR uses"))
        named = [*zip(*self.axes[2].get_legend_handles_labels(), strict=True)]
        lines = [(Line2D([], [], ls=line, **gray), name) for name, line in RATES.items()]
        lines.append((Line2D([], [], ls="--", color="0.3", lw=0.7), "a guess"))
        for ax, entries in zip(self.axes, (shown, known, named, lines), strict=True):
            place = {
                "loc": "lower left",
                "bbox_to_anchor": (0, 1),
                "borderaxespad": 0.2,
                "columnspacing": 0.9,
            }
            place |= {"handlelength": 1.4, "handletextpad": 0.5}
            ax.legend(*zip(*entries, strict=True), ncols=len(entries), fontsize="small", **place)

    @staticmethod
    def colors(runs: list[Run]) -> list[str]:
        """Those of the methods; grey for the second of two runs that would look alike."""
        found = [figures.style(run.config["method"])["color"] for run in runs]
        return [*dict.fromkeys(found), "0.5"][: len(found)]

    @staticmethod
    def _k_hat(run: Run, epoch: int) -> np.ndarray:
        config = run.config
        method = methods.build("gr", len(run.classes), **config["params"])
        used = method.at(methods.Step(max(epoch, 1), config["epochs"]))
        return analysis.k_hat_logistic(P, used["w"], used["b"])

    def _read_out(self, runs, found, epochs):
        false, true = finding.GROUPS
        head = (
            "",
            "epoch",
            false,
            true,
            "Wasserstein distance",
            "precision",
            "recall",
            "a guess",
            "val mAP (%)",
        )
        rows = []
        for name, run, one, epoch in zip(names_of(runs), runs, found, epochs, strict=True):
            n, rates = one.groups, one.rates(self.threshold.value)
            hits = one.found[epoch]
            above = int(hits["found"].iloc[int(np.abs(THRESHOLDS - self.threshold.value).argmin())])
            values = {
                "run": html.escape(name),
                "epoch": str(epoch),
                "false": f"{n[false]:,}",
                "true": f"{n[true]:,}",
                "distance": (one.distance[epoch], min(n.values())),
                "precision": (rates["precision"][epoch], above),
                "recall": (rates["recall"][epoch], n[false]),
                "chance": (one.chance, sum(n.values())),
                "map": f"{run.history['val_map'].iloc[epoch]:.1f}",
            }
            rows.append("".join(_cell(key, value) for key, value in values.items()))
        cells = "".join(f"<th>{text}</th>" for text in head)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        where = f"class {html.escape(self.class_name.value)}" if self.class_name.value else "all classes"
        self.readout.value = (
            f"<small>Missing labels of {where}; found are those with p &gt; {self.threshold.value:.2f}. "
            "Buckets with few labels are faded.</small>"
            f"<table style='border-spacing: 1em 0; text-align: left; font-size: 90%'><tr>{cells}</tr>{body}</table>"
        )

    # --- what the controls do ---

    def _changed_runs(self, _):
        with self.told(), self.at_once():
            self._offer_classes()
            last = max(last_epoch(run) for run in self.shown)
            at_end = self.epoch.value == self.epoch.max
            self.epoch.max = last
            if at_end:
                self.epoch.value = last

    def _offer_classes(self):
        """Classes that all shown runs have; the chosen one stays where it can."""
        common = [name for name in self.shown[0].classes if all(name in run.classes for run in self.shown)]
        options = [("all classes", NONE), *((name, name) for name in common)]
        if options != list(self.class_name.options):
            before = self.class_name.value
            self.class_name.options = options
            self.class_name.value = before if before in common else NONE

    def _look_again(self):
        with self.at_once():
            self._measured.clear()
            found, other = record.finished(self.root), self.list.other
            self.list.replace(found, None, other if other in found else None)


def _cell(kind: str, value: str | tuple[float, int]) -> str:
    """A text, or a number and of how many labels it is."""
    if isinstance(value, str):
        return cell(kind, value)
    return cell(kind, or_undefined(*value, ".4f"), or_undefined(*value, ".8f"))
