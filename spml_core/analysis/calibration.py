"""Whether a predicted probability of 0.7 is right 7 times in 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from spml_core.analysis.buckets import bin_index, shared_edges, wilson
from spml_core.analysis.missing import BLOCK, check_probs

BINNINGS = ("equal_width", "equal_mass")


@dataclass(frozen=True)
class Reliability:
    """A reliability curve; one entry a bin.

    Attributes:
        low, high: edges of the bin.
        count: how many labels fall into it.
        mean_prob: their mean p, NaN where empty.
        frequency: share of positives among them, NaN where empty.
        frequency_low, frequency_high: its Wilson interval, (0, 1) where empty.
        brier: mean of (p - y)^2 over all labels; NaN without any.
        min_count: bins with fewer labels are `sparse`.
    """

    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    mean_prob: np.ndarray
    frequency: np.ndarray
    frequency_low: np.ndarray
    frequency_high: np.ndarray
    brier: float
    min_count: int = 0

    @property
    def sparse(self) -> np.ndarray:
        """(bins,) bool: too few labels to read the frequency."""
        return self.count < self.min_count

    @property
    def ece(self) -> float:
        """Expected calibration error: mean of |frequency - mean_prob| over labels (Naeini et al., 2015)."""
        gap = np.nan_to_num(np.abs(self.frequency - self.mean_prob))
        return float(gap @ self.count / self.count.sum()) if self.count.sum() else float("nan")

    @property
    def mce(self) -> float:
        """Largest |frequency - mean_prob| of a bin that is neither empty nor sparse; NaN if there is none."""
        gap = np.abs(self.frequency - self.mean_prob)[~self.sparse & (self.count > 0)]
        return float(gap.max()) if len(gap) else float("nan")

    def frame(self) -> pd.DataFrame:
        """The same as a table, a row a bin."""
        table = pd.DataFrame({k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)})
        return table.assign(sparse=self.sparse)


def reliability(
    probs,
    full,
    num_bins: int = 15,
    binning: str = "equal_width",
    evaluated=None,
    *,
    min_count: int = 0,
    confidence: float = 0.95,
) -> Reliability:
    """Reliability curve, ECE and Brier score of all labels, or of those of a mask, in bounded memory.

    In multi-label data nearly all p are near 0, where bins of equal width say little: `equal_mass` bins hold about the
    same number of labels each (fewer bins where scores tie; edges from every k-th of more than 2^20 scores).

    Args:
        probs: probabilities of any shape, e.g. (N, C).
        full: truth in {1, 0}, of the same shape.
        binning: "equal_width" on [0, 1], or "equal_mass".
        evaluated: bool of the same shape, labels to count, e.g. observed == 0; None = all.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1], a label is neither 1 nor 0, unknown binning.
    """
    if binning not in BINNINGS:
        raise ValueError(f"unknown binning {binning!r}: use one of {', '.join(BINNINGS)}")
    edges = shared_edges(num_bins)
    probs, full = np.asarray(probs), np.asarray(full)
    mask = None if evaluated is None else np.asarray(evaluated, bool)
    if probs.shape != full.shape or (mask is not None and mask.shape != full.shape):
        raise ValueError(
            f"probs {probs.shape}, full {full.shape}{'' if mask is None else f', evaluated {mask.shape}'}: one shape"
        )
    probs, full, mask = (None if a is None else a.reshape(-1) for a in (probs, full, mask))
    if binning == "equal_mass":
        edges = _equal_mass(probs, mask, num_bins)
    count, total, positives = np.zeros((3, len(edges) - 1))
    square = 0.0
    for start in range(0, len(probs), BLOCK):
        part = slice(start, start + BLOCK)
        p, y = probs[part], full[part]
        if mask is not None:
            p, y = p[mask[part]], y[mask[part]]
        p = check_probs(p)
        wrong = y[(y != 0) & (y != 1)]
        if wrong.size:
            raise ValueError(
                f"labels must be 1 or 0, found {wrong[0]}: leave unknown ones out by `evaluated`"
            )
        index = bin_index(p, edges)
        count += np.bincount(index, minlength=len(count))
        total += np.bincount(index, p, minlength=len(count))
        positives += np.bincount(index, y, minlength=len(count))
        square += ((p - y) ** 2).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_prob, frequency, brier = total / count, positives / count, float(np.divide(square, count.sum()))
    interval = wilson(positives, count, confidence)
    return Reliability(
        edges[:-1], edges[1:], count.astype(int), mean_prob, frequency, *interval, brier, min_count
    )


def classwise_ece(
    probs, full, num_bins: int = 15, binning: str = "equal_width", evaluated=None
) -> np.ndarray:
    """(C,) ECE of each class; NaN without an evaluated label. Its mean is the class-wise ECE (Kull et al., 2019)."""
    probs, full = np.asarray(probs), np.asarray(full)
    mask = np.ones(full.shape, bool) if evaluated is None else np.asarray(evaluated, bool)
    by_class = zip(probs.T, full.T, mask.T, strict=True)
    return np.array([reliability(p, y, num_bins, binning, m).ece for p, y, m in by_class])


def _equal_mass(probs: np.ndarray, mask: np.ndarray | None, num_bins: int) -> np.ndarray:
    step = max(len(probs) // BLOCK, 1)
    sample = probs[::step] if mask is None else probs[::step][mask[::step]]
    if not len(sample):
        return np.array([0.0, 1.0])
    inner = np.quantile(check_probs(sample), np.linspace(0, 1, num_bins + 1)[1:-1])
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))
