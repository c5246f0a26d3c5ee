"""Which labels a method may see: single positive, k positives, missing ratios, biased and wrong labels, the split.

Convention everywhere in the project: 1 = confirmed positive, 0 = unobserved, -1 = verified negative.
"""

from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256

import numpy as np

from spml_core import words

PROTOCOLS = ("cole2021", "per_image")
WEIGHTS = ("frequency", "inverse_frequency")
CHUNK = 4096  # images ranked at once, to bound the memory of a draw


def single_positive(
    full, seed: int = 1200, protocol: str = "cole2021", ids: Sequence[str] | None = None, known=None
) -> np.ndarray:
    """Draw one observed positive for each image, uniformly among its positives; all else is unobserved.

    Args and protocols as in `observe`.

    Returns:
        (N, C) int8 in {1, 0}, exactly one 1 per row.

    Raises:
        ValueError: an image without a positive label (row number and id named), or bad labels.
    """
    full, _ = _check(full, known)
    empty = np.flatnonzero(full.sum(1) == 0)
    if len(empty):
        where = [f"row {i}" + (f" ({ids[i]})" if ids is not None else "") for i in empty]
        raise ValueError(
            f"{words.some(len(empty), len(full), 'image', 'has', 'have')} no positive label: {words.listed(where)}. "
            "Drop them first, or keep them as all-unobserved rows with observe(full, num_pos=1)."
        )
    return observe(full, num_pos=1, num_neg=0, seed=seed, protocol=protocol, ids=ids, known=known)


def observe(
    full,
    num_pos: int = 1,
    num_neg: int = 0,
    seed: int = 1200,
    protocol: str = "cole2021",
    ids: Sequence[str] | None = None,
    known=None,
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
        known: (N, C) bool, where the truth is known (`full` is 0 elsewhere); an unknown label is never shown, neither
            as positive nor as negative. Default: everywhere.

    Returns:
        (N, C) int8: 1 observed positive, 0 unobserved, -1 verified negative.

    Raises:
        ValueError: labels outside {1, 0}, a count below -1, an unknown protocol, ids of the wrong number, `known` of
            another shape or False where `full` is 1.
    """
    full, known = _check(full, known)
    if min(num_pos, num_neg) < -1:
        raise ValueError(f"num_pos={num_pos}, num_neg={num_neg}: counts are >= 0, or -1 for all")
    return _draw(full, known, _counts(num_pos, full), num_neg, seed, protocol, ids)


def drop(
    full,
    ratio: float,
    seed: int = 1200,
    protocol: str = "per_image",
    ids: Sequence[str] | None = None,
    known=None,
) -> np.ndarray:
    r"""Drop positives of each image at a missing ratio r; negatives stay unobserved.

    Of n positives, n_r = floor(n (1 - r)) + 1 stay, but never more than n. So nothing is lost at r = 0 or in an image
    with one label, and r = 1 is the single-positive draw.

    The rule is that of Zhang et al., "Simple and Robust Loss Design for Multi-Label Learning with Missing Labels"
    (Hill/SPLC), section IV-A. Their COCO lists "75 %", "40 %" and "single label" are r = 0.5, 0.8 and 1. n (1 - r) is
    computed exactly from the digits of `ratio`: in floating point 5 (1 - 0.8) is below 1, and its floor is 0.

    Args:
        ratio: r in [0, 1].
        Other arguments as in `observe`. With "per_image", a larger ratio keeps a subset of what a smaller one keeps.

    Returns:
        (N, C) int8 in {1, 0}.

    Raises:
        ValueError: ratio outside [0, 1], or as `observe`.
    """
    full, known = _check(full, known)
    return _draw(full, known, num_kept(full.sum(1, dtype=int), ratio), 0, seed, protocol, ids)


def num_kept(num_positives, ratio: float) -> np.ndarray:
    """Return n_r = min(floor(n (1 - r)) + 1, n) for each of (N,) numbers of positives; see `drop`.

    Raises:
        ValueError: ratio outside [0, 1].
    """
    if not 0 <= ratio <= 1:
        raise ValueError(
            f"ratio={ratio}: the share of missing labels is between 0 and 1 (1 = single positive)"
        )
    kept = 1 - Fraction(str(ratio))
    num_positives = np.asarray(num_positives, int)
    table = np.array([min(int(n * kept) + 1, n) for n in range(num_positives.max(initial=0) + 1)])
    return table[num_positives]


def biased(
    full,
    weights,
    num_pos: int = 1,
    seed: int = 1200,
    ids: Sequence[str] | None = None,
    known=None,
    *,
    temperature: float = 1.0,
) -> np.ndarray:
    """Observe `num_pos` positives of each image, drawn with probability proportional to weight^(1 / temperature).

    For robustness studies, since annotators name what is common, salient, easy, or known to them. Positives are drawn
    one after the other without replacement, by an exponential race: class c of an image finishes at -log(1 - u) /
    weight, with u in [0, 1) from the hash of (seed, image id, class), and the first ones are shown. So the draw of an
    image depends only on (seed, image id, weights), and equal weights give the draw of
    `observe(protocol="per_image")`.

    Args:
        weights: (C,) positive numbers, one per class, up to a factor; or (N, C) numbers >= 0, one per label of each
            image, where a label of weight 0 is shown only if no other is left; or a preset of `class_weights` computed
            from `full`, which changes slightly with every missing image.
        temperature: 0 shows the labels of the largest weights (ties are drawn uniformly); larger values bring the draw
            closer to a uniform one.
        Other arguments as in `observe`.

    Returns:
        (N, C) int8 in {1, 0}.

    Raises:
        ValueError: weights of another shape or out of range, an unknown preset, a negative temperature, or as
            `observe`.
    """
    full, known = _check(full, known)
    if num_pos < -1:
        raise ValueError(f"num_pos={num_pos}: a count is >= 0, or -1 for all")
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature={temperature}: a number >= 0 (0 = always the largest weight)")
    weights = class_weights(full, weights) if isinstance(weights, str) else np.asarray(weights, float)
    if weights.shape not in (full.shape[1:], full.shape):
        raise ValueError(
            f"weights have shape {weights.shape}; expected ({full.shape[1]},), one per class, or {full.shape}, one "
            "per label of each image"
        )
    bad = ~(np.isfinite(weights) & (weights >= 0)) | ((weights.ndim == 1) & (weights == 0))
    if bad.any():
        worst = np.argwhere(bad)[0]
        rule = "> 0; give a rarely named class a small one" if weights.ndim == 1 else ">= 0"
        raise ValueError(
            f"weights[{', '.join(map(str, worst))}] = {weights[*worst]}: weights are finite and {rule}"
        )
    weights = np.broadcast_to(weights, full.shape)
    return _draw(full, known, _counts(num_pos, full), 0, seed, "per_image", ids, weights, temperature)


def annotators(full, knows, seed: int = 1200, ids: Sequence[str] | None = None) -> np.ndarray:
    """Return (N, C) weights for `biased`: 1 for the classes that the annotator of an image knows, else 0.

    Each image is given to an annotator at random; one who knows none of its labels passes it on to the next. The
    choice depends on (seed, image id) only.

    Args:
        full: (N, C) truth in {1, 0}.
        knows: (A, C) bool, the classes that each of A annotators knows.
        seed, ids: as in `observe`.
    """
    full, knows = np.asarray(full) == 1, np.asarray(knows, bool)
    able = full.astype(int) @ knows.T > 0  # (N, A)
    names = [f"{name}\0annotator" for name in (range(len(full)) if ids is None else ids)]
    chosen = _first(able, np.ones(len(full), int), seed, names)
    return (chosen.astype(int) @ knows).astype(float)


def wrong(
    observed, full, share: float, seed: int = 1200, ids: Sequence[str] | None = None, known=None
) -> np.ndarray:
    """Return `observed` with a wrong label in place of the positives of a share of the images, drawn at random.

    An image shows as many positives as before, all of them classes that are truly (and by `known`) absent; which
    images and classes depends on (seed, image id) only. An image with too few absent classes, or without an observed
    positive, stays as it is.

    Args:
        observed: (N, C) in {1, 0}.
        share: probability in [0, 1] that an image is annotated wrongly.
        full, seed, ids, known: as in `observe`.

    Raises:
        ValueError: a share outside [0, 1], or as `observe`.
    """
    full, known = _check(full, known)
    if not 0 <= share <= 1:
        raise ValueError(f"wrong={share}: the probability of a wrong label is between 0 and 1")
    observed, absent = np.array(observed, np.int8), _negative(full == 1, known)
    names = [f"{name}\0wrong" for name in (range(len(full)) if ids is None else ids)]
    shown = (observed == 1).sum(1)
    digests = [sha256(f"{seed}\0{name}".encode()).digest() for name in names]
    ranks = np.frombuffer(b"".join(digests), ">u8")[::4].astype(np.uint64)
    rows = np.flatnonzero((_uniform(ranks) < share) & (shown > 0) & (shown <= absent.sum(1)))
    observed[rows] = _first(absent[rows], shown[rows], seed, [names[n] for n in rows])
    return observed


def class_weights(full, preset: str) -> np.ndarray:
    """Return (C,) weights for `biased` from (N, C) truth: the number of images of a class, or its inverse.

    A class without images counts as one image.

    Raises:
        ValueError: unknown preset.
    """
    if preset not in WEIGHTS:
        raise ValueError(
            f"unknown weights {preset!r}: use one of {', '.join(WEIGHTS)}, or a number per class (an experiment's "
            "`observe` also takes salience, and a .csv file of scores)"
        )
    count = np.maximum(np.asarray(full).sum(0, dtype=float), 1)
    return count if preset == "frequency" else 1 / count


def split(num_examples: int, val_fraction: float = 0.2, seed: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Divide 0..num_examples-1 at random into train and validation, as published (Cole et al., CVPR 2021).

    Returns:
        (train index, validation index), each sorted; validation has round(num_examples * val_fraction) examples.

    Raises:
        ValueError: one of the two would be empty.
    """
    num_val = int(np.round(num_examples * val_fraction))
    if not 0 < num_val < num_examples:
        raise ValueError(
            f"val_fraction={val_fraction} of {num_examples} examples leaves {num_val} for validation; "
            "each side needs at least one"
        )
    order = np.random.RandomState(seed).permutation(num_examples)
    return np.sort(order[:-num_val]), np.sort(order[-num_val:])


def _check(full, known) -> tuple[np.ndarray, np.ndarray | None]:
    full = np.asarray(full)
    if full.ndim != 2:
        raise ValueError(f"full labels have shape {full.shape}; expected (images, classes)")
    # Integers are checked by their extremes: on Open Images, masks of every label would take gigabytes.
    whole = full.dtype.kind in "bui" or ((full == 0) | (full == 1)).all()
    if full.size and not (whole and full.min() >= 0 and full.max() <= 1):
        row, column = np.argwhere((full != 0) & (full != 1))[0]
        raise ValueError(
            f"full labels must be 1 (present) or 0 (absent); row {row}, class {column} holds {full[row, column]}. "
            "An unknown label is 0 here and False in `known`."
        )
    if known is None:
        return full, None
    known = np.asarray(known)
    if known.shape != full.shape or known.dtype != bool:
        raise ValueError(
            f"known is {known.dtype} of shape {known.shape}; expected bool of the labels' shape {full.shape}"
        )
    wrong = np.argwhere((full == 1) & ~known)
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(f"row {row}, class {column} is positive in full but not known: set full to 0 there")
    return full, known


def _counts(count: int, full: np.ndarray) -> np.ndarray:
    """Return (N,) equal counts; -1 (all) becomes a number that no image exceeds."""
    return np.full(len(full), full.shape[1] if count == -1 else count)


def _draw(
    full, known, num_pos, num_neg: int, seed: int, protocol: str, ids, weights=None, temperature: float = 1
) -> np.ndarray:
    """Draw `num_pos` (N,) positives and `num_neg` negatives of each image, fewer where it has fewer."""
    words.check_name("protocol", protocol, PROTOCOLS)
    if ids is not None and len(ids) != len(full):
        raise ValueError(f"{len(ids)} ids for {len(full)} rows of labels")
    positive = full == 1
    observed = np.zeros(full.shape, np.int8)
    if protocol == "per_image":
        names = range(len(full)) if ids is None else ids
        observed[_first(positive, num_pos, seed, names, weights, temperature)] = 1
        if num_neg:
            observed[_first(_negative(positive, known), _counts(num_neg, full), seed, names)] = -1
    else:
        negative, num_neg = _negative(positive, known), _counts(num_neg, full)
        stream = np.random.RandomState(seed)
        for row in range(len(full)):
            for value, candidates, count in ((1, positive, num_pos), (-1, negative, num_neg)):
                there = np.flatnonzero(candidates[row])
                if len(there):
                    # The published code's `choice(there, count, replace=False)`, without its overhead.
                    observed[row, there[stream.permutation(len(there))[: count[row]]]] = value
    return observed


def _negative(positive, known) -> np.ndarray:
    return ~positive if known is None else ~positive & known


def _first(candidates, count, seed: int, names, weights=None, temperature: float = 1) -> np.ndarray:
    """Return (N, C) bool: the `count` (N,) candidates of each row that rank first, by (N, C) weights if given.

    The rank is the SHA-256 of (seed, name, class), so it is the same on every machine and with every library version.
    Its first 8 bytes decide; two candidates share them only once in 1e11 draws of COCO's size.
    """
    there = candidates.sum(1)
    chosen = candidates & (count >= there)[:, None]  # nothing to choose, and nothing to hash
    rows = np.flatnonzero((count > 0) & (count < there))
    suffix = [str(c).encode() for c in range(candidates.shape[1])]
    for part in np.split(rows, range(CHUNK, len(rows), CHUNK)):
        row, column = np.nonzero(candidates[part])
        prefix = [f"{seed}\0{names[n]}\0".encode() for n in part]
        pairs = zip(row.tolist(), column.tolist(), strict=True)
        digests = b"".join([sha256(prefix[r] + suffix[c]).digest() for r, c in pairs])
        rank = np.frombuffer(digests, ">u8")[::4].astype(np.uint64)
        late = np.zeros(len(row))
        if weights is not None:
            late = _lateness(_uniform(rank), weights[part[row], column], temperature)
        order = np.lexsort((rank, late, row))  # by row, then by weight and chance, then by chance alone
        start = np.searchsorted(row, np.arange(len(part)))
        first = order[np.arange(len(row)) - start[row] < count[part][row]]
        chosen[part[row[first]], column[first]] = True
    return chosen


def _uniform(rank: np.ndarray) -> np.ndarray:
    """Return a number in [0, 1) for each 64-bit hash."""
    return (rank >> np.uint64(11)) * 2.0**-53


def _lateness(uniform, weights, temperature: float) -> np.ndarray:
    """Return when each label finishes the race of `biased`, as a logarithm, so that small temperatures stay finite."""
    with np.errstate(divide="ignore"):  # a weight of 0 never finishes
        if temperature == 0:
            return -weights
        return np.log(-np.log1p(-uniform)) - np.log(weights) / temperature
