"""What every loss shares: input checks, the floored logarithm, and the choice of term by label."""

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


def prepare(logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
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
    return (logits if logits.dtype == torch.float64 else logits.float()), observed


def assemble(observed: Tensor, positive: Tensor, unknown: Tensor, negative: Tensor, reduction: str) -> Tensor:
    loss = torch.where(observed > 0, positive, torch.where(observed < 0, negative, unknown))
    if reduction == "none":
        return loss
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}: use one of {', '.join(REDUCTIONS)}")
    return loss.mean() if reduction == "mean" else loss.sum()


def check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, str | None) or not low <= value <= high or value == math.inf:
        end = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must be a number in [{low}, {high}{end}, got {value!r}")
