"""Prepared pixels: every image decoded once into a memory-mapped file, from which training reads.

`spml data prepare` makes the file, `listing.assemble` finds it. It is found by the content of the images, the size and
the decoding rule: moved or renamed images, other options of the loader and subsets use the same file, an edited image
does not. `pixels-<size>-<key>.npy` holds the rows, the `.json` beside it the SHA-256 of each row's image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch

from spml_core import words
from spml_core.data import DataError
from spml_core.data.files import images, loading, rowfile

BATCH = 64  # images decoded while the last ones are written


def find(digests: Sequence[str], size: int, cache_dir: str | Path) -> torch.Tensor | loading.Rows | None:
    """The prepared pixels of these images, if one file in `cache_dir` holds all of them.

    Args:
        digests: N results of `images.digest`.
        size: side of the square images, pixels.

    Returns:
        (N, 3, size, size) uint8, not to be written to: a tensor on the memory map if the rows lie there in this order,
        else `loading.Rows` of it. None if an image is not prepared.
    """
    found = find_file(digests, size, cache_dir)
    return None if found is None else found[1]


def find_file(
    digests: Sequence[str], size: int, cache_dir: str | Path
) -> tuple[Path, torch.Tensor | loading.Rows] | None:
    """`find`, with the file that holds them."""
    for file, place in _holding(digests, size, Path(cache_dir)):
        try:
            pixels = as_tensor(np.load(file, mmap_mode="r"))
        except ValueError as error:
            warnings.warn(f"the prepared pixels {file} are damaged ({error}): not used", stacklevel=2)
            continue
        chosen = torch.tensor([place[digest] for digest in digests], dtype=torch.int64)
        first = int(chosen[0]) if len(chosen) else 0
        if torch.equal(chosen, torch.arange(first, first + len(chosen))):
            return file, pixels[first : first + len(chosen)]
        return file, loading.Rows(pixels, chosen)
    return None


def _holding(digests: Sequence[str], size: int, cache_dir: Path) -> Iterator[tuple[Path, dict[str, int]]]:
    """Finished files that hold all these images, and the row of each image."""
    for index in sorted(cache_dir.glob(f"pixels-{size}-*.json")):
        file, rows = index.with_suffix(".npy"), _index(index)
        if rows and file.exists() and set(digests).issubset(rows):
            yield file, {digest: n for n, digest in enumerate(rows)}


def prepare(
    paths: Sequence[str | Path], size: int, cache_dir: str | Path, digests: Sequence[str] | None = None
) -> Path:
    """Decode images into `cache_dir`, with a progress bar; equal files share a row.

    A run that was stopped, even killed, goes on where it was, and the file gets its name when it is complete. Images
    that another prepared file of this size holds, finished or not, are copied from there. Two processes that want the
    same file make it once.

    Args:
        paths: N image files.
        size: side of the square images, pixels; a row takes 3 * size**2 bytes. See `images.decode`.
        digests: N results of `images.digest`, if known already.

    Returns:
        The file, (rows, 3, size, size) uint8.

    Raises:
        DataError: unreadable images (all of them, by path); too little room on the disk.
    """
    from filelock import FileLock

    if size < 1 or not len(paths):
        raise DataError(f"size={size}, {len(paths)} images: nothing to prepare")
    cache_dir = Path(cache_dir)
    cache_dir.mkdir(parents=True, exist_ok=True)
    if digests is None:
        from spml_core.data import listing

        paths = [Path(path) for path in paths]
        found = listing.digest(paths, cache_dir)
        digests = [found[path] for path in paths]
    for file, _ in _holding(digests, size, cache_dir):
        return file
    content = dict(zip(reversed(digests), reversed(paths), strict=True))  # of equal files the first
    order = list(dict.fromkeys(digests))
    file = _file(order, size, cache_dir)
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            _write_index(file.with_suffix(".json"), order)
            _fill(file, order, [content[digest] for digest in order], size)
            _discard_drafts(file, set(order), size)
    return file


def require(listing) -> None:
    """Raise `DataError` if a file of the listing is missing or empty: known at once, before anything is decoded."""
    problems = []
    missing = set(listing.missing())
    there = [path for n, path in enumerate(listing.paths) if n not in missing]
    empty = [str(path) for path in there if not path.stat().st_size]
    gone = [str(listing.paths[n]) for n in sorted(missing)]
    for found, what in ((gone, "missing"), (empty, "empty (0 bytes)")):
        if found:
            problems.append(f"{words.some(len(found), len(listing), 'image')} {what}:{images.listing(found)}")
    if problems:
        raise DataError("\n".join([*problems, images.REMEDY, "`spml data check` reports everything else."]))


def _fill(file: Path, order: list[str], paths: list, size: int) -> None:
    shape, row_bytes = (len(order), 3, size, size), 3 * size**2
    header = _header(shape)
    known = _elsewhere(file, size)
    files = images.Files(paths, size)

    def decode(rows: torch.Tensor) -> np.ndarray:
        out = np.empty((len(rows), *shape[1:]), np.uint8)
        new = [n for n, row in enumerate(rows.tolist()) if order[row] not in known]
        try:
            out[new] = files.read(rows[new].tolist(), pool).numpy()
        except DataError:
            images.check(paths[int(rows[0]) :])  # names all that cannot be read, not the first alone
            raise
        for n in sorted(set(range(len(rows))) - set(new)):
            source, row = known[order[int(rows[n])]]
            out[n] = source[row]
        return out

    def chunks(done: int) -> Iterator[np.ndarray]:
        yield from loading.ahead(decode, torch.arange(done, len(order)).split(BATCH))

    with ThreadPool() as pool:
        rowfile.fill(file, header, len(order), row_bytes, chunks, description=f"decode at {size}")


def _file(order: list[str], size: int, cache_dir: Path) -> Path:
    key = hashlib.sha256(json.dumps([images.RULE, size, order]).encode()).hexdigest()
    return cache_dir / f"pixels-{size}-{key[:16]}.npy"


def _header(shape: tuple[int, ...]) -> bytes:
    """Of a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return out.getvalue()


def _index(file: Path) -> list[str]:
    """SHA-256 of the image of each row; none if another rule decoded them, or the file is not whole."""
    try:
        content = json.loads(file.read_text())
        return content["images"] if content["rule"] == images.RULE else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _write_index(file: Path, order: list[str]) -> None:
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps({"rule": images.RULE, "images": order}))
    os.replace(draft, file)


def _drafts(file: Path, size: int) -> Iterator[tuple[Path, list[str]]]:
    """Other prepared files of this size, finished or not, and the images of their rows so far."""
    for index in sorted(file.parent.glob(f"pixels-{size}-*.json")):
        other, rows = index.with_suffix(".npy"), _index(index)
        if other == file or not rows:
            continue
        if not other.exists():
            rows = rows[: rowfile.rows_done(other, len(_header((len(rows), 3, size, size))), 3 * size**2)]
        yield other, rows


def _elsewhere(file: Path, size: int) -> dict[str, tuple[np.ndarray, int]]:
    """Where the row of an image is in another file."""
    known = {}
    for other, rows in _drafts(file, size):
        source = other if other.exists() else rowfile.partial(other)
        if not rows:
            continue
        offset = len(_header((len(_index(other.with_suffix(".json"))), 3, size, size)))
        try:
            array = np.memmap(source, np.uint8, "r", offset, (len(rows), 3, size, size))
        except (OSError, ValueError):  # gone meanwhile, or cut short
            continue
        known |= {digest: (array, n) for n, digest in enumerate(rows)}
    return known


def _discard_drafts(file: Path, done: set[str], size: int) -> None:
    """Remove unfinished files that have nothing which `file` lacks, unless someone writes them."""
    from filelock import FileLock, Timeout

    for other, rows in _drafts(file, size):
        if other.exists() or not done.issuperset(rows):
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
