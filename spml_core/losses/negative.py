"""Losses that take unobserved labels for negatives, or for unknown."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spml_core.losses.common import assemble, check_range, log_prob, prepare


def bce(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy on full labels, the upper bound of every table: -log p where 1, -log(1 - p) elsewhere.

    The same formula as `an`; the name says that the caller observed everything. Source: EM Table 1 ("full labels").
    """
    return an(logits, observed, log_floor=log_floor, reduction=reduction)


def an(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Assume negative: binary cross-entropy with every unobserved label taken for a negative.

    L = -log p for observed positives, -log(1 - p) for the rest. Source: Cole Eq. 2; EM Eq. 1.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).
    """
    return wan(logits, observed, weight=1.0, log_floor=log_floor, reduction=reduction)


def wan(
    logits: Tensor,
    observed: Tensor,
    *,
    weight: float | None = None,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Weak assume negative: `an` with the assumed negatives weighted down.

    L = -log p for observed positives, -weight * log(1 - p) for unobserved labels. Source: Cole Eq. 4.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).

    Args:
        weight: in [0, 1]; None = 1/(C - 1), so that one positive weighs as much as all assumed negatives.
    """
    z, observed = prepare(logits, observed)
    if weight is None:
        if z.shape[-1] < 2:
            raise ValueError("wan needs at least 2 classes for its weight 1/(C - 1); give weight= explicitly")
        weight = 1 / (z.shape[-1] - 1)
    check_range("weight", weight, 0, 1)
    negative = -log_prob(-z, log_floor)
    return assemble(observed, -log_prob(z, log_floor), weight * negative, negative, reduction)


def em(
    logits: Tensor, observed: Tensor, *, alpha: float = 0.2, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Entropy maximisation: unobserved labels are acknowledged as unknown.

    L = -log p for observed positives, alpha * (p log p + (1 - p) log(1 - p)) = -alpha * H(p) for unobserved labels, so
    the value can be negative. Source: EM Eq. 3, 4.
    Deviation: the released code adds 1e-5 inside the logarithms (`log_floor=1e-5`).

    Args:
        alpha: >= 0, strength of the entropy. The paper's values (EM Table 6): 0.2 VOC, 0.1 COCO and NUS-WIDE, 0.01 CUB.
    """
    z, observed = prepare(logits, observed)
    check_range("alpha", alpha, 0, math.inf)
    log_p, log_not_p = log_prob(z, log_floor), log_prob(-z, log_floor)
    p = torch.sigmoid(z)
    unknown = alpha * (p * log_p + torch.sigmoid(-z) * log_not_p)
    return assemble(observed, -log_p, unknown, -log_not_p, reduction)
