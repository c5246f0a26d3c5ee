"""Whether a predicted probability of 0.7 is right 7 times in 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from spml_core.analysis.buckets import bin_counts, shared_edges, wilson
from spml_core.analysis.missing import BLOCK, check_probs, missing_blocks

BINNINGS = ("equal_width", "equal_mass")


@dataclass(frozen=True)
class Reliability:
    """A reliability curve.

    Attributes:
        bins: one row per bin: low, high (its edges), count (how many labels fall into it), mean_prob (their mean p),
            frequency (share of positives among them; both NaN where empty), frequency_low, frequency_high (its Wilson
            interval, (0, 1) where empty), sparse (too few labels to read the frequency).
        brier: mean of (p - y)^2 over all labels; NaN without any.
    """

    bins: pd.DataFrame
    brier: float

    @property
    def gaps(self) -> pd.Series:
        """|frequency - mean_prob| of each bin; NaN where empty."""
        return (self.bins["frequency"] - self.bins["mean_prob"]).abs()

    @property
    def ece(self) -> float:
        """Expected calibration error: mean of the gaps over labels (Naeini et al., 2015); NaN without any."""
        count = self.bins["count"]
        return float((self.gaps * count).sum() / count.sum()) if count.any() else float("nan")

    @property
    def mce(self) -> float:
        """Largest gap of a bin that is neither empty nor sparse; NaN if there is none."""
        return float(self.gaps[~self.bins["sparse"]].max())


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
    probs, full, *mask = (np.asarray(a) for a in (probs, full, evaluated) if a is not None)
    if any(array.shape != probs.shape for array in (full, *mask)):
        shapes = f"full {full.shape}" + "".join(f", evaluated {each.shape}" for each in mask)
        raise ValueError(f"probs {probs.shape}, {shapes}: they must have one shape")
    if binning == "equal_mass":
        edges = _equal_mass(probs, *mask, num_bins=num_bins)
    nothing = np.broadcast_to(np.int8(0), probs.shape)  # as if no label had been observed
    blocks = missing_blocks(*(a if a.ndim == 2 else a.reshape(-1, 1) for a in (probs, nothing, full, *mask)))
    count, positives, mean_prob, brier = bin_counts(blocks, edges)
    bins = pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": count, "mean_prob": mean_prob})
    bins["frequency"] = positives / bins["count"]
    bins["frequency_low"], bins["frequency_high"] = wilson(positives, count, confidence)
    return Reliability(bins.assign(sparse=count < min_count), brier)


def classwise_ece(
    probs, full, num_bins: int = 15, binning: str = "equal_width", evaluated=None
) -> np.ndarray:
    """(C,) ECE of each class; NaN without an evaluated label. Its mean is the class-wise ECE (Kull et al., 2019)."""
    probs, full = np.asarray(probs), np.asarray(full)
    mask = np.ones(full.shape, bool) if evaluated is None else np.asarray(evaluated, bool)
    by_class = zip(probs.T, full.T, mask.T, strict=True)
    return np.array([reliability(p, y, num_bins, binning, m).ece for p, y, m in by_class])


def _equal_mass(probs: np.ndarray, mask: np.ndarray | None = None, *, num_bins: int) -> np.ndarray:
    some = slice(None, None, max(probs.size // BLOCK, 1))
    sample = probs.reshape(-1)[some]
    if mask is not None:
        sample = sample[mask.reshape(-1)[some]]
    if not len(sample):
        return np.array([0.0, 1.0])
    inner = np.quantile(check_probs(sample), np.linspace(0, 1, num_bins + 1)[1:-1])
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))
