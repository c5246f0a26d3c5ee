"""Share of false negatives among missing labels, by predicted probability."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from spml_core.analysis.missing import missing_blocks


@dataclass(frozen=True)
class Buckets:
    """False-negative ratio by predicted probability (GR Fig. 5); one entry a bin.

    Attributes:
        low, high: edges of the bin. All bins share one grid, on [0, 1] by default; the last includes its upper edge.
        mean_prob: mean p of the missing labels in the bin, NaN where empty.
        missing: how many unobserved labels fall into the bin (FN + TN).
        false_negatives: how many of those are truly positive.
        ratio: FN / (FN + TN), NaN where empty.
        ratio_low, ratio_high: its Wilson interval, (0, 1) where empty.
        min_count: bins with fewer missing labels are `sparse`.
    """

    low: np.ndarray
    high: np.ndarray
    mean_prob: np.ndarray
    missing: np.ndarray
    false_negatives: np.ndarray
    ratio: np.ndarray
    ratio_low: np.ndarray
    ratio_high: np.ndarray
    min_count: int = 0

    @property
    def sparse(self) -> np.ndarray:
        """(bins,) bool: too few missing labels to read the ratio; a plot shades these bins."""
        return self.missing < self.min_count

    def frame(self) -> pd.DataFrame:
        """The same as a table, a row a bin; with a column "sparse" where a minimum count was asked for."""
        table = pd.DataFrame({k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)})
        return table.assign(sparse=self.sparse) if self.min_count else table


def bucket_false_negatives(
    probs,
    observed,
    full,
    num_bins: int = 100,
    confidence: float = 0.95,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    min_count: int = 0,
    known=None,
) -> Buckets:
    """Share of false negatives among missing labels, by predicted probability: GR Fig. 5 and Appendix E.3.

    The paper says that this ratio "reflects P(s=1|y=1,x)"; by its own definition it estimates k = P(y=1|x,s=0).
    Memory is that of a block and of the bins, whatever N*C; a memory-mapped array is read block by block.

    Args:
        probs: (N, C) predicted probabilities in [0, 1].
        observed: (N, C) in {1, 0, -1}; only unobserved entries (0) count as missing.
        full: (N, C) truth in {1, 0}.
        confidence: of the Wilson interval.
        bounds: first and last edge. Fixed, so that two sets of scores share their bins; a missing label outside is an
            error, never dropped.
        min_count: bins with fewer missing labels are marked `sparse`.
        known: (N, C) bool, where the truth is known; the rest is left out. None = everywhere.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1] (logits passed by mistake) or outside `bounds`, the
            truth of a missing label is neither 1 nor 0, or `num_bins`, `bounds` or `confidence` is out of range.
    """
    edges = shared_edges(num_bins, bounds)
    missing, false_negatives, mean_prob, _ = bin_counts(missing_blocks(probs, observed, full, known), edges)
    with np.errstate(invalid="ignore"):
        ratio = false_negatives / missing
    interval = wilson(false_negatives, missing, confidence)
    return Buckets(edges[:-1], edges[1:], mean_prob, missing, false_negatives, ratio, *interval, min_count)


def bin_counts(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return of each bin how many labels it holds, how many of them are positive and their mean p; and the Brier score.

    Own code, since `np.histogram` and `scipy.stats.binned_statistic` would sort or bin all scores anew for each number.

    Args:
        blocks: (p, whether positive) of the labels, as of `missing_blocks`.
    """
    count, positives = np.zeros((2, len(edges) - 1), int)
    total, square = np.zeros(len(count)), 0.0
    for p, positive in blocks:
        index = bin_index(p, edges)
        count += np.bincount(index, minlength=len(count))
        positives += np.bincount(index[positive], minlength=len(count))
        total += np.bincount(index, p, minlength=len(count))
        square += ((p - positive) ** 2).sum()
    with np.errstate(invalid="ignore"):
        return count, positives, total / count, float(np.divide(square, count.sum()))


def wilson(successes, trials, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson score interval of a proportion (Wilson 1927), elementwise; (0, 1) where there was no trial."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), e.g. 0.95, got {confidence}")
    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    z2 = stats.norm.isf((1 - confidence) / 2) ** 2
    centre = (successes + z2 / 2) / (trials + z2)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = successes * (trials - successes) / trials
    half = np.sqrt(z2 * (np.nan_to_num(spread) + z2 / 4)) / (trials + z2)
    # Exact at the ends, where rounding would leave the observed proportion outside its own interval.
    return np.where(successes == 0, 0, centre - half), np.where(successes == trials, 1, centre + half)


def shared_edges(num_bins: int, bounds: tuple[float, float] = (0.0, 1.0)) -> np.ndarray:
    """(num_bins + 1,) equally spaced edges, the same for every set of scores.

    Raises:
        ValueError: no bins, or bounds that do not increase.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be >= 1, got {num_bins}")
    low, high = bounds
    if not (np.isfinite(bounds).all() and low < high):
        raise ValueError(f"bounds must be two finite numbers that increase, got {bounds}")
    return np.linspace(low, high, num_bins + 1)


def bin_index(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin of each value; an inner edge belongs to the bin above, the last edge to the last bin.

    Raises:
        ValueError: a value lies outside the edges; says how many.
    """
    outside = ~((values >= edges[0]) & (values <= edges[-1]))
    if outside.any():
        raise ValueError(
            f"{outside.sum()} of {len(values)} scores lie outside the range [{edges[0]:g}, {edges[-1]:g}], e.g. "
            f"{values[outside][0]:g}: widen it, since bins that leave scores out give wrong shares"
        )
    # By the edges themselves: int(0.29 * 100) is 28, a bin that ends at 0.29.
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, len(edges) - 2)
