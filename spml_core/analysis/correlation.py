"""Which labels occur together: what a method without class interactions cannot use (GR's third limitation)."""

import numpy as np
import pandas as pd
from scipy import stats


def label_correlation(full, known=None) -> np.ndarray:
    """Return phi, the (C, C) correlations of two labels in [-1, 1]; NaN where one of them never or always occurs.

    Args:
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; a pair counts images where both are. None = everywhere.
    """
    labels = pd.DataFrame(np.asarray(full, float))
    return (labels if known is None else labels.where(np.asarray(known, bool))).corr().to_numpy()


def correlation_strength(phi: np.ndarray) -> float:
    """Return the root mean square of phi over pairs of classes: 0 for independent labels (plus 1/sqrt(N) noise)."""
    return float(np.sqrt(np.mean(phi[_pairs(phi)] ** 2)))


def correlation_agreement(phi: np.ndarray, between) -> float:
    """Return Spearman's correlation of phi with other (C, C) strengths of pairs, over pairs of different classes.

    Args:
        between: (C, C), e.g. what a `models.Interacting` head has learned.
    """
    return float(stats.spearmanr(phi[_pairs(phi)], np.asarray(between)[_pairs(phi)]).statistic)


def _pairs(phi: np.ndarray) -> np.ndarray:
    return ~np.eye(len(phi), dtype=bool) & ~np.isnan(phi)
