"""Whether one method is better than another, or the difference is noise."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats


class Ranking(NamedTuple):
    """Average ranks of methods over blocks (rank 1 is best).

    Attributes:
        table: indexed by method, best first: mean_score, mean_rank, rank_low, rank_high (bootstrap over blocks).
        friedman_p: of the hypothesis that all methods rank alike; NaN with fewer than three methods.
        critical_difference: two mean ranks further apart than this differ at level alpha (Nemenyi).
        blocks: number of blocks.
    """

    table: pd.DataFrame
    friedman_p: float
    critical_difference: float
    blocks: int


def rank(scores: pd.DataFrame, alpha: float = 0.05) -> Ranking:
    """Rank methods over data sets, missing ratios or seeds (Demšar, JMLR 2006).

    The tests assume independent blocks. Seeds of one data set are not independent evidence about other data sets: for
    statements about data sets, average over seeds first; use seeds as blocks for statements about one data set.

    Args:
        scores: one row per block, one column per method; higher is better.
        alpha: level of tests and intervals; 0.05 or 0.10 are usual.

    Raises:
        ValueError: fewer than two methods or blocks, or a score is missing.
    """
    values = scores.to_numpy(float)
    number, k = values.shape
    if min(number, k) < 2 or not np.isfinite(values).all():
        raise ValueError(
            "ranks need a score for every method (columns, at least 2 methods) in every block (rows, at least 2), got "
            f"{np.isfinite(values).sum()} scores of shape {values.shape}"
        )
    ranks = stats.rankdata(-values, axis=1)
    draws = np.random.default_rng(0).integers(0, number, (2000, number))
    low, high = np.quantile(ranks[draws].mean(1), (alpha / 2, 1 - alpha / 2), axis=0)
    table = pd.DataFrame(
        {"mean_score": values.mean(0), "mean_rank": ranks.mean(0), "rank_low": low, "rank_high": high},
        index=pd.Index(scores.columns, name="method"),
    ).sort_values("mean_rank", kind="stable")
    friedman = stats.friedmanchisquare(*values.T).pvalue if k > 2 else np.nan
    return Ranking(table, float(friedman), critical_difference(k, number, alpha), number)


def critical_difference(num_methods: int, num_blocks: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (6 N)) (Demšar, 2006, Eq. 3.2.2)."""
    q = stats.studentized_range.ppf(1 - alpha, num_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(num_methods * (num_methods + 1) / (6 * num_blocks)))
