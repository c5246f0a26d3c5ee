"""Whether one method is better than another, or the difference is noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats


@dataclass(frozen=True)
class Ranking:
    """Average ranks of methods over blocks (rank 1 is best).

    Attributes:
        table: indexed by method, best first: mean_score, mean_rank, rank_low, rank_high (bootstrap over blocks).
        friedman_p: of the hypothesis that all methods rank alike; NaN with fewer than three methods.
        critical_difference: two mean ranks further apart than this differ at level alpha (Nemenyi).
        nemenyi_p: (methods, methods) p-values of pairs, corrected for all pairs.
        groups: sets of neighbours in the table that no pair's difference tells apart, for the bars of a
            critical-difference diagram; each with at least two methods.
        blocks: how many blocks entered.
        alpha: the level of the critical difference and, as 1 - alpha, of the intervals.
    """

    table: pd.DataFrame
    friedman_p: float
    critical_difference: float
    nemenyi_p: pd.DataFrame
    groups: tuple[tuple[str, ...], ...]
    blocks: int
    alpha: float


def rank(scores: pd.DataFrame, alpha: float = 0.05, num_bootstrap: int = 2000, seed: int = 0) -> Ranking:
    """Rank methods over data sets, missing ratios or seeds (Demšar, JMLR 2006).

    The tests take blocks for independent: seeds of one data set are not independent evidence about other data sets, so
    average over seeds first to speak of data sets, or use seeds as blocks to speak of that data set alone.

    Args:
        scores: a row a block, a column a method; higher is better.
        alpha: level of tests and intervals; 0.05 or 0.10 are usual.

    Raises:
        ValueError: fewer than two methods or blocks, or a score is missing; names it.
    """
    values = _complete(scores)
    number, k = values.shape
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be in (0, 1), e.g. 0.05, got {alpha}")
    ranks = stats.rankdata(-values, axis=1)
    draws = np.random.default_rng(seed).integers(0, number, (num_bootstrap, number))
    low, high = np.quantile(ranks[draws].mean(1), (alpha / 2, 1 - alpha / 2), axis=0)
    table = pd.DataFrame(
        {"mean_score": values.mean(0), "mean_rank": ranks.mean(0), "rank_low": low, "rank_high": high},
        index=pd.Index(scores.columns, name="method"),
    )
    mean, difference = ranks.mean(0), critical_difference(k, number, alpha)
    gaps = np.abs(mean[:, None] - mean) / np.sqrt(k * (k + 1) / (12 * number))
    p = pd.DataFrame(stats.studentized_range.sf(gaps, k, np.inf), scores.columns, scores.columns)
    friedman = stats.friedmanchisquare(*values.T).pvalue if k > 2 else np.nan
    table = table.sort_values("mean_rank", kind="stable")
    groups = _groups(table["mean_rank"], difference)
    return Ranking(table, float(friedman), difference, p, groups, number, alpha)


def critical_difference(num_methods: int, num_blocks: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (6 N)) (Demšar, 2006, Eq. 3.2.2)."""
    q = stats.studentized_range.ppf(1 - alpha, num_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(num_methods * (num_methods + 1) / (6 * num_blocks)))


def paired_difference(
    scores: pd.DataFrame, method: str, baseline: str, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Return the mean of score(method) - score(baseline) over blocks, and the ends of its bootstrap interval.

    The two differ where the interval leaves out 0. With n blocks it can hardly be trusted below n = 5; it is still
    wider than no interval.
    """
    gain = np.subtract(*_complete(scores[[method, baseline]]).T)
    options = {"confidence_level": confidence, "method": "percentile", "rng": seed}
    interval = stats.bootstrap((gain,), np.mean, **options).confidence_interval
    return float(gain.mean()), float(interval.low), float(interval.high)


def _complete(scores: pd.DataFrame) -> np.ndarray:
    values = scores.to_numpy(float)
    if min(values.shape) < 2:
        raise ValueError(
            f"ranking needs at least 2 blocks (rows) and 2 methods (columns), got {values.shape}"
        )
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"no score of {scores.columns[column]} in block {scores.index[row]!r}: ranks need every method in each"
        )
    return values


def _groups(mean_rank: pd.Series, difference: float) -> tuple[tuple[str, ...], ...]:
    groups, reached = [], 0
    for start in range(len(mean_rank)):
        end = start + int((mean_rank.iloc[start:] - mean_rank.iloc[start] <= difference).sum())
        if end - start > 1 and end > reached:  # not inside the group before
            groups.append(tuple(mean_rank.index[start:end]))
            reached = end
    return tuple(groups)
