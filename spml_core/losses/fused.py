"""A loss whose forward pass also computes its derivative, so that the backward pass is one multiplication."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def fused(formula: Callable[..., tuple[Tensor, Tensor]], z: Tensor, labels: Tensor, *constants) -> Tensor:
    """formula(z, labels, *constants) is (loss, its derivative by z), entry by entry; returns the loss.

    Constants are numbers, or tensors of z's shape without a gradient.

    Autograd would keep each intermediate tensor and walk back through all of them; here one tensor is kept. A second
    derivative is taken through the formula of the first, so the formula must be written in differentiable operations.
    """
    # Under torch.func a Function needs setup_context, which costs as much as a third of a small batch: ask autograd.
    compiling = torch.compiler.is_compiling()
    if torch.is_grad_enabled() and z.requires_grad and (compiling or not _functorch()):
        return _Fused.apply(z, labels, formula, constants)
    return formula(z, labels, *constants)[0]


_functorch = torch._C._are_functorch_transforms_active

# Entries a block: on a CPU few enough (for each thread) for a dozen temporaries in its second-level cache, elsewhere
# enough to keep a device busy.
BLOCK, DEVICE_BLOCK = 2**15, 2**22


def _by_blocks(formula, z: Tensor, labels: Tensor, constants: tuple) -> tuple[Tensor, Tensor]:
    """The formula over blocks of rows, so that temporaries take neither the time of a large batch nor its memory."""
    if torch.compiler.is_compiling() or z.numel() <= BLOCK:
        return formula(z, labels, *constants)
    block = BLOCK * torch.get_num_threads() if z.device.type == "cpu" else DEVICE_BLOCK
    rows = max(block * z.shape[0] // z.numel(), 1)
    loss, slope = torch.empty_like(z), torch.empty_like(z)
    for start in range(0, z.shape[0], rows):
        part = slice(start, start + rows)
        here = (c[part] if isinstance(c, Tensor) else c for c in constants)
        loss[part], slope[part] = formula(z[part], labels[part], *here)
    return loss, slope


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, labels, formula, constants):
        loss, slope = _by_blocks(formula, z, labels, constants)
        ctx.formula, ctx.constants = formula, constants
        ctx.save_for_backward(z, labels, slope)
        return loss

    @staticmethod
    def backward(ctx, grad):
        z, labels, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the caller wants to differentiate once more
            slope = ctx.formula(z, labels, *ctx.constants)[1]
        return grad * slope, None, None, None
