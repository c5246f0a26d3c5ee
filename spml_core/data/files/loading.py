"""Load batches onto the training device, from memory, a memory map, or image files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import torch
from torch import Tensor

from spml_core.data.files import decoding

IN_MEMORY = 2**31  # maximum bytes of inputs that are held in memory; more are read batch by batch
RESIDENT = 2**28  # maximum bytes of inputs that are copied to a GPU as a whole, for one pass over them
LARGE = 2**22  # batches of at least this many bytes are gathered by a thread while the previous one is used
# Bytes of small batches gathered at once. With fewer, the Python between them costs more than the copies. With more,
# the allocator now and then returns the memory to the system each time, which costs three times as much as the copies.
TOGETHER = 2**20


class Rows:
    """Selected rows of a tensor, in any order, without a copy: `Rows(tensor, index)[n]` is `tensor[index[n]]`.

    It has the shape, ndim, dtype and len of the tensor it stands for; slices and index tensors return `Rows` again.
    `batches` reads them.
    """

    def __init__(self, source: Tensor, index: Tensor):
        self.source, self.index = source, index
        self.shape = torch.Size((len(index), *source.shape[1:]))
        self.ndim, self.dtype = source.ndim, source.dtype

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | Tensor) -> Rows:
        return Rows(self.source, self.index[rows])

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        return self.source.index_select(dim, self.index[rows])


def batches(
    inputs: Tensor | Rows | decoding.Files,
    indices: Iterable[Tensor],
    device: torch.device | str,
    *beside: Tensor,
) -> Iterator[tuple[Tensor, ...]]:
    """Yield (index, inputs[index]) and the same rows of each tensor in `beside`, in the order of `indices`.

    Everything is on `device`. Small inputs are copied to a GPU once per pass. Large batches, and all batches decoded
    from files, are prepared one ahead by a thread and copied from pinned memory. The threads end when the loop is left
    (at once with `contextlib.closing`, else with the generator).

    Args:
        inputs: (N, ...) uint8 images or float32 features: in memory, memory-mapped, or `decoding.Files`.
        indices: (B,) int64 row numbers of each batch.
        beside: tensors of N rows that lie on `device` already, such as labels.

    Raises:
        DataError: files that cannot be decoded, by path.
    """
    device = torch.device(device)

    def gather(index: Tensor) -> tuple[Tensor, ...]:
        return index, inputs.index_select(0, index), *(tensor.index_select(0, index) for tensor in beside)

    if device.type == "cpu":
        yield from _on_cpu(inputs, gather, indices)
        return
    if isinstance(inputs, Tensor) and (inputs.device == device or inputs.nbytes <= RESIDENT):
        inputs = inputs.to(device)
        for index in indices:
            yield gather(index.to(device, non_blocking=True))
        return

    def pinned(index: Tensor) -> tuple[Tensor, Tensor]:
        x = inputs.index_select(0, index)
        return (index.pin_memory(), x.pin_memory()) if device.type == "cuda" else (index, x)

    with closing(ahead(pinned, indices)) as read:
        for index, x in read:
            index = index.to(device, non_blocking=True)
            x = x.to(device, non_blocking=True)
            yield index, x, *(tensor.index_select(0, index) for tensor in beside)


def ahead(function: Callable, items: Iterable) -> Iterator:
    """Yield what `map` does; a thread computes the next result while the current one is used."""
    with ThreadPoolExecutor(1) as thread:
        waiting = None
        for item in items:
            following = thread.submit(function, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


def _on_cpu(inputs, gather: Callable, indices: Iterable[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches on the CPU: a thread gathers large ones, and files, one ahead; small ones come a few at a time."""
    row_bytes = max(inputs.dtype.itemsize * math.prod(inputs.shape[1:]), 1)
    indices = iter(indices)
    for index in indices:
        if len(index) * row_bytes >= LARGE or isinstance(inputs, decoding.Files):
            yield from ahead(gather, itertools.chain([index], indices))
            return
        few = [index, *itertools.islice(indices, max(TOGETHER // (max(len(index), 1) * row_bytes) - 1, 0))]
        sizes = [len(index) for index in few]
        _, *whole = gather(torch.cat(few) if len(few) > 1 else index)
        yield from zip(few, *(tensor.split(sizes) for tensor in whole), strict=True)
