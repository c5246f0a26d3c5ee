"""A loss whose forward pass also computes its derivative, so that the backward pass is one multiplication."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, wraps

import torch
from torch import Tensor

from spml_core.losses.common import reduce

Formula = Callable[..., tuple[Tensor, Tensor]]


def compiled(loss: Callable) -> Callable:
    """The same loss with its formula compiled, and everything around it eager.

    Unlike `torch.compile(loss)` it keeps the second derivative, and leaves out most of what that does around a kernel
    at each call, which at small batches takes longer than the kernel. The first call compiles, and the second with
    other numbers (seconds each). A loss that is not written as a fused formula stays eager.

    Args:
        loss: a function of this package, such as `gr`.
    """

    @wraps(loss)
    def call(*args, **options):
        token = _COMPILE.set(True)
        try:
            return loss(*args, **options)
        finally:
            _COMPILE.reset(token)

    return call


_COMPILE: ContextVar[bool] = ContextVar("compile", default=False)


@cache
def _compiled(formula: Formula, reduction: str) -> Formula:
    """Reduced loss and slope in one kernel."""

    def reduced(z, labels, *constants):
        loss, slope = formula(z, labels, *constants)
        return reduce(loss, reduction), slope

    return torch.compile(reduced)


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
    fast = formula if compiling or in_place is None or _COMPILE.get() else in_place
    if torch.is_grad_enabled() and z.requires_grad:
        return _Fused.apply(z, labels, formula, fast, constants, reduction)
    with torch.no_grad():
        return _by_blocks(fast, z, labels, constants, reduction)[0]


def joint(direct: Callable, plain: Callable, *inputs: Tensor) -> Tensor:
    """A scalar loss of several tensors that each may need a gradient, as the estimates of labels beside the logits.

    direct(*inputs) is (loss, [a tensor for each input], factor), whose products are the derivatives by the inputs;
    plain(*inputs) is the same loss in operations that autograd can follow, for second derivatives, torch.func and
    torch.compile.
    """
    if torch.compiler.is_compiling() or _functorch():
        return plain(*inputs)
    return _Joint.apply(direct, plain, *inputs)


def is_eager_cpu(z: Tensor) -> bool:
    """Whether z has values to look at here and now: it is neither traced nor transformed, nor elsewhere."""
    return (
        z.device.type == "cpu" and type(z) is Tensor and not (torch.compiler.is_compiling() or _functorch())
    )


def row_blocks(z: Tensor) -> list[slice]:
    """The rows of z in pieces whose temporaries stay in a processor's cache, or keep a device busy."""
    block = BLOCK * torch.get_num_threads() if z.device.type == "cpu" else DEVICE_BLOCK
    rows = max(block * z.shape[0] // max(z.numel(), 1), 1)
    return [slice(start, start + rows) for start in range(0, z.shape[0], rows)]


_functorch = torch._C._are_functorch_transforms_active

# Entries a block: on a CPU few enough (for each thread) for a dozen temporaries in its second-level cache, elsewhere
# enough to keep a device busy.
BLOCK, DEVICE_BLOCK = 2**15, 2**22


def _by_blocks(
    formula: Formula, z: Tensor, labels: Tensor, constants: tuple, reduction: str
) -> tuple[Tensor, Tensor]:
    """Reduced loss and slope, block of rows by block, so that temporaries cost neither time nor memory of a batch."""
    if _COMPILE.get() and not torch.compiler.is_compiling():
        return _compiled(formula, reduction)(z, labels, *constants)
    if torch.compiler.is_compiling() or z.numel() <= BLOCK:
        loss, slope = formula(z, labels, *constants)
        return reduce(loss, reduction), slope
    slope, losses = torch.empty_like(z), []
    for part in row_blocks(z):
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


class _Joint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, direct, plain, *inputs):
        loss, slopes, factor = direct(*inputs)
        ctx.plain, ctx.factor = plain, factor
        ctx.save_for_backward(*inputs, *slopes)
        return loss

    @staticmethod
    def backward(ctx, grad):
        number, needed = len(ctx.saved_tensors) // 2, ctx.needs_input_grad[2:]
        inputs, slopes = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        if torch.is_grad_enabled():  # create_graph=True: the caller wants to differentiate once more
            wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
            found = iter(torch.autograd.grad(ctx.plain(*inputs), wanted, grad, create_graph=True))
            return None, None, *(next(found) if need else None for need in needed)
        grad = grad * ctx.factor
        return None, None, *(grad * s if need else None for s, need in zip(slopes, needed, strict=True))
