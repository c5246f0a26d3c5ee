"""Share of positives by predicted probability, among missing labels (GR Fig. 5) or among all labels (reliability)."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from spml_core.analysis.missing import missing_blocks, of_one_shape


def bucket_false_negatives(probs, observed, full, num_bins: int = 100, known=None) -> pd.DataFrame:
    """Return the share of false negatives among missing labels by predicted probability: GR Fig. 5 and Appendix E.3.

    The paper says that this ratio "reflects P(s=1|y=1,x)"; by its own definition it estimates k = P(y=1|x,s=0).
    It needs the memory of one block and of the bins, whatever N*C; a memory-mapped array is read block by block.

    Args:
        probs: (N, C) predicted probabilities in [0, 1].
        observed: (N, C) in {1, 0, -1}; only unobserved entries (0) count as missing.
        full: (N, C) truth in {1, 0}.
        num_bins: equal bins on [0, 1], the same for every set of scores.
        known: (N, C) bool, where the truth is known; the rest is left out. None = everywhere.

    Returns:
        One row per bin: low, high (its edges; the last bin includes 1), mean_prob (mean p of its missing labels),
        missing (their number: FN + TN), false_negatives (how many of those are truly positive), ratio
        (FN / (FN + TN); both NaN where empty), ratio_low, ratio_high (Wilson's 95 % interval, (0, 1) where empty).

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1] (logits passed by mistake), the truth of a missing
            label is neither 1 nor 0, or there are no bins.
    """
    bins, _ = _binned(missing_blocks(probs, observed, full, known), num_bins)
    return bins.rename(columns={"count": "missing", "positives": "false_negatives"})


class Reliability(NamedTuple):
    """A reliability curve.

    Attributes:
        bins: one row per bin: low, high (its edges), mean_prob (mean p of its labels), count (number of labels),
            positives, frequency (share of positives; NaN where empty, as is mean_prob), frequency_low, frequency_high
            (Wilson's 95 % interval, (0, 1) where empty).
        ece: expected calibration error, the mean over labels of |frequency - mean_prob| (Naeini et al., 2015); NaN
            without labels, as is brier.
        brier: mean of (p - y)^2 over all labels.
    """

    bins: pd.DataFrame
    ece: float
    brier: float


def reliability(probs, full, num_bins: int = 15, evaluated=None) -> Reliability:
    """Return the reliability curve, ECE and Brier score of all labels, or of those in a mask, in bounded memory.

    Args:
        probs: (N, C) probabilities in [0, 1].
        full: (N, C) truth in {1, 0}.
        num_bins: equal bins on [0, 1].
        evaluated: (N, C) bool, labels to count, e.g. observed == 0; None = all.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1], a label is neither 1 nor 0.
    """
    nothing = np.broadcast_to(np.int8(0), np.shape(probs))  # as if no label had been observed
    bins, brier = _binned(missing_blocks(probs, nothing, full, evaluated), num_bins)
    bins = bins.rename(columns=lambda name: name.replace("ratio", "frequency"))
    count, gaps = bins["count"], (bins["frequency"] - bins["mean_prob"]).abs()
    ece = float((gaps * count).sum() / count.sum()) if count.any() else float("nan")
    return Reliability(bins, ece, brier)


def classwise_ece(probs, full, num_bins: int = 15, evaluated=None) -> np.ndarray:
    """Return the ECE (C,) of each class, NaN without an evaluated label.

    Its mean is the class-wise ECE (Kull et al., 2019).
    """
    probs, full, evaluated = of_one_shape(evaluated, probs=probs, full=full)
    by_class = ((array[:, [c]] for array in (probs, full, evaluated)) for c in range(full.shape[1]))
    return np.array([reliability(p, y, num_bins, mask).ece for p, y, mask in by_class])


def _binned(blocks: Iterable[tuple[np.ndarray, np.ndarray]], num_bins: int) -> tuple[pd.DataFrame, float]:
    """Return the bins and the Brier score of labels given block by block as (p, whether positive).

    `np.histogram` and `scipy.stats.binned_statistic` would sort or bin all scores again for each statistic.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be >= 1, got {num_bins}")
    edges = np.linspace(0, 1, num_bins + 1)
    count, positives = np.zeros((2, num_bins), int)
    total, square = np.zeros(num_bins), 0.0
    for p, positive in blocks:
        # Search the edges instead of multiplying: int(0.29 * 100) is 28, a bin that ends at 0.29.
        index = np.minimum(np.searchsorted(edges, p, side="right") - 1, num_bins - 1)
        count += np.bincount(index, minlength=num_bins)
        positives += np.bincount(index[positive], minlength=num_bins)
        total += np.bincount(index, p, minlength=num_bins)
        square += ((p - positive) ** 2).sum()
    bins = pd.DataFrame({"low": edges[:-1], "high": edges[1:]})
    with np.errstate(invalid="ignore"):
        bins["mean_prob"] = total / count
        bins = bins.assign(count=count, positives=positives, ratio=positives / count)
        brier = float(np.divide(square, count.sum()))
    bins["ratio_low"], bins["ratio_high"] = wilson(positives, count)
    return bins, brier


def wilson(successes, trials) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's 95 % interval of a proportion (1927), elementwise; (0, 1) where there was no trial."""
    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    z2 = stats.norm.isf(0.025) ** 2
    centre = (successes + z2 / 2) / (trials + z2)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = successes * (trials - successes) / trials
    half = np.sqrt(z2 * (np.nan_to_num(spread) + z2 / 4)) / (trials + z2)
    # Exact at the ends, where rounding would leave the observed proportion outside its own interval.
    return np.where(successes == 0, 0, centre - half), np.where(successes == trials, 1, centre + half)
