"""Arrays too large for memory, as .npy files: written in order, resumed after a kill, renamed when complete."""

from __future__ import annotations

import io
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from spml_core.data.dataset import DataError
from spml_core.paths import write_whole

FLUSHED = 64 * 2**20  # bytes written between two moments from which a killed process resumes


def load(file: Path) -> torch.Tensor | None:
    """Return the rows of a file over a memory map, not to be written to.

    None if there is no such file or, with a warning, if it is damaged.
    """
    try:
        array = np.load(file, mmap_mode="r")
    except FileNotFoundError:
        return None
    except (ValueError, EOFError) as error:
        warnings.warn(f"{file} is damaged ({error}): not used", stacklevel=3)
        return None
    with warnings.catch_warnings():  # torch warns of arrays that cannot be written: inputs never are
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def fill(
    file: Path, shape: Sequence[int], dtype, chunks: Callable[[int], Iterator[np.ndarray]], description: str
) -> None:
    """Write the array `file`, resuming where an earlier call was stopped.

    Rows are written to `<file>.partial`, and after each `FLUSHED` bytes on the disk their number to `<file>.rows`.
    They are not written through a memory map, where a full disk kills the process (SIGBUS) in place of an error.
    The caller holds a lock.

    Args:
        chunks: first row wanted -> arrays of the following rows, in order, up to the last.
        description: of the progress bar.

    Raises:
        DataError: the disk has not enough room.
        OSError: it became full. What is written stays, for the next call.
    """
    draft, record = (file.with_name(file.name + end) for end in (".partial", ".rows"))
    header = io.BytesIO()
    form = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(header, form)
    num_rows, row_bytes = shape[0], np.dtype(dtype).itemsize * math.prod(shape[1:])
    rows = int(record.read_text()) if draft.exists() and record.exists() else 0
    needed, free = (num_rows - rows) * row_bytes, shutil.disk_usage(file.parent).free
    if needed > free:
        raise DataError(
            f"{in_words(needed)} are needed in {file.parent} and {in_words(free)} are free: make room, choose a "
            "smaller size, or another folder for runs."
        )
    bar = {"desc": description, "total": num_rows, "initial": rows, "unit": " images"}
    waiting = 0
    with open(draft, "r+b" if rows else "wb") as out, tqdm(**bar, leave=False, disable=None) as shown:
        out.write(header.getvalue())
        out.seek(rows * row_bytes, os.SEEK_CUR)
        out.truncate()
        for chunk in chunks(rows):
            out.write(memoryview(np.ascontiguousarray(chunk)).cast("B"))
            rows, waiting = rows + len(chunk), waiting + chunk.nbytes
            if waiting >= FLUSHED or rows == num_rows:
                out.flush()
                os.fsync(out.fileno())
                write_whole(record, str(rows))
                waiting = 0
            shown.update(len(chunk))
    os.replace(draft, file)
    record.unlink()


def in_words(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.1f} MB"
