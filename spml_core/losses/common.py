"""What all losses share: input checks, labels as numbers, the reduction, and compilation."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

REDUCTIONS = ("mean", "sum", "none")


def prepare(logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return z and y, both (N, C): checked logits in float32 or float64, and labels as numbers of the same type.

    Labels enter a loss by arithmetic, not by a mask: on a CPU a comparison and a `where` take longer than an `exp`.
    """
    for name, value in (("logits", logits), ("observed", observed)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}: pass it through torch.as_tensor first")
    same_shape("observed", observed, logits)
    if logits.device != observed.device:
        raise ValueError(f"logits are on {logits.device}, observed on {observed.device}: move them together")
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}: pass the model's raw output")
    if not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()):
        if logits.ndim != 2:  # within torch.func.vmap, logits of one image are (C,)
            raise ValueError(f"logits must be (N, C), images by classes; got shape {tuple(logits.shape)}")
        if observed.is_floating_point():
            _check_labels(observed)
    z = logits if logits.dtype == torch.float64 else logits.float()
    return z, observed.to(z.dtype)


def _check_labels(observed: Tensor) -> None:
    """Raise ValueError for a label other than 1, 0 or -1: losses read soft labels differently, and NaN spreads."""
    message = (
        "observed must be 1, 0 or -1 (positive, unobserved, verified negative): soft labels and NaN are refused. Pass "
        "soft pseudo-labels to em_apl; integer labels need no check"
    )
    if observed.device.type == "cpu":
        if not torch.equal(observed, observed.sign()):
            found = observed[observed != observed.sign()][0].item()
            raise ValueError(f"{message}; got {found}")
    elif observed.device.type != "meta":  # without waiting for the device
        torch._assert_async((observed == observed.sign()).all(), message)


def same_shape(name: str, value: Tensor, logits: Tensor) -> None:
    """Raise ValueError unless a tensor has the logits' shape."""
    if value.shape != logits.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and {name} {tuple(value.shape)} differ in shape; both are (N, C)"
        )


def check_range(low: float, high: float, **values: float) -> None:
    """Raise ValueError unless each value is a number in [low, high], or [low, infinity)."""
    for name, value in values.items():
        if not isinstance(value, Real) or not low <= value <= high or value == math.inf:
            end = ")" if high == math.inf else "]"
            raise ValueError(f"{name} must be a number in [{low}, {high}{end}, got {value!r}")


def toward(z: Tensor, y: Tensor) -> Tensor:
    """Return the logit of the value each label is taken to have: z for a positive, -z if unobserved or negative."""
    return z * (2 * y.clamp(min=0) - 1)


def weigh(y: Tensor, unobserved: float) -> Tensor:
    """Return the weight of each label: 1 for an observed positive or a verified negative, else `unobserved`."""
    return unobserved + (1 - unobserved) * y.abs()


def as_positive(observed: Tensor, positive: Tensor) -> Tensor:
    """Return `observed` with the unobserved labels in a mask set to 1; observed labels do not change."""
    return torch.where(positive & (observed == 0), 1, observed)


def reduce(loss: Tensor, reduction: str) -> Tensor:
    """Return the loss of a batch, reduced from the losses of its entries."""
    if reduction == "none":
        return loss
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}: use one of {', '.join(REDUCTIONS)}")
    total = loss.sum()
    # The gradient of sum() is one number expanded to (N, C); that of Tensor.mean() is written out N*C times.
    return total / loss.numel() if reduction == "mean" else total


def compiled(loss: Callable) -> Callable:
    """Return the same loss with forward and backward pass compiled by torch.compile.

    The first call compiles, and so does the second one with other hyperparameters, such as those of a schedule; later
    values do not. Each compilation takes seconds and, on a CPU, needs a C++ compiler. Unlike the loss itself, the
    compiled one does not check labels and has no second derivative.

    Args:
        loss: a function of this package, such as `gr`.
    """
    return torch.compile(loss)
