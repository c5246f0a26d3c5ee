"""Compute rows for images once and keep them: prepared pixels, frozen features.

Rows are looked up by the content of the images and the rule that made them. So moved or renamed images, other loader
options and subsets use the same file; an edited image does not. `<name>-<key>.npy` holds the rows, the `.json` beside
it the SHA-256 of each row's image. Since rows may not fit into memory, they are written in order: an interrupted run
resumes, and the file gets its name when it is complete.
"""

import hashlib
import io
import json
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
from spml_core.data.files import loading
from spml_core.paths import write_whole

Compute = Callable[[list[int]], tuple[Sequence[int], type, Callable[[int], Iterator[np.ndarray]]]]
FLUSHED = 64 * 2**20  # bytes written between two points from which a killed process can resume


def find(
    name: str, rule, images: Sequence[str], cache_dir: str | Path
) -> tuple[torch.Tensor | loading.Rows, Path] | tuple[None, None]:
    """Return the rows of these images, if one file `<name>-*.npy` in `cache_dir`, made by this rule, holds all of them.

    Args:
        images: SHA-256 of N image files, as returned by `digests`.

    Returns:
        The rows (N, ...), which must not be written to: a tensor on the memory map if the rows are there in this
        order, else `loading.Rows` of it; and the file. None and None if there is no such file.
    """
    for index in sorted(Path(cache_dir).glob(f"{name}-*.json")):
        content = json.loads(index.read_text())
        place = {digest: n for n, digest in enumerate(content["images"])}
        if content["rule"] != rule or not place.keys() >= set(images):
            continue
        file = index.with_suffix(".npy")
        if (rows := _load(file)) is None:
            continue
        chosen = torch.tensor([place[digest] for digest in images], dtype=torch.int64)
        first = int(chosen[0]) if len(chosen) else 0
        if torch.equal(chosen, torch.arange(first, first + len(chosen))):
            return rows[first : first + len(chosen)], file
        return loading.Rows(rows, chosen), file
    return None, None


def keep(
    name: str, rule, images: Sequence[str], cache_dir: str | Path, compute: Compute, title: str
) -> tuple[torch.Tensor | loading.Rows, Path]:
    """Return what `find` returns, and compute the file first if there is none; equal images share a row.

    If two processes want the same file, it is made once.

    Args:
        rule: how the rows are made, as JSON; another rule makes another file.
        compute: places in `images` -> shape and dtype of their rows, and a function that, from a first row on, yields
            arrays of rows in order.
        title: of the progress bar.

    Raises:
        DataError: there is not enough room on the disk.
        OSError: the disk became full. What has been written is kept for the next call.
    """
    from filelock import FileLock

    rows, file = find(name, rule, images, cache_dir)
    if rows is None:
        first: dict[str, int] = {}
        for n, digest in enumerate(images):
            first.setdefault(digest, n)
        key = hashlib.sha256(json.dumps([rule, [*first]]).encode()).hexdigest()
        file = Path(cache_dir) / f"{name}-{key[:16]}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            if _load(file) is None:
                shape, dtype, chunks = compute([*first.values()])
                write_whole(file.with_suffix(".json"), json.dumps({"rule": rule, "images": [*first]}))
                _fill(file, shape, dtype, chunks, title)
        rows, file = find(name, rule, images, cache_dir)
    return rows, file


def _load(file: Path) -> torch.Tensor | None:
    """Return the rows of a file over a memory map; None if there is no such file or, with a warning, it is damaged."""
    try:
        return mapped(file)
    except FileNotFoundError:
        return None
    except (ValueError, EOFError) as error:
        warnings.warn(f"{file} is damaged ({error}): not used", stacklevel=4)
        return None


def mapped(file: Path) -> torch.Tensor:
    """Return a .npy file as a tensor over a memory map, not to be written to."""
    array = np.load(file, mmap_mode="r")
    with warnings.catch_warnings():  # torch warns of arrays that cannot be written: inputs never are
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _fill(
    file: Path, shape: Sequence[int], dtype, chunks: Callable[[int], Iterator[np.ndarray]], title: str
) -> None:
    """Write the array `file`, resuming where an earlier call was stopped.

    Rows are written to `<file>.partial`; after every `FLUSHED` bytes on disk, their number is written to
    `<file>.rows`. This does not use a memory map, since a full disk would then kill the process (SIGBUS) instead of
    raising an error.
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
    bar = {"desc": title, "total": num_rows, "initial": rows, "unit": " images"}
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
