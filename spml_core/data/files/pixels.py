"""Prepared pixels: every image decoded once into a memory-mapped file, from which training reads.

`spml data prepare` makes the file, `assemble` finds it. It is found by the content of the images, the size and
the decoding rule: moved or renamed images, other options of the loader and subsets use the same file, an edited image
does not. `pixels-<size>-<key>.npy` holds the rows, the `.json` beside it the SHA-256 of each row's image.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch

from spml_core.data.dataset import DataError
from spml_core.data.files import decoding, loading, rowfile
from spml_core.data.files.digests import digests
from spml_core.paths import write_whole

BATCH = 64  # images decoded while the last ones are written


def find(
    images: Sequence[str], size: int, cache_dir: str | Path
) -> tuple[torch.Tensor | loading.Rows, Path] | tuple[None, None]:
    """Return the prepared pixels of these images, if one file in `cache_dir` holds all of them.

    Args:
        images: SHA-256 of N image files, as of `digests`.
        size: side of the square images, pixels.

    Returns:
        (N, 3, size, size) uint8, not to be written to: a tensor on the memory map if the rows lie there in this order,
        else `loading.Rows` of it; and the file. None and None if an image is not prepared.
    """
    for file, order in _holding(images, size, Path(cache_dir)):
        try:
            pixels = as_tensor(np.load(file, mmap_mode="r"))
        except ValueError as error:
            warnings.warn(f"the prepared pixels {file} are damaged ({error}): not used", stacklevel=2)
            continue
        place = {digest: n for n, digest in enumerate(order)}
        chosen = torch.tensor([place[digest] for digest in images], dtype=torch.int64)
        first = int(chosen[0]) if len(chosen) else 0
        if torch.equal(chosen, torch.arange(first, first + len(chosen))):
            return pixels[first : first + len(chosen)], file
        return loading.Rows(pixels, chosen), file
    return None, None


def prepare(paths: Sequence[str | Path], size: int, cache_dir: str | Path) -> Path:
    """Decode images into `cache_dir`, with a progress bar; equal files share a row.

    A run that was stopped, even killed, resumes, and the file gets its name when it is complete. Images that another
    prepared file of this size holds, finished or not, are copied from there. Two processes that want the same file
    make it once.

    Args:
        paths: N image files.
        size: side of the square images, pixels; a row takes 3 * size**2 bytes. See `decoding.decode`.

    Returns:
        The file, (rows, 3, size, size) uint8.

    Raises:
        DataError: unreadable images (all of them, by path); too little room on the disk.
    """
    from filelock import FileLock

    if size < 1 or not len(paths):
        raise DataError(f"size={size}, {len(paths)} images: nothing to prepare")
    cache_dir = Path(cache_dir)
    images = digests(paths, cache_dir)
    for file, _ in _holding(images, size, cache_dir):
        return file
    content = dict(zip(reversed(images), reversed(paths), strict=True))  # of equal files the first
    order = list(dict.fromkeys(images))
    key = hashlib.sha256(json.dumps([decoding.RULE, size, order]).encode()).hexdigest()
    file = cache_dir / f"pixels-{size}-{key[:16]}.npy"
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            write_whole(file.with_suffix(".json"), json.dumps({"rule": decoding.RULE, "images": order}))
            _fill(file, order, [content[digest] for digest in order], size)
            _discard_drafts(file, set(order), size)
    return file


def _fill(file: Path, order: list[str], paths: list, size: int) -> None:
    shape, row_bytes = (len(order), 3, size, size), 3 * size**2
    known = _elsewhere(file, size)
    files = decoding.Files(paths, size)

    def decode(rows: torch.Tensor) -> np.ndarray:
        out = np.empty((len(rows), *shape[1:]), np.uint8)
        new = [n for n, row in enumerate(rows.tolist()) if order[row] not in known]
        try:
            out[new] = files.read(rows[new].tolist(), pool).numpy()
        except DataError:
            decoding.check(paths[int(rows[0]) :])  # names all that cannot be read, not the first alone
            raise
        for n in sorted(set(range(len(rows))) - set(new)):
            source, row = known[order[int(rows[n])]]
            out[n] = source[row]
        return out

    def chunks(done: int) -> Iterator[np.ndarray]:
        yield from loading.ahead(decode, torch.arange(done, len(order)).split(BATCH))

    with ThreadPool() as pool:
        rowfile.fill(
            file, _header(len(order), size), len(order), row_bytes, chunks, description=f"decode at {size}"
        )


def _header(num_rows: int, size: int) -> bytes:
    """Return the header of a .npy file."""
    out = io.BytesIO()
    shape = (num_rows, 3, size, size)
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return out.getvalue()


def _prepared(cache_dir: Path, size: int) -> Iterator[tuple[Path, list[str], int]]:
    """Yield the files of this size, finished or not: path, SHA-256 of each row's image, and rows on the disk."""
    for index in sorted(cache_dir.glob(f"pixels-{size}-*.json")):
        file = index.with_suffix(".npy")
        try:
            content = json.loads(index.read_text())
            rule, order = content["rule"], content["images"]
        except (OSError, ValueError, KeyError, TypeError):  # gone meanwhile, or not whole
            continue
        if rule == decoding.RULE and order:
            written = rowfile.rows_done(file, len(_header(len(order), size)), 3 * size**2)
            yield file, order, len(order) if file.exists() else written


def _holding(images: Sequence[str], size: int, cache_dir: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the finished files that hold all these images, with the SHA-256 of each row's image."""
    for file, order, _ in _prepared(cache_dir, size):
        if file.exists() and set(images).issubset(order):
            yield file, order


def _elsewhere(file: Path, size: int) -> dict[str, tuple[np.ndarray, int]]:
    """Return where the row of an image is in another file."""
    known = {}
    for other, order, done in _prepared(file.parent, size):
        if other == file or not done:
            continue
        source = other if other.exists() else rowfile.partial(other)
        try:
            array = np.memmap(source, np.uint8, "r", len(_header(len(order), size)), (done, 3, size, size))
        except (OSError, ValueError):  # gone meanwhile, or cut short
            continue
        known |= {digest: (array, n) for n, digest in enumerate(order[:done])}
    return known


def _discard_drafts(file: Path, images: set[str], size: int) -> None:
    """Remove unfinished files that have nothing which `file` lacks, unless someone writes them."""
    from filelock import FileLock, Timeout

    for other, order, done in _prepared(file.parent, size):
        if other == file or other.exists() or not images.issuperset(order[:done]):
            continue
        try:
            with FileLock(other.with_suffix(".lock"), timeout=0):
                rowfile.discard(other)
                other.with_suffix(".json").unlink()
        except Timeout:
            continue


def as_tensor(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():  # torch warns of arrays that cannot be written: inputs never are
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
