"""Files of rows too large for memory: written in order, kept through a kill or a full disk, renamed when complete."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from tqdm.auto import tqdm

from spml_core.data.dataset import DataError
from spml_core.paths import write_whole

FLUSHED = 64 * 2**20  # bytes written between two moments from which a killed process resumes
FULL = (errno.ENOSPC, errno.EDQUOT)


def fill(
    file: Path,
    header: bytes,
    num_rows: int,
    row_bytes: int,
    chunks: Callable[[int], Iterator[np.ndarray]],
    *,
    description: str,
    finish: Callable[[BinaryIO], None] | None = None,
) -> None:
    """Write `header` and `num_rows` rows to `file`, resuming where an earlier call was stopped.

    Rows are written to `<file>.partial`, and after each `FLUSHED` bytes on the disk their number to `<file>.rows`.
    They are not written through a memory map, where a full disk kills the process (SIGBUS) in place of an error.
    The caller holds a lock.

    Args:
        chunks: first row wanted -> arrays of the following rows, in order, up to the last.
        description: of the progress bar.
        finish: what is still to be done to the open, complete file.

    Raises:
        DataError: the disk has not enough room, or became full. What is written stays, for the next call.
    """
    draft, record = partial(file), file.with_name(file.name + ".rows")
    done = rows_done(file, len(header), row_bytes)
    check_room(file.parent, (num_rows - done) * row_bytes)
    bar = {"desc": description, "total": num_rows, "initial": done, "unit": " images"}
    rows, waiting = done, 0
    try:
        with open(draft, "r+b" if done else "w+b") as out, tqdm(**bar, leave=False, disable=None) as shown:
            if not done:
                out.write(header)
            out.truncate(len(header) + done * row_bytes)
            out.seek(0, os.SEEK_END)
            for chunk in chunks(done):
                out.write(memoryview(np.ascontiguousarray(chunk)).cast("B"))
                rows, waiting = rows + len(chunk), waiting + chunk.nbytes
                if waiting >= FLUSHED or rows == num_rows:
                    _sync(out)
                    _record(record, rows)
                    waiting = 0
                shown.update(len(chunk))
            if rows != num_rows:
                raise ValueError(f"{rows} rows were made for {file}, not {num_rows}")
            if finish is not None:
                finish(out)
                _sync(out)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DataError(
            f"no space left on the disk of {file.parent} after {rows} of {num_rows} images: free "
            f"{in_words((num_rows - rows) * row_bytes)} or choose another folder, then start again. It resumes where "
            "it stopped."
        ) from error
    os.replace(draft, file)
    record.unlink()


def partial(file: Path) -> Path:
    """Return where the rows of `file` are while it is not complete."""
    return file.with_name(file.name + ".partial")


def rows_done(file: Path, header_bytes: int, row_bytes: int) -> int:
    """Return how many rows of an incomplete `file` are certainly on the disk."""
    try:
        recorded = int(file.with_name(file.name + ".rows").read_text())
        written = (partial(file).stat().st_size - header_bytes) // row_bytes
    except (OSError, ValueError):  # never begun, or not one chunk
        return 0
    return max(min(recorded, written), 0)


def discard(file: Path) -> None:
    """Remove what there is of an incomplete `file`."""
    partial(file).unlink(missing_ok=True)
    file.with_name(file.name + ".rows").unlink(missing_ok=True)


def check_room(folder: Path, needed: int) -> None:
    """Raise `DataError` if the disk of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{in_words(needed)} are needed in {folder} and {in_words(free)} are free: make room, choose a smaller "
            "size, or another folder for runs."
        )


def in_words(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.1f} MB"


def _sync(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def _record(record: Path, rows: int) -> None:
    write_whole(record, str(rows))
