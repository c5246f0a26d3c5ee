"""Batches on the device that trains, from wherever the inputs lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


def batches(inputs, indices: Iterable[Tensor], device: torch.device | str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (index, inputs[index]) on `device`, in the order of `indices`.

    Args:
        inputs: (N, ...) tensor, uint8 images or float32 features.
        indices: (B,) int64 row numbers of each batch.
    """
    for index in indices:
        yield index.to(device), inputs[index].to(device)
