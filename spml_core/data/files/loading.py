"""Batches on the device that trains, from wherever the inputs lie: memory, a memory map, or image files."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.pool import ThreadPool

import torch
from torch import Tensor

from spml_core.data.dataset import DataError
from spml_core.data.files import decoding

RESIDENT = 2**28  # bytes of inputs that go to a GPU as a whole, for one pass over them
LARGE = 2**22  # bytes of a batch from which on it is gathered by a thread, while the last one is used
# Bytes of small batches gathered at once. Fewer, and the Python between them costs more than the copies; more, and the
# allocator gives the memory back to the system each time now and then, which costs three times as much as the copies.
TOGETHER = 2**20
SHARED_MEMORY = "/dev/shm"
AHEAD = 2  # batches that each worker process has ready


class Rows:
    """Some rows of a tensor, in an order, without a copy: `Rows(tensor, index)[n]` is `tensor[index[n]]`.

    Has shape, ndim, dtype and len of the tensor it stands for; slices and index tensors give `Rows` again. `batches`
    reads them.
    """

    def __init__(self, source: Tensor, index: Tensor):
        self.source, self.index = source, index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | Tensor) -> Rows:
        return Rows(self.source, self.index[rows])

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.source.shape[1:]))

    @property
    def ndim(self) -> int:
        return self.source.ndim

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype


def batches(
    inputs: Tensor | Rows | decoding.Files,
    indices: Iterable[Tensor],
    device: torch.device | str,
    *beside: Tensor,
) -> Iterator[tuple[Tensor, ...]]:
    """Yield (index, inputs[index]) and the same rows of each tensor in `beside`, in the order of `indices`.

    All on `device`. Small inputs go to a GPU once for the pass. Large batches, and all that are decoded from files, are
    prepared one ahead by a thread, and copied from pinned memory. When the loop over them is left, threads and worker
    processes end (at once with `contextlib.closing`, else with the generator).

    Args:
        inputs: (N, ...) uint8 images or float32 features: in memory, memory-mapped, or `decoding.Files`.
        indices: (B,) int64 row numbers of each batch.
        beside: tensors of N rows that lie on `device` already, such as labels.

    Raises:
        DataError: a file that cannot be decoded, with its path and row; too little shared memory for `Files.workers`.
    """
    device = torch.device(device)
    source, rows = (inputs.source, inputs.index) if isinstance(inputs, Rows) else (inputs, None)
    if isinstance(source, Tensor) and device.type == "cpu" and source.device.type == "cpu":
        yield from _gathered(source, rows, indices, beside)
        return
    if isinstance(inputs, decoding.Files):
        read = _decoded(inputs, indices, device)
    else:
        read = _sent(source, rows, indices, device)
    with closing(read):
        for index, x in read:
            yield index, x, *(tensor.index_select(0, index) for tensor in beside)


def _sent(source: Tensor, rows: Tensor | None, indices: Iterable[Tensor], device: torch.device):
    """From one device to another."""
    if source.device == device or (rows is None and source.nbytes <= RESIDENT):
        source, rows = source.to(device), rows if rows is None else rows.to(device)
        for index in indices:
            index = index.to(device, non_blocking=True)
            yield index, source.index_select(0, index if rows is None else rows[index])
        return

    def pinned(index: Tensor) -> tuple[Tensor, Tensor]:
        x = source.index_select(0, index if rows is None else rows[index])
        return (index.pin_memory(), x.pin_memory()) if device.type == "cuda" else (index, x)

    for index, x in ahead(pinned, indices):
        yield index.to(device, non_blocking=True), x.to(device, non_blocking=True)


def ahead(function: Callable, items: Iterable) -> Iterator:
    """`map`, with the next result computed by a thread while the last is used."""
    with ThreadPoolExecutor(1) as thread:
        waiting = None
        for item in items:
            following = thread.submit(function, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


def _gathered(
    source: Tensor, rows: Tensor | None, indices: Iterable[Tensor], beside: tuple[Tensor, ...]
) -> Iterator[tuple[Tensor, ...]]:
    """On the CPU. Large batches are gathered by a thread, one ahead; small ones here, a few at a time."""

    def gather(index: Tensor) -> tuple[Tensor, ...]:
        x = source.index_select(0, index if rows is None else rows[index])
        return index, x, *(tensor.index_select(0, index) for tensor in beside)

    row_bytes = max(source.element_size() * source[:1].numel(), 1)
    indices = iter(indices)
    for index in indices:
        if len(index) * row_bytes >= LARGE:
            yield gather(index)
            yield from ahead(gather, indices)
            return
        few = [index, *itertools.islice(indices, max(TOGETHER // (max(len(index), 1) * row_bytes) - 1, 0))]
        sizes = [len(index) for index in few]
        _, *whole = gather(torch.cat(few) if len(few) > 1 else index)
        yield from zip(few, *(tensor.split(sizes) for tensor in whole), strict=True)


def _decoded(files: decoding.Files, indices: Iterable[Tensor], device: torch.device):
    cuda = device.type == "cuda"
    if files.workers:
        read = _by_workers(files, list(indices), cuda)
    else:
        read = _by_threads(files, indices, cuda)
    try:
        for index, x in read:
            yield index.to(device, non_blocking=cuda), x.to(device, non_blocking=cuda)
    finally:
        read.close()


def _by_threads(files: decoding.Files, indices: Iterable[Tensor], pin: bool):
    """Pillow decodes without the interpreter's lock, so threads use all cores and no process outlives the loop."""
    with ThreadPool() as pool:

        def read(index: Tensor) -> tuple[Tensor, Tensor]:
            x = files.read(index.tolist(), pool)
            return (index, x.pin_memory()) if pin else (index, x)

        yield from ahead(read, indices)


class _Batches(torch.utils.data.Dataset):
    """What worker processes run: a whole batch at once. An error comes back as a value, without their traceback."""

    def __init__(self, files: decoding.Files):
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitems__(self, rows: list[int]) -> Tensor | DataError:
        try:
            return self.files.read(rows)
        except DataError as error:
            return error


def _as_it_is(batch):
    return batch


def _by_workers(files: decoding.Files, indices: list[Tensor], pin: bool):
    from torch.utils.data import DataLoader

    workers = min(files.workers, len(indices))
    if not workers:
        return
    largest = max(map(len, indices)) * files.row_bytes
    _check_shared_memory(workers, AHEAD * workers * largest)
    loader = DataLoader(
        _Batches(files),
        batch_sampler=[index.tolist() for index in indices],
        collate_fn=_as_it_is,
        num_workers=workers,
        prefetch_factor=AHEAD,
        pin_memory=pin,
        generator=torch.Generator(),  # else it draws from the global one, and changes what follows
    )
    loaded = iter(loader)
    try:
        for index, x in zip(indices, loaded, strict=True):
            if isinstance(x, DataError):
                raise x
            yield index, x
    except RuntimeError as error:  # a worker that ran out of memory is killed; torch reports its signal
        if "worker" not in str(error):
            raise
        raise DataError(f"a worker process that decodes images died ({error}). {_remedy(workers)}") from error
    finally:
        # Not left to the garbage collector: a notebook keeps the traceback of an interrupted cell, and with it these.
        loaded._shutdown_workers()


def _check_shared_memory(workers: int, needed: int) -> None:
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:  # not Linux
        return
    if needed > free:
        raise DataError(
            f"{workers} worker processes need {needed / 2**20:.0f} MiB of shared memory, {SHARED_MEMORY} has "
            f"{free / 2**20:.0f} MiB free. {_remedy(workers)}"
        )


def _remedy(workers: int) -> str:
    return (
        f"Use fewer workers than {workers} (0 decodes in threads, without shared memory), smaller batches, or a larger "
        f"{SHARED_MEMORY} (docker run --shm-size 8g); `spml data prepare` makes decoding needless."
    )
