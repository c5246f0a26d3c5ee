"""Folds of a data set, for out-of-fold predictions of its training images: `load(..., fold=[0, 5])`."""

import numpy as np
import torch

from spml_core.data.dataset import Dataset, OptionError, Part
from spml_core.data.files import loading

SEED = 1200  # of the division into folds


def held_out(num_examples: int, fold: int, folds: int) -> np.ndarray:
    """Return the sorted rows of fold `fold` (from 0): every row is in exactly one of `folds`, whose sizes differ by at
    most 1.

    Raises:
        OptionError: no such fold, fewer than two folds, or more folds than rows.
    """
    if not 0 <= fold < folds or not 2 <= folds <= num_examples:
        raise OptionError(
            f"fold {fold} of {folds} with {num_examples:,} training images: expected [fold, folds] with 2 or more "
            "folds, not more than images, and fold from 0 to folds - 1"
        )
    order = np.random.RandomState(SEED).permutation(num_examples)  # same in every numpy
    return np.sort(order[fold::folds])


def hold_out(dataset: Dataset, fold: int, folds: int) -> Dataset:
    """Return the data set without the training images of one fold, which take the place of the test images.

    A run on it keeps the logits of the held-out images as those of its test split.

    Raises:
        OptionError: as `held_out`.
    """
    part = dataset.parts["train"]
    test = held_out(len(part), fold, folds)
    train = np.setdiff1d(np.arange(len(part)), test)
    parts = {"train": _take(part, train), "test": _take(part, test)}
    return dataset.with_parts(parts, f"fold {fold} of {folds}", {"fold": [fold, folds]})


def _take(part: Part, rows: np.ndarray) -> Part:
    inputs, index = part.inputs, torch.from_numpy(rows)
    if not isinstance(inputs, torch.Tensor):
        inputs = inputs[index]
    elif inputs.nbytes <= loading.IN_MEMORY:
        inputs = inputs.index_select(0, index)
    else:
        inputs = loading.Rows(inputs, index)
    known, whole = (None if array is None else array[rows] for array in (part.known, part.rows))
    return Part(inputs, part.full[rows], tuple(part.ids[n] for n in rows), known, whole)
