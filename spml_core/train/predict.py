"""Compute the logits of a whole split, or the probabilities of any image files, in evaluation mode."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn
from tqdm.auto import tqdm

from spml_core.data.files import decoding, loading
from spml_core.paths import project_root
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
    names: Sequence[str],
    shape: tuple[int, int, int],
    jobs: int | None = None,
    start: int = 0,
) -> Iterator[tuple[np.ndarray, list[tuple[str, str]]]]:
    """Yield (probabilities, unreadable) of one batch of image files after the other, in order; memory stays bounded.

    Probabilities are (B, C) float32, NaN for a file that cannot be read; `unreadable` lists such files with the reason.
    On a CPU the probabilities do not depend on `jobs`. A bar shows the progress in a terminal or a notebook.

    Args:
        model: from raw images (N, channels, size, size) to logits.
        names: image files; relative paths start at the project folder.
        shape: (channels, size, size), see `decoding.decode`.
        jobs: threads, each of which decodes a batch and passes it through the network; None = the number of cores.
        start: number of the first image to predict.
    """
    device, root = torch.device("cuda" if torch.cuda.is_available() else "cpu"), project_root()
    model, jobs = model.eval().to(device), jobs or os.cpu_count()

    @torch.inference_mode()  # of the thread that calls it
    def predicted(batch: Sequence[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
        pixels, unreadable = torch.zeros(len(batch), *shape, dtype=torch.uint8), {}
        for n, name in enumerate(batch):
            try:
                pixels.numpy()[n] = decoding.decode(root / Path(name).expanduser(), shape[1], shape[0])
            except Exception as error:  # every decoder has error types of its own
                unreadable[n] = " ".join(str(error).split()) or type(error).__name__
        probs = expit(model(by_pixel(pixels.to(device))).float().cpu().numpy())
        probs[[*unreadable]] = np.nan
        return probs, [(batch[n], reason) for n, reason in unreadable.items()]

    step = _batch_size(shape, device)
    window = AHEAD * jobs * step
    bar = {"desc": "predict", "total": len(names), "initial": start, "unit": " images", "leave": False}
    with tqdm(**bar, disable=None) as shown, threads(1), ThreadPool(jobs) as pool:
        for first in range(start, len(names), window):
            part = names[first : first + window]
            for found in pool.imap(predicted, (part[n : n + step] for n in range(0, len(part), step))):
                yield found
                shown.update(len(found[0]))


def _batch_size(shape: Sequence[int], device: torch.device) -> int:
    """Return the images per batch that keep the activations in a CPU's cache, or fill a GPU."""
    budget = 2**25 if torch.device(device).type == "cuda" else 2**20
    return min(max(budget // int(np.prod(shape)), 8), 512)
