"""The missing labels of a data set, with their truth, in blocks for bounded memory."""

from collections.abc import Iterator

import numpy as np

BLOCK = 2**20  # entries per block: 8 MB in float64


def of_one_shape(known=None, **arrays) -> list[np.ndarray]:
    """Return the arrays, and `known` as (N, C) booleans; None = known everywhere.

    Raises:
        ValueError: the arrays do not have one (N, C) shape; names them with their shapes.
    """
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    shape = next(iter(arrays.values())).shape
    arrays["known"] = np.broadcast_to(True, shape) if known is None else np.asarray(known, bool)
    if len(shape) != 2 or any(array.shape != shape for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{shapes} must have the same shape (N, C)")
    return list(arrays.values())


def missing_blocks(probs, observed, full, known=None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (p, whether truly positive) of the missing labels, in order, a block of rows at a time.

    Args:
        probs: (N, C) in [0, 1].
        observed: (N, C) in {1, 0, -1}; only unobserved entries (0) are missing.
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; the rest is left out. None = everywhere.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1] (logits passed by mistake), or the truth of a
            missing label is neither 1 nor 0.
    """
    probs, observed, full, known = of_one_shape(known, probs=probs, observed=observed, full=full)
    rows = max(BLOCK // max(probs.shape[1], 1), 1)
    for start in range(0, max(len(probs), 1), rows):
        part = slice(start, start + rows)
        p, missing, truth = check_probs(probs[part]), (observed[part] == 0) & known[part], full[part]
        unclear = missing & (truth != 0) & (truth != 1)
        if unclear.any():
            row, column = np.argwhere(unclear)[0]
            raise ValueError(
                f"truth of image {start + row}, class {column} is {truth[row, column]}: it must be 1 or 0, or marked "
                "as not known"
            )
        yield p[missing], truth[missing] == 1


def missing_labels(probs, observed, full, known=None):
    """Return all of `missing_blocks` at once: (p, whether truly positive), each (number of missing labels,)."""
    blocks = list(missing_blocks(probs, observed, full, known))
    return tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))


def or_undefined(value: float, n: int, spec: str = ".2f") -> str:
    """Return a number as text, or why there is none: "undefined (n=0)"."""
    return f"undefined (n={n})" if np.isnan(value) else format(value, spec)


def check_probs(probs) -> np.ndarray:
    """Return probabilities as float64.

    Raises:
        ValueError: one lies outside [0, 1].
    """
    probs = np.asarray(probs, float)
    outside = probs[~((probs >= 0) & (probs <= 1))]  # catches NaN too
    if outside.size:
        raise ValueError(f"probs must lie in [0, 1], found {outside[0]:g}: apply the sigmoid to logits first")
    return probs
