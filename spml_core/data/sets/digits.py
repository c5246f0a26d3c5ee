"""`digits`: the built-in multi-label data set. Real handwriting, no download.

The 1,797 8x8 scans that ship with scikit-learn (UCI optical recognition of handwritten digits): 1 to 3 different
digits, each in its own cell of a 2x2 grid on a 32x32 canvas, with random size, place and noise.
"""

import copy
import hashlib
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from PIL import Image
from pydantic import Field, PositiveInt
from sklearn.datasets import load_digits

from spml_core.data import DataError, Dataset, Part

SIZES = {"train": 4000, "val": 1000, "test": 2000}
COUNTS = (0.6, 0.3, 0.1)  # probabilities of 1, 2, 3 digits: 1.5 positives per image
CANVAS, CELL = 32, 16  # pixels
CELLS = (CANVAS // CELL) ** 2
SIDES = (11, 14)  # side of a digit in pixels, both ends included
NOISE = 0.1  # standard deviation, where 1 is full ink


def load(
    *,
    seed: int = 0,
    train: PositiveInt | None = None,
    val: PositiveInt | None = None,
    test: PositiveInt | None = None,
    counts: list[float] | None = None,
    paired: Annotated[float, Field(ge=0, le=1)] = 0.0,
    sides: list[PositiveInt] | None = None,
) -> Dataset:
    """Return the data set: 4,000 / 1,000 / 2,000 images of 32x32, 10 classes, about 1.5 positives per image.

    The first 1,200 of the shuffled scans make train and validation, the other 597 test, so that no scan is in both.
    `seed` draws the images; an experiment's own seed draws labels, weights and order. `train`, `val` and `test` are
    numbers of images (None = those above), for a quick run with fewer.

    Digits are drawn independently, except that an image has no digit twice. `paired` is the share of images, in [0,
    1], whose second digit (if there is one) is the partner of the first, among 0-1, 2-3, 4-5, 6-7 and 8-9. With
    `paired` = 1, the correlation of partners is 0.45.

    Args:
        counts: probabilities of 1, 2, ... digits per image, up to 4, for more positives and so more missing labels:
            [0.05, 0.15, 0.6, 0.2] gives 2.95 per image, as many as COCO. None = (0.6, 0.3, 0.1).
        sides: the smallest and the largest side of a digit in pixels, up to 16: with [7, 16], some digits are much more
            salient than others, as in photographs. None = (11, 14).

    Returns:
        Dataset with inputs (N, 1, 32, 32) uint8; `salience` is the share of the canvas that a digit covers.

    Raises:
        DataError: counts that are not probabilities of 1 to 4 digits, sides that are not two lengths in order.
    """
    asked = {"train": train, "val": val, "test": test}
    sizes = {name: size if asked[name] is None else asked[name] for name, size in SIZES.items()}
    counts = COUNTS if counts is None else counts
    if not (1 <= len(counts) <= CELLS and min(counts) >= 0 and abs(sum(counts) - 1) < 1e-6):
        raise DataError(
            f"option counts of data set 'digits' must be 1 to {CELLS} probabilities with sum 1, of 1, 2, ... digits "
            f"per image, not {counts}."
        )
    sides = SIDES if sides is None else sides
    if not (len(sides) == 2 and sides[0] <= sides[1] <= CELL):
        raise DataError(
            f"option sides of data set 'digits' must be the smallest and the largest side of a digit, at most {CELL} "
            f"pixels, not {sides}."
        )
    made = _make(seed, tuple(sizes.items()), tuple(counts), paired, tuple(sides))
    return copy.deepcopy(made)  # one caller's changes do not reach the next


@lru_cache(8)  # a notebook asks for the same images for each of its runs
def _make(seed: int, sizes: tuple[tuple[str, int], ...], counts, paired: float, sides) -> Dataset:
    rng = np.random.default_rng(seed)
    scans, digit = load_digits(return_X_y=True)
    scans = scans.reshape(-1, 8, 8).astype(np.float32) / 16  # ink in [0, 1]
    order = rng.permutation(len(scans))
    pools = {"train": order[:1200], "val": order[:1200], "test": order[1200:]}
    drawn = {"counts": counts, "paired": paired, "sides": sides}
    parts = {name: _draw(rng, scans, digit, pools[name], name, size, **drawn) for name, size in sizes}
    content = hashlib.sha256()
    for part in parts.values():
        content.update(part.inputs.numpy().tobytes() + part.full.tobytes())
    return Dataset("digits", tuple("0123456789"), parts, content.hexdigest(), {"data_seed": seed})


def _draw(rng, scans, digit, pool, name: str, size: int, *, counts, paired: float, sides=SIDES) -> Part:
    (choice,) = rng.spawn(1)  # a separate stream, so that everything else stays as without it
    most = len(counts)
    count = rng.choice(np.arange(1, most + 1), size, p=counts)
    classes = rng.random((size, 10)).argsort(1)
    rows = np.flatnonzero(choice.random(size) < paired)
    partner = (classes[rows] == classes[rows, :1] ^ 1).argmax(1)
    classes[rows, 1], classes[rows, partner] = classes[rows, partner], classes[rows, 1]
    classes = classes[:, :most]  # different digits: the first `count` appear
    cells = rng.random((size, CELLS)).argsort(1)[:, :most]
    lengths = rng.integers(sides[0], sides[1] + 1, (size, most))
    which, offset = rng.random((size, most)), rng.random((size, most, 2))
    by_class = [pool[digit[pool] == c] for c in range(10)]

    canvas = np.zeros((size, CANVAS, CANVAS), np.float32)
    full, salience = np.zeros((size, 10), np.int8), np.zeros((size, 10), np.float32)
    for n, k in zip(*np.nonzero(np.arange(most) < count[:, None]), strict=True):
        c, side = classes[n, k], lengths[n, k]
        full[n, c], salience[n, c] = 1, (side / CANVAS) ** 2
        scan = Image.fromarray(scans[by_class[c][int(which[n, k] * len(by_class[c]))]])
        top, left = CELL * np.array(divmod(cells[n, k], 2)) + (offset[n, k] * (CELL - side + 1)).astype(int)
        canvas[n, top : top + side, left : left + side] = scan.resize((side, side), Image.Resampling.BILINEAR)
    canvas += NOISE * rng.standard_normal(canvas.shape, dtype=np.float32)
    pixels = np.rint(canvas.clip(0, 1) * 255).astype(np.uint8)
    ids = tuple(f"{name}-{n:04d}" for n in range(size))
    return Part(torch.from_numpy(pixels[:, None]), full, ids, salience=salience)
