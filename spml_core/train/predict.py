"""Compute the logits of a whole split, or of any image files, in evaluation mode."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spml_core.data.files import decoding, loading
from spml_core.train.device import by_pixel, threads

AHEAD = 32  # batches per thread that may be computed before the first of them is used


@torch.inference_mode()
def predict(model: nn.Module, inputs: Tensor, device: torch.device, rows: Tensor | None = None) -> np.ndarray:
    """Return logits (N, C) float32 in evaluation mode, of every row (or those of `rows`), in order."""
    model.eval()
    rows = torch.arange(len(inputs)) if rows is None else rows
    split = rows.split(_batch_size(inputs.shape[1:], device))
    with closing(loading.batches(inputs, split, device)) as batches:
        return torch.cat([model(by_pixel(x)).float().cpu() for _, x in batches]).numpy()


def predict_files(
    model: nn.Module,
    paths: Sequence[str],
    folder: Path,
    shape: tuple[int, int, int],
    device: torch.device,
    jobs: int,
) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """Yield (logits, unreadable) of one batch of image files after the other, in order; memory stays bounded.

    Logits are (B, C) float32, NaN for a file that cannot be read; `unreadable` maps its place in the batch to the
    reason. On a CPU the logits do not depend on `jobs`.

    Args:
        model: from raw images (N, channels, size, size) to logits; moved to `device`.
        folder: where relative paths start.
        shape: (channels, size, size), see `decoding.decode`.
        jobs: threads, each of which decodes a batch and passes it through the network.
    """
    model = model.eval().to(device)

    @torch.inference_mode()  # of the thread that calls it
    def logits(names: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
        pixels, unreadable = torch.zeros(len(names), *shape, dtype=torch.uint8), {}
        for n, name in enumerate(names):
            try:
                pixels.numpy()[n] = decoding.decode(folder / Path(name).expanduser(), shape[1], shape[0])
            except Exception as error:  # every decoder has error types of its own
                unreadable[n] = " ".join(str(error).split()) or type(error).__name__
        found = model(by_pixel(pixels.to(device))).float().cpu().numpy()
        found[[*unreadable]] = np.nan
        return found, unreadable

    step = _batch_size(shape, device)
    window = AHEAD * jobs * step
    with threads(1), ThreadPool(jobs) as pool:
        for start in range(0, len(paths), window):
            part = paths[start : start + window]
            yield from pool.imap(logits, (part[n : n + step] for n in range(0, len(part), step)))


def _batch_size(shape: Sequence[int], device: torch.device) -> int:
    """Return the images per batch that keep the activations in a CPU's cache, or fill a GPU."""
    budget = 2**25 if torch.device(device).type == "cuda" else 2**20
    return min(max(budget // int(np.prod(shape)), 8), 512)
