"""The missing labels of a data set: unobserved, and in truth positive or negative. In blocks, for bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 2**20  # entries a block: 8 MB in float64


def missing_blocks(
    scores, observed, full, known=None, *, probs: bool = True
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (scores, whether truly positive) of the missing labels, in order, a block of rows at a time.

    Args:
        scores: (N, C); probabilities in [0, 1] if `probs` says so, else any finite numbers.
        observed: (N, C) in {1, 0, -1}; only unobserved entries (0) are missing.
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; what is not known is left out. None = everywhere.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1] (logits passed by mistake), or the truth of a
            missing label is neither 1 nor 0.
    """
    scores, observed, full = np.asarray(scores), np.asarray(observed), np.asarray(full)
    known = None if known is None else np.asarray(known, bool)
    shapes = {scores.shape, observed.shape, full.shape, scores.shape if known is None else known.shape}
    if len(shapes) > 1 or scores.ndim != 2:
        raise ValueError(
            f"{'probs' if probs else 'scores'} {scores.shape}, observed {observed.shape}, full {full.shape}"
            f"{'' if known is None else f', known {known.shape}'} must be one (N, C) shape"
        )
    rows = max(BLOCK // max(scores.shape[1], 1), 1)
    for start in range(0, max(len(scores), 1), rows):
        part = slice(start, start + rows)
        values = (check_probs if probs else _check_finite)(scores[part])
        missing, truth = observed[part] == 0, full[part]
        if known is not None:
            missing &= known[part]
        unclear = missing & (truth != 0) & (truth != 1)
        if unclear.any():
            row, column = np.argwhere(unclear)[0]
            raise ValueError(
                f"truth of image {start + row}, class {column} is {truth[row, column]}: it must be 1 or 0, or marked "
                "as not known"
            )
        yield values[missing], truth[missing] == 1


def missing_labels(scores, observed, full, known=None, *, probs: bool = True):
    """All of `missing_blocks` at once: (scores, whether truly positive), each (number of missing labels,)."""
    blocks = list(missing_blocks(scores, observed, full, known, probs=probs))
    return tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))


def or_undefined(value: float, n: int, spec: str = ".2f") -> str:
    """A number as text, or why there is none: "undefined (n=0)"."""
    return f"undefined (n={n})" if np.isnan(value) else format(value, spec)


def check_probs(probs) -> np.ndarray:
    """As float64.

    Raises:
        ValueError: one lies outside [0, 1].
    """
    probs = np.asarray(probs, float)
    outside = probs[~((probs >= 0) & (probs <= 1))]  # catches NaN too
    if outside.size:
        raise ValueError(f"probs must lie in [0, 1], found {outside[0]:g}: apply the sigmoid to logits first")
    return probs


def _check_finite(scores) -> np.ndarray:
    scores = np.asarray(scores, float)
    wrong = scores[~np.isfinite(scores)]
    if wrong.size:
        raise ValueError(f"scores must be finite, found {wrong[0]}")
    return scores
