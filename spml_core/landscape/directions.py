"""Random directions in weight space whose steps are comparable between models."""

import torch
from torch import Tensor, nn


def random_direction(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Return a filter-normalised Gaussian direction (Li et al., 2018, section 4): tensors by parameter name.

    Each filter (a slice of the first axis: the weights of one output) gets the norm of the model's own filter. So a
    step of 1 is as large as the weights, whatever their scale, which batch normalisation leaves free. Tensors with one
    axis (biases; scales and shifts of normalisation) are left out and do not change, as in the authors' code.

    The same seed draws the same noise for every model of one architecture.

    Raises:
        ValueError: the model has no tensor with two or more axes.
    """
    generator = torch.Generator().manual_seed(seed)
    direction = {}
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        target = weight.detach().cpu().double()
        axes = tuple(range(1, weight.ndim))
        scale = target.square().sum(axes, keepdim=True).sqrt() / noise.square().sum(axes, keepdim=True).sqrt()
        direction[name] = (noise * scale).to(weight)
    if not direction:
        raise ValueError("the model has no weight of two or more axes, so no filter to perturb")
    return direction
