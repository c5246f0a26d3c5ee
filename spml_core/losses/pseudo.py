"""Losses on pseudo-labels that a method keeps for each training image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spml_core.losses.common import assemble, both_log_probs, check_range, prepare
from spml_core.losses.negative import an
from spml_core.losses.select import as_positive
from spml_core.losses.terms import cross_entropy, negative_entropy


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
    s = pseudo_negative.to(z.dtype)
    log_p, log_not_p = both_log_probs(z, log_floor)
    pseudo = -torch.lerp(log_not_p, log_p, s)
    unknown = torch.where(s > 0, beta * pseudo, alpha * negative_entropy(z, log_floor))
    return assemble(labels, -log_p, unknown, -log_not_p, reduction)


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
    false = cross_entropy(-z, log_floor)
    unknown = false.masked_fill(~negative, 0)
    return assemble(labels, cross_entropy(z, log_floor), unknown, false, reduction)


def pseudo_label(
    logits: Tensor,
    observed: Tensor,
    pseudo_positive: Tensor,
    *,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """`an` on labels completed by a trained model: an unobserved label in `pseudo_positive` counts as positive.

    Source: Hill 4.1, after Lee, 2013.

    Args:
        pseudo_positive: (N, C) bool.
    """
    return an(logits, as_positive(observed, pseudo_positive), log_floor=log_floor, reduction=reduction)
