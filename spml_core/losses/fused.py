"""A loss whose forward pass also computes its derivative, so that the backward pass is one multiplication."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spml_core.losses.common import reduce

Formula = Callable[..., tuple[Tensor, Tensor]]


def fused(
    formula: Formula,
    z: Tensor,
    labels: Tensor,
    *constants,
    reduction: str,
    in_place: Formula | None = None,
) -> Tensor:
    """formula(z, labels, *constants) is (loss, its derivative by z), entry by entry; returns the reduced loss.

    Constants are numbers, or tensors of z's shape without a gradient.

    Autograd would keep each intermediate tensor and walk back through all of them; here one tensor is kept. A second
    derivative is taken through the formula of the first, so the formula must be written in differentiable operations.

    Args:
        in_place: the same numbers in operations that autograd cannot follow, for the forward pass of an eager CPU or
            GPU; it must leave its arguments as they are.
    """
    compiling = torch.compiler.is_compiling()
    # Under torch.func a Function needs setup_context, which costs as much as a third of a small batch: ask autograd.
    if not compiling and _functorch():
        return reduce(formula(z, labels, *constants)[0], reduction)
    fast = formula if compiling or in_place is None else in_place
    if torch.is_grad_enabled() and z.requires_grad:
        return _Fused.apply(z, labels, formula, fast, constants, reduction)
    with torch.no_grad():
        return _by_blocks(fast, z, labels, constants, reduction)[0]


_functorch = torch._C._are_functorch_transforms_active

# Entries a block: on a CPU few enough (for each thread) for a dozen temporaries in its second-level cache, elsewhere
# enough to keep a device busy.
BLOCK, DEVICE_BLOCK = 2**15, 2**22


def _by_blocks(
    formula: Formula, z: Tensor, labels: Tensor, constants: tuple, reduction: str
) -> tuple[Tensor, Tensor]:
    """Reduced loss and slope, block of rows by block, so that temporaries cost neither time nor memory of a batch."""
    if torch.compiler.is_compiling() or z.numel() <= BLOCK:
        loss, slope = formula(z, labels, *constants)
        return reduce(loss, reduction), slope
    block = BLOCK * torch.get_num_threads() if z.device.type == "cpu" else DEVICE_BLOCK
    rows = max(block * z.shape[0] // z.numel(), 1)
    slope, losses = torch.empty_like(z), []
    for start in range(0, z.shape[0], rows):
        part = slice(start, start + rows)
        here = (c[part] if isinstance(c, Tensor) else c for c in constants)
        loss, slope[part] = formula(z[part], labels[part], *here)
        losses.append(loss if reduction == "none" else loss.sum())
    if reduction == "none":
        return torch.cat(losses), slope
    total = reduce(torch.stack(losses), "sum" if reduction == "mean" else reduction)
    return total / z.numel() if reduction == "mean" else total, slope


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, labels, formula, fast, constants, reduction):
        loss, slope = _by_blocks(fast, z, labels, constants, reduction)
        ctx.formula, ctx.constants, ctx.mean = formula, constants, reduction == "mean"
        ctx.save_for_backward(z, labels, slope)
        return loss

    @staticmethod
    def backward(ctx, grad):
        z, labels, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the caller wants to differentiate once more
            slope = ctx.formula(z, labels, *ctx.constants)[1]
        if ctx.mean:
            grad = grad / z.numel()
        return grad * slope, None, None, None, None, None
