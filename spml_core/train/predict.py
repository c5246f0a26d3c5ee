"""Compute the logits of a whole split, in evaluation mode."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import torch
from torch import Tensor, nn

from spml_core.data.files import loading
from spml_core.train.device import by_pixel


@torch.inference_mode()
def predict(
    model: nn.Module,
    inputs: Tensor,
    device: torch.device,
    batch_size: int | None = None,
    rows: Tensor | None = None,
) -> np.ndarray:
    """Return logits (N, C) float32 in evaluation mode, of every row (or those of `rows`), in order.

    `batch_size`: None = a size that keeps the activations in a CPU's cache, or fills a GPU.
    """
    model.eval()
    rows = torch.arange(len(inputs)) if rows is None else rows
    if batch_size is None:
        budget = 2**25 if torch.device(device).type == "cuda" else 2**20
        batch_size = min(max(budget // int(np.prod(inputs.shape[1:])), 8), 512)
    with closing(loading.batches(inputs, rows.split(batch_size), device)) as batches:
        return torch.cat([model(by_pixel(x)).float().cpu() for _, x in batches]).numpy()
