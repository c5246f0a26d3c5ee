"""What every loss shares: input checks, labels as numbers, the floored logarithm, the reduction."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

REDUCTIONS = ("mean", "sum", "none")


def log_prob(z: Tensor, log_floor: float) -> Tensor:
    """log(sigmoid(z) + log_floor), finite at any logit."""
    check_range("log_floor", log_floor, 0, 1)
    log_prob = logsigmoid(z)
    return torch.logaddexp(log_prob, log_prob.new_tensor(math.log(log_floor))) if log_floor else log_prob


def both_log_probs(z: Tensor, log_floor: float) -> tuple[Tensor, Tensor]:
    """log(p + log_floor) and log(1 - p + log_floor); without a floor one logarithm serves both."""
    log_p = log_prob(z, log_floor)
    return log_p, log_prob(-z, log_floor) if log_floor else log_p - z


def prepare(logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Checked logits, and labels as numbers of the same type.

    Labels enter a loss by arithmetic, never by a mask: on a CPU a comparison or a `where` takes longer than an `exp`.
    """
    for name, value in (("logits", logits), ("observed", observed)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}: pass it through torch.as_tensor first")
    if logits.shape != observed.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and observed {tuple(observed.shape)} differ in shape; both are (N, C)"
        )
    if logits.device != observed.device:
        raise ValueError(f"logits are on {logits.device}, observed on {observed.device}: move them together")
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}: pass the model's raw output")
    z = logits if logits.dtype == torch.float64 else logits.float()
    return z, observed.to(z.dtype)


def toward(z: Tensor, labels: Tensor) -> Tensor:
    """The logit of what each label claims: z for a positive, -z for an unobserved label and a negative."""
    return z * (2 * labels.clamp(min=0) - 1)


def weigh(labels: Tensor, unobserved: float) -> Tensor:
    """Weight of each label: 1 if confirmed or verified, `unobserved` if not."""
    return unobserved + (1 - unobserved) * labels.abs()


def exceeds(p: Tensor, threshold: float) -> Tensor:
    """1 where p > threshold, else 0, as numbers of p's type: the sign of a difference is as exact as a comparison."""
    return (p - threshold).clamp(min=0).sign()


def as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as 0 and 1; bytes convert three times as fast as bools."""
    return mask.bool().view(torch.uint8).to(dtype)


def assemble(observed: Tensor, positive: Tensor, unknown: Tensor, negative: Tensor, reduction: str) -> Tensor:
    """Reduced choice of one of three terms by label; all of them must be finite."""
    return reduce(
        torch.where(observed > 0, positive, torch.where(observed < 0, negative, unknown)), reduction
    )


def reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}: use one of {', '.join(REDUCTIONS)}")
    total = loss.sum()
    # The gradient of a sum is one number seen N*C times; that of Tensor.mean() is written out N*C times.
    return total / loss.numel() if reduction == "mean" else total


def check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, str | None) or not low <= value <= high or value == math.inf:
        end = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must be a number in [{low}, {high}{end}, got {value!r}")
