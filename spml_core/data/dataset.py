"""`Dataset`: images or features with their labels, in memory; and the errors of everything that reads data."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field

import numpy as np
import torch

SPLITS = ("train", "val", "test")


class DataError(ValueError):
    """Something is wrong with a user's data: names the image, row or option, and the form expected."""


class OptionError(DataError):
    """A data set, option or folder that does not exist: the call must change, not the data."""


@dataclass(frozen=True)
class Part:
    """One split of a data set.

    Attributes:
        inputs: (N, channels, H, W) uint8 images, or (N, D) float32 features; `loading.batches` reads them.
        full: (N, C) int8 in {1, 0}: the whole truth. It reaches metrics and analysis, never a loss.
        ids: N image ids, unique within the data set.
        known: (N, C) bool, where the truth is known; `full` is 0 elsewhere. None = everywhere.
        rows: (N,) row numbers in the one matrix that train and val were divided from: the published draws (protocol
            "cole2021") run through that matrix. None = the part is a matrix of its own.
        salience: (N, C) share of the image that a label covers, in [0, 1], 0 for absent labels. None = not known.
    """

    inputs: torch.Tensor
    full: np.ndarray
    ids: tuple[str, ...]
    known: np.ndarray | None = None
    rows: np.ndarray | None = None
    salience: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory: `parts` maps "train", "val" and (if there is one) "test" to a `Part`.

    Attributes:
        notes: what a run records about the data, as JSON: images dropped, policies, counts.
        fingerprint: SHA-256 over everything that determines the content, but not over its location.
    """

    name: str
    classes: tuple[str, ...]
    parts: dict[str, Part]
    fingerprint: str
    notes: dict = field(default_factory=dict)

    def with_train_as_val(self) -> Dataset:
        """Return the data set with the training images in place of the validation images.

        A run keeps the validation logits of each epoch: here they are those of the training images, with the labels
        that training observed. The training itself is the same to the last bit, but the best epoch is chosen on
        training images, so its mAP says nothing about unseen ones. Under protocol "cole2021" the draw runs through the
        training images alone, and is not the published one.
        """
        # Without `rows`, so that both are drawn separately, and hence alike.
        val = dataclasses.replace(self.parts["train"], rows=None)
        return self.with_parts({"val": val}, "val is train", {"val_is_train": True})

    def with_parts(self, parts: dict[str, Part], how: str, notes: dict) -> Dataset:
        """Return the data set with other parts; `how` they were made goes into the fingerprint."""
        fingerprint = hashlib.sha256(f"{self.fingerprint}, {how}".encode()).hexdigest()
        return dataclasses.replace(
            self, parts=self.parts | parts, fingerprint=fingerprint, notes=self.notes | notes
        )
