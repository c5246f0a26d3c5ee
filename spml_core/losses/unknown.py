"""Losses that take unobserved labels for unknown, and the regularisers that stand in for them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from spml_core.losses.common import both_log_probs, check_range, log_prob, prepare, reduce, toward
from spml_core.losses.fused import fused


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
    z, labels = prepare(logits, observed)
    check_range("alpha", alpha, 0, math.inf)
    check_range("log_floor", log_floor, 0, 1)
    return fused(_entropy_and_slope, z, labels, -alpha, log_floor, reduction=reduction)


def ent_min(
    logits: Tensor, observed: Tensor, *, alpha: float = 0.01, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Entropy minimisation: unobserved labels shall become certain, one way or the other; the opposite of `em`.

    L = -log p for observed positives, alpha * H(p) for unobserved labels. Source: EM 4.1, B.2 ("EntMin").
    Deviation: the authors released no code of it; that of EM adds 1e-5 inside logarithms (`log_floor=1e-5`).

    Args:
        alpha: >= 0, strength. The paper's values (EM B.2): 0.01 VOC, 0.9 COCO, 0.4 NUS-WIDE and CUB.
    """
    z, labels = prepare(logits, observed)
    check_range("alpha", alpha, 0, math.inf)
    check_range("log_floor", log_floor, 0, 1)
    return fused(_entropy_and_slope, z, labels, alpha, log_floor, reduction=reduction)


def _entropy_and_slope(z: Tensor, labels: Tensor, strength: float, log_floor: float):
    """-log of what a known label claims, strength * H(p) for the others, and the derivative by z.

    H is the same for z and -z, so everything is a function of the logit of the claim.
    """
    sign = 2 * labels.clamp(min=0) - 1
    claim, known = z * sign, labels.abs()
    log_p, log_not_p = both_log_probs(claim, log_floor)
    p = torch.sigmoid(claim)
    not_p = 1 - p
    entropy = -p * log_p - not_p * log_not_p
    if log_floor:
        floored = p / (p + log_floor)
        gap = log_p - log_not_p + floored - not_p / (not_p + log_floor)
    else:
        floored, gap = 1, claim
    slope = torch.lerp(-strength * p * not_p * gap, -not_p * floored, known)
    return torch.lerp(strength * entropy, -log_p, known), slope * sign


def epr(
    logits: Tensor,
    observed: Tensor,
    *,
    expected_positives: float | None = None,
    weight: float = 1.0,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Expected positive regularisation: observed positives, and a batch that predicts k positives an image.

    L = -log p for observed positives, 0 for unobserved labels; weight * R_k (see `expected_positives_penalty`) is added
    to the mean. With reduction "none" every entry carries weight * R_k, so that their mean is the loss; "sum" is N*C
    times the mean. Source: Cole Eq. 6, 7; LASD A.2.2.

    Deviations: the released code takes the mean over N*C for the first part, where LASD's appendix sums over classes.
    It adds 1e-5 inside the logarithm (`log_floor=1e-5`).

    Args:
        expected_positives: k in (0, C], mean number of true labels an image has; no default, it belongs to the data.
        weight: >= 0, lambda of the regulariser, 1 in the released code.
    """
    z, labels = prepare(logits, observed)
    check_range("weight", weight, 0, math.inf)
    known = -log_prob(toward(z, labels), log_floor) * labels.abs()
    return reduce(known + weight * expected_positives_penalty(z, expected_positives), reduction)


def expected_positives_penalty(logits: Tensor, expected_positives: float | None) -> Tensor:
    """R_k = ((mean over images of sum over classes of p) - k)^2 / C^2, a scalar (Cole Eq. 6; LASD A.2.2).

    It looks at a batch as a whole, so a batch of one image is held to k by itself.

    Raises:
        ValueError: k is missing, or not in (0, C].
    """
    return penalty_of(torch.sigmoid(logits), expected_positives)


def penalty_of(p: Tensor, expected_positives: float | None) -> Tensor:
    """`expected_positives_penalty` of probabilities."""
    check_expected(expected_positives, p.shape[-1])
    predicted = p.sum(dim=-1).mean()
    return ((predicted - expected_positives) / p.shape[-1]) ** 2


def check_expected(k: float | None, num_classes: int) -> None:
    """Raise ValueError unless k is in (0, C]."""
    if isinstance(k, str | None) or not 0 < k <= num_classes:
        raise ValueError(
            f"expected_positives must be in (0, {num_classes}], the mean number of true labels of an image, got {k!r}: "
            "estimate it from fully labelled images, e.g. full.sum(axis=1).mean() of the validation set"
        )


def lp_norm(parameters: Iterable[Tensor], p: int) -> Tensor:
    """Sum of |theta|^p over all given tensors, a scalar: the l1 or (squared) l2 regulariser of EM 4.1, B.2.

    Raises:
        ValueError: p is neither 1 nor 2, or there are no tensors.
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p!r}")
    parameters = list(parameters)
    if not parameters:
        raise ValueError("lp_norm got no tensors: pass model.parameters()")
    return sum(theta.abs().sum() if p == 1 else theta.square().sum() for theta in parameters)
