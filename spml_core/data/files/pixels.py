"""Prepared pixels: every image decoded once into a memory-mapped file, `store`, from which training reads.

`spml data prepare` makes the file, `assemble` finds it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from spml_core.data.dataset import DataError
from spml_core.data.files import decoding, loading, store
from spml_core.data.files.digests import digests

BATCH = 64  # images decoded while the previous ones are written


def find(images: Sequence[str], size: int, cache_dir: str | Path):
    """Return the prepared pixels of these images, (N, 3, size, size) uint8, and their file; see `store.find`."""
    return store.find(f"pixels-{size}", decoding.RULE, images, cache_dir)


def prepare(paths: Sequence[str | Path], size: int, cache_dir: str | Path) -> Path:
    """Decode images into `cache_dir`, with a progress bar; see `store.keep`.

    Before anything is written, every image is read once (`decoding.check`).

    Args:
        paths: N image files.
        size: side of the square images, pixels; a row takes 3 * size**2 bytes. See `decoding.decode`.

    Returns:
        The file, (rows, 3, size, size) uint8.

    Raises:
        DataError: unreadable images (all of them, by path); too little room on the disk.
    """
    if size < 1 or not len(paths):
        raise DataError(f"size={size}, {len(paths)} images: nothing to prepare")

    def compute(places: list[int]):
        files = decoding.Files(paths, size)[places]

        def chunks(done: int) -> Iterator[np.ndarray]:
            decoding.check(files.paths[done:])
            for _, x in loading.batches(files, torch.arange(done, len(files)).split(BATCH), "cpu"):
                yield x.numpy()

        return files.shape, np.uint8, chunks

    images = digests(paths, cache_dir)
    return store.keep(f"pixels-{size}", decoding.RULE, images, cache_dir, compute, f"decode at {size}")[1]
