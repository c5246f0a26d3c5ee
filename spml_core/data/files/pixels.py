"""Prepared pixels: every image decoded once into a memory-mapped file, from which training reads.

`spml data prepare` makes the file, `assemble` finds it. It is found by the content of the images, the size and
the decoding rule: moved or renamed images, other options of the loader and subsets use the same file, an edited image
does not. `pixels-<size>-<key>.npy` holds the rows, the `.json` beside it the SHA-256 of each row's image.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
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
    for index in sorted(Path(cache_dir).glob(f"pixels-{size}-*.json")):
        content = json.loads(index.read_text())
        place = {digest: n for n, digest in enumerate(content["images"])}
        if content["rule"] != decoding.RULE or not place.keys() >= set(images):
            continue
        file = index.with_suffix(".npy")
        if (pixels := rowfile.load(file)) is None:
            continue
        chosen = torch.tensor([place[digest] for digest in images], dtype=torch.int64)
        first = int(chosen[0]) if len(chosen) else 0
        if torch.equal(chosen, torch.arange(first, first + len(chosen))):
            return pixels[first : first + len(chosen)], file
        return loading.Rows(pixels, chosen), file
    return None, None


def prepare(paths: Sequence[str | Path], size: int, cache_dir: str | Path) -> Path:
    """Decode images into `cache_dir`, with a progress bar; equal files share a row.

    Before anything is written, every image is read once (`decoding.check`). A run that was stopped, even killed,
    resumes, and the file gets its name when it is complete. Two processes that want the same file make it once.

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
    _, found = find(images, size, cache_dir)
    if found is not None:
        return found
    content = dict(zip(reversed(images), reversed(paths), strict=True))  # of equal files the first
    order = list(dict.fromkeys(images))
    files = decoding.Files([content[digest] for digest in order], size)
    key = hashlib.sha256(json.dumps([decoding.RULE, size, order]).encode()).hexdigest()
    file = cache_dir / f"pixels-{size}-{key[:16]}.npy"
    cache_dir.mkdir(parents=True, exist_ok=True)

    def chunks(done: int) -> Iterator[np.ndarray]:
        decoding.check(files.paths[done:])
        for _, x in loading.batches(files, torch.arange(done, len(files)).split(BATCH), "cpu"):
            yield x.numpy()

    with FileLock(file.with_suffix(".lock")):
        if rowfile.load(file) is None:
            write_whole(file.with_suffix(".json"), json.dumps({"rule": decoding.RULE, "images": order}))
            rowfile.fill(file, files.shape, np.uint8, chunks, f"decode at {size}")
    return file
