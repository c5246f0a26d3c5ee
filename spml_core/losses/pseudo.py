"""Losses on pseudo-labels that a method keeps for each training image."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import as_numbers, check_range, log_prob, prepare
from spml_core.losses.focal import base_loss
from spml_core.losses.fused import fused
from spml_core.losses.select import as_positive


def em_apl(
    logits: Tensor,
    observed: Tensor,
    pseudo_negative: Tensor,
    *,
    alpha: float = 0.2,
    beta: float = 0.02,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Entropy maximisation with soft negative pseudo-labels s.

    L = -log p for observed positives; for unobserved labels beta * -(s log p + (1 - s) log(1 - p)) where a pseudo-label
    s > 0 was recorded, -alpha * H(p) elsewhere. Source: EM Eq. 3, 7, 8.
    Deviation: the released code adds 1e-5 inside the logarithms (`log_floor=1e-5`).

    Args:
        pseudo_negative: (N, C) soft labels in (0, 1], 0 where there is none.
        alpha: >= 0, strength of the entropy.
        beta: >= 0, weight of the pseudo-labels.
    """
    z, labels = prepare(logits, observed)
    check_range("alpha", alpha, 0, math.inf)
    check_range("beta", beta, 0, math.inf)
    check_range("log_floor", log_floor, 0, 1)
    soft = pseudo_negative.to(z.dtype)
    return fused(_em_apl_and_slope, z, labels, soft, alpha, beta, log_floor, reduction=reduction)


def _em_apl_and_slope(z: Tensor, labels: Tensor, soft: Tensor, alpha: float, beta: float, log_floor: float):
    """Each term is a weight times (1 - t) log(claimed) + t log(other): t is 0, s, or the probability of the other."""
    known = labels.abs()
    pseudo = soft.sign() * (1 - known)
    unknown = 1 - known - pseudo
    sign = 2 * labels.clamp(min=0) - 1
    claim = z * sign
    p_other = torch.sigmoid(-claim)
    t = torch.addcmul(soft * pseudo, p_other, unknown)
    weight = torch.sub(alpha * unknown - known, pseudo, alpha=beta)
    if log_floor:
        claimed, rise = log_and_slope(claim, log_floor)
        other, fall = log_and_slope(-claim, log_floor)
        value, slope, gap = torch.lerp(claimed, other, t), rise - t * (rise + fall), claimed - other
    else:  # the two logarithms differ by the logit
        value, slope, gap = torch.addcmul(logsigmoid(claim), t, claim, value=-1), p_other - t, claim
    slope = torch.addcmul(slope, unknown * gap, p_other * (1 - p_other))
    return weight * value, weight * sign * slope


def en(
    logits: Tensor, observed: Tensor, negative: Tensor, *, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Expected negative: cross-entropy on observed positives and pseudo-negatives, nothing on other labels.

    L = -log p for observed positives, -log(1 - p) for unobserved labels in `negative`, 0 for the rest.
    Source: GR App. B, Eq. 20. Deviation: no released code was compared.

    Args:
        negative: (N, C) bool.
    """
    z, labels = prepare(logits, observed)
    weight = torch.maximum(labels.abs(), as_numbers(negative, z.dtype))
    return weighted_an(z, labels, weight, log_floor, reduction)


def weighted_an(z: Tensor, labels: Tensor, weight: Tensor, log_floor: float, reduction: str) -> Tensor:
    """`an` with a weight (N, C) of each entry, for what `prepare` returns."""
    check_range("log_floor", log_floor, 0, 1)
    return fused(_weighted_an_and_slope, z, labels, weight, log_floor, reduction=reduction)


def _weighted_an_and_slope(z: Tensor, labels: Tensor, weight: Tensor, log_floor: float):
    sign = 2 * labels.clamp(min=0) - 1
    claimed, rise = log_and_slope(z * sign, log_floor)
    return -weight * claimed, -weight * sign * rise


def log_and_slope(z: Tensor, log_floor: float) -> tuple[Tensor, Tensor]:
    """log(p + log_floor) and its derivative by z."""
    not_p = torch.sigmoid(-z)
    if not log_floor:
        return logsigmoid(z), not_p
    p = torch.sigmoid(z)
    return log_prob(z, log_floor), p * not_p / (p + log_floor)


def pseudo_label(
    logits: Tensor,
    observed: Tensor,
    pseudo_positive: Tensor,
    *,
    base: str = "bce",
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """A base loss on labels completed by a trained model: an unobserved label in `pseudo_positive` is a positive.

    Source: Hill 4.1, after Lee, 2013; Hill Table VII (other bases than `an`).

    Args:
        pseudo_positive: (N, C) bool.
        base: "bce" (`an`), "focal", "asl" or "focal_margin", each with the defaults of its function.
        log_floor: of base "bce"; the others have none.
    """
    loss = base_loss(base)
    if base != "bce" and log_floor:
        raise ValueError(f"log_floor={log_floor} is for base 'bce', got base {base!r}: leave it 0")
    floor = {"log_floor": log_floor} if base == "bce" else {}
    return loss(logits, as_positive(observed, pseudo_positive), **floor, reduction=reduction)
