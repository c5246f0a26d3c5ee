"""Small random changes of a batch that keep its labels true."""

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

SCALE, SHIFT, NOISE = 0.1, 1 / 16, 0.1


def augment(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Return another view of each row.

    Images (N, channels, H, W) are scaled by 0.9 to 1.1 and moved by up to 1/16 of their side, both at random for each
    image. They are not flipped, since that would turn digits and letters into others. Images and features (N, D) get
    Gaussian noise of 0.1 standard deviations of their channel or feature in the batch.

    Returns:
        The batch's shape, floating point.
    """
    x = batch if batch.is_floating_point() else batch.float()
    if x.ndim == 4:
        uniform = torch.rand(len(x), 3, generator=generator, device=x.device, dtype=x.dtype) * 2 - 1
        zoom, move = 1 + SCALE * uniform[:, :1], 2 * SHIFT * uniform[:, 1:]  # the grid is 2 wide
        turn = torch.eye(2, device=x.device, dtype=x.dtype) * zoom[:, :, None]
        grid = affine_grid(torch.cat([turn, move[:, :, None]], 2), list(x.shape), align_corners=False)
        x = grid_sample(x, grid, padding_mode="border", align_corners=False)
    axes = [axis for axis in range(x.ndim) if axis != 1]
    noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return x + NOISE * x.std(axes, correction=0, keepdim=True) * noise


def stack_views(batch: Tensor, views: int, generator: torch.Generator) -> Tensor:
    """Return (views * N, ...): the batch, then views - 1 randomly changed copies of it."""
    return torch.cat([batch, *(augment(batch, generator) for _ in range(views - 1))]) if views > 1 else batch


def flip(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image (N, channels, H, W) left to right with probability 0.5, as all four papers do."""
    chosen = torch.rand(len(batch), generator=generator, device=batch.device) < 0.5
    return torch.where(chosen[:, None, None, None], batch.flip(-1), batch)
