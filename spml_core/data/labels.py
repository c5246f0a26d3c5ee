"""Which labels a method may see: the single-positive draw, k positives, verified negatives, and the split.

Convention everywhere in the project: 1 = confirmed positive, 0 = unobserved, -1 = verified negative.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

PROTOCOLS = ("cole2021", "per_image")


def single_positive(
    full, seed: int = 1200, protocol: str = "cole2021", ids: Sequence[str] | None = None
) -> np.ndarray:
    """Draw one observed positive for each image, uniformly among its positives; all else is unobserved.

    Args and protocols as in `observe`.

    Returns:
        (N, C) int8 in {1, 0}, exactly one 1 a row.

    Raises:
        ValueError: an image without a positive label (row number and id named), or bad labels.
    """
    full = _check_full(full)
    empty = np.flatnonzero(full.sum(1) == 0)
    if len(empty):
        where = ", ".join(f"row {i}" + (f" ({ids[i]})" if ids is not None else "") for i in empty[:5])
        raise ValueError(
            f"{len(empty)} of {len(full)} images have no positive label: {where}{', ...' if len(empty) > 5 else ''}. "
            "Drop them first, or keep them as all-unobserved rows with observe(full, num_pos=1)."
        )
    return observe(full, num_pos=1, num_neg=0, seed=seed, protocol=protocol, ids=ids)


def observe(
    full,
    num_pos: int = 1,
    num_neg: int = 0,
    seed: int = 1200,
    protocol: str = "cole2021",
    ids: Sequence[str] | None = None,
) -> np.ndarray:
    """Keep `num_pos` positives and `num_neg` negatives of each image; hide the rest.

    Args:
        full: (N, C) truth in {1, 0}.
        num_pos, num_neg: how many of each to observe, -1 = all. An image with fewer shows those it has.
        seed: of the draw. The published draws use 1200.
        protocol: "cole2021" reproduces the published draws of Cole et al. (CVPR 2021) bit for bit: one random
            stream through the rows in order, so a missing row changes all later ones. "per_image": the draw of an
            image depends on (seed, image id) only, so that a missing or reordered image changes no other.
        ids: N image ids, for "per_image". Default: the row numbers.

    Returns:
        (N, C) int8: 1 observed positive, 0 unobserved, -1 verified negative.

    Raises:
        ValueError: labels outside {1, 0}, a count below -1, an unknown protocol, ids of the wrong number.
    """
    full = _check_full(full)
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol!r}: use one of {', '.join(PROTOCOLS)}")
    if min(num_pos, num_neg) < -1:
        raise ValueError(f"num_pos={num_pos}, num_neg={num_neg}: counts are >= 0, or -1 for all")
    if ids is not None and len(ids) != len(full):
        raise ValueError(f"{len(ids)} ids for {len(full)} rows of labels")

    stream = np.random.RandomState(seed)
    observed = np.zeros(full.shape, np.int8)
    for row, truth in enumerate(full):
        for value, count in ((1, num_pos), (-1, num_neg)):
            candidates = np.flatnonzero(truth == (value == 1))
            count = len(candidates) if count == -1 else min(count, len(candidates))
            if protocol == "cole2021":
                chosen = stream.choice(candidates, count, replace=False) if len(candidates) else candidates
            elif count == len(candidates):
                chosen = candidates
            else:
                name = row if ids is None else ids[row]
                chosen = sorted(candidates, key=lambda c: _rank(seed, name, c))[:count]
            observed[row, chosen] = value
    return observed


def split(num_examples: int, val_fraction: float = 0.2, seed: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Divide 0..num_examples-1 at random into train and validation, as published (Cole et al., CVPR 2021).

    Returns:
        (train index, validation index), each sorted; validation has round(num_examples * val_fraction).

    Raises:
        ValueError: a side would be empty.
    """
    num_val = int(np.round(num_examples * val_fraction))
    if not 0 < num_val < num_examples:
        raise ValueError(
            f"val_fraction={val_fraction} of {num_examples} examples leaves {num_val} for validation; "
            "each side needs at least one"
        )
    order = np.random.RandomState(seed).permutation(num_examples)
    return np.sort(order[:-num_val]), np.sort(order[-num_val:])


def _check_full(full) -> np.ndarray:
    full = np.asarray(full)
    if full.ndim != 2:
        raise ValueError(f"full labels have shape {full.shape}; expected (images, classes)")
    wrong = np.argwhere((full != 0) & (full != 1))  # catches NaN too
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"full labels must be 1 (present) or 0 (absent); row {row}, class {column} holds {full[row, column]}. "
            "Unknown labels cannot be drawn from."
        )
    return full


def _rank(seed: int, image_id, label: int) -> bytes:
    """A pseudo-random rank that depends on nothing but its arguments, on every machine and library version."""
    return hashlib.sha256(f"{seed}\0{image_id}\0{label}".encode()).digest()
