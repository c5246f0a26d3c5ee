"""Whether a training finds the missing labels, as its runs show it (Hill Fig. 2, 7; EM Tables 4, 7; LASD Fig. 2).

What is said here of validation images is said of training images for a run with `data={"val_is_train": True}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from spml_core import analysis, figures
from spml_core.figures.claims import mean_sd
from spml_core.runs import Run

GROUPS = ("false negatives", "true negatives")


def labels(run: Run, epoch: int, column: int | None = None) -> tuple[np.ndarray, ...]:
    """probs, observed, full and known of the validation images after an epoch, each (N, C); known may be None.

    Args:
        column: the number of one class, whose arrays are (N, 1); None = all classes.
    """
    arrays = run.probs("val", epoch), run.observed("val"), run.full("val"), run.known("val")
    columns = slice(None) if column is None else slice(column, column + 1)
    return tuple(None if one is None else one[:, columns] for one in arrays)


def found(run: Run, epoch: int, threshold: float, column: int | None = None) -> analysis.Identification:
    """The unobserved labels above a threshold, on validation images; `column` as in `labels`."""
    probs, *truth = labels(run, epoch, column)
    return analysis.identification(probs > threshold, *truth)


def missing(run: Run, epoch: int, threshold: float, column: int | None = None) -> dict[str, float]:
    """precision, recall and chance of `found`, and the Wasserstein distance of false and true negatives."""
    there = found(run, epoch, threshold, column)
    rates = {name: getattr(there, name) for name in ("precision", "recall", "chance")}
    return rates | {"distance": analysis.wasserstein_missing(*labels(run, epoch, column))}


def score_histogram(run: Run, epoch: int, num_bins: int, column: int | None = None) -> pd.DataFrame:
    """`analysis.histogram` of the unobserved labels, split by the truth, with the `share` of its group in each bin."""
    groups = analysis.missing_scores(*labels(run, epoch, column))
    table = analysis.histogram(dict(zip(GROUPS, groups, strict=True)), num_bins)
    return table.assign(share=table["count"] / table["n"], method=run.config["method"], epoch=epoch)


def draw_histogram(ax, table: pd.DataFrame, **look) -> dict:
    """Two groups of `score_histogram` as steps, which are returned by name; `look` is of `ax.stairs`."""
    drawn = {}
    for name, color in zip(reversed(GROUPS), (figures.NEGATIVE, figures.POSITIVE), strict=True):
        own = table[table["group"] == name]
        edges, label = [*own["low"], own["high"].iloc[-1]], f"{name} (n = {own['n'].iloc[0]:,})"
        options = {"fill": True, "alpha": 0.6, "color": color, "label": label} | look
        drawn[name] = ax.stairs(own["share"], edges, **options)
    return drawn


def draw_buckets(ax, bins: analysis.Buckets, min_count: int = 0, **look) -> list:
    """Draw the share of false negatives by predicted probability, with its interval; sparse bins are faded.

    Args:
        min_count: bins with fewer missing labels are sparse.
        look: of `ax.errorbar`.
    """
    options = {"fmt": "o", "ms": 2.5, "lw": 0.6, "color": "0.25"} | look
    drawn = [
        ax.errorbar(*dots, alpha=alpha, **options)
        for dots, alpha in zip(_dots(bins, min_count), (1.0, 0.25), strict=True)
    ]
    ax.set(xlabel="predicted probability $p$", ylabel="FN / (FN + TN)")
    return drawn


def _dots(bins: analysis.Buckets, min_count: int) -> list[tuple]:
    """x, y, (below, above) of the bins with enough labels, and of the others that are not empty."""
    solid = bins.missing >= max(min_count, 1)
    found = []
    for chosen in (solid, (bins.missing > 0) & ~solid):
        ratio = bins.ratio[chosen]
        bars = (ratio - bins.ratio_low[chosen], bins.ratio_high[chosen] - ratio)
        found.append((bins.mean_prob[chosen], ratio, bars))
    return found


def predictive(run: Run, epoch: int, threshold: float, min_count: int = 1) -> dict[str, float]:
    """PPV, NPV (means over classes) and recall (of all labels) of a threshold, on validation images; NPV of a guess.

    PPV is NaN where fewer than `min_count` labels exceed the threshold.
    """
    full = run.full("val")
    values = analysis.predictive_values(run.probs("val", epoch), full, threshold)
    total = values.per_class.sum()
    ppv = values.ppv if total["tp"] + total["fp"] >= min_count else np.nan
    recall = total["tp"] / (total["tp"] + total["fn"])
    return {"ppv": ppv, "npv": values.npv, "recall": recall, "guess": float(1 - full.mean())}


def pseudo_labels(run: Run, kind: str, share: float = 0.1) -> tuple[analysis.PseudoLabels, float]:
    """Pseudo-labels of training images at the best epoch, judged by the truth, and the accuracy of the best possible.

    Args:
        kind: "negative": those of em_apl. "highest": the `share` of each class's unobserved labels that em_apl scored
            highest in that epoch. "positive": those of pseudo_label. "corrected": what splc takes for positive after
            its last epoch, of a run with `val_is_train`.

    Raises:
        ValueError: another kind.
    """
    observed, full = run.observed("train"), run.full("train")
    state, best = run.method_state(), full == 1
    if kind == "negative":
        assigned, best = state["pseudo_negative"].numpy() > 0, full == 0
    elif kind == "highest":
        assigned = analysis.highest(state["recorded"].numpy(), observed, share)
        best = analysis.highest(full, observed, share)
    elif kind == "positive":
        assigned = state["pseudo_positive"].numpy()
    elif kind == "corrected":
        assigned = run.probs("val", int(run.history["epoch"].max())) > run.config["params"]["tau"]
    else:
        raise ValueError(f"unknown kind {kind!r}: use negative, highest, positive or corrected")
    label = 0 if kind == "negative" else 1
    ceiling = analysis.pseudo_label_accuracy(best, observed, full, label).accuracy
    return analysis.pseudo_label_accuracy(assigned, observed, full, label), ceiling


def accuracy_table(judged: Mapping[str, Iterable[tuple[analysis.PseudoLabels, float]]]) -> pd.DataFrame:
    """A row a kind of pseudo-labels, from `pseudo_labels` of each seed; in percent, mean and deviation over the seeds.

    Seeds that gave none are left out of the accuracy.
    """
    rows = []
    for name, several in judged.items():
        labels, ceilings = zip(*several, strict=True)
        accuracy = [100 * each.accuracy for each in labels if each.given]
        row = {"pseudo-labels": name, "given": round(float(np.mean([each.given for each in labels])))}
        row["accuracy"] = mean_sd(accuracy) if accuracy else "none given"
        row["guess"] = mean_sd([100 * each.chance for each in labels])
        rows.append(row | {"ceiling": f"{100 * np.mean(ceilings):.1f}"})
    return pd.DataFrame(rows)
