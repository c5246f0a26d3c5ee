"""Which labels occur together: what a method without class interactions cannot use (GR's third limitation)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Cooccurrence:
    """Pairs of classes, (C, C) each.

    Attributes:
        both: images with both labels; on the diagonal, with the one.
        known: images where the truth of both is known.
        conditional: P(column | row); NaN for a class without positives.
        phi: correlation of the two labels in [-1, 1]; NaN where one of them never or always occurs.
    """

    both: np.ndarray
    known: np.ndarray
    conditional: np.ndarray
    phi: np.ndarray

    @property
    def strength(self) -> float:
        """Root mean square of phi over pairs of different classes: 0 for independent labels (plus 1/sqrt(N) noise)."""
        off = self.phi[~np.eye(len(self.phi), dtype=bool)]
        off = off[~np.isnan(off)]
        return float(np.sqrt((off**2).mean())) if len(off) else float("nan")

    def agreement(self, between) -> float:
        """Spearman's rank correlation of phi with another (C, C) matrix, over pairs of different classes.

        Args:
            between: any strengths of pairs, such as what a `models.Interacting` head has learned.
        """
        between = np.asarray(between, float)
        if between.shape != self.phi.shape:
            raise ValueError(f"between must have shape {self.phi.shape}, as phi, got {between.shape}")
        used = ~np.eye(len(self.phi), dtype=bool) & ~np.isnan(self.phi)
        return float(stats.spearmanr(self.phi[used], between[used]).statistic)


def cooccurrence(full, known=None) -> Cooccurrence:
    """Co-occurrence, conditional frequency and correlation of labels.

    Args:
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; a pair counts images where both are. None = everywhere.
    """
    full = np.asarray(full)
    seen = np.ones(full.shape) if known is None else np.asarray(known, float)
    positive = (full == 1) * seen
    both, total = positive.T @ positive, seen.T @ seen
    row = positive.T @ seen  # positives of the row's class where the column's is known
    with np.errstate(invalid="ignore", divide="ignore"):
        conditional = both / row
        p, q = row / total, row.T / total
        phi = (both / total - p * q) / np.sqrt(p * (1 - p) * q * (1 - q))
    return Cooccurrence(both.astype(int), total.astype(int), conditional, phi)
