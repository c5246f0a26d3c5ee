"""Losses for label enhancement: an encoder estimates how far each label describes an image; the classifier uses it."""

import torch
from torch import Tensor

from spml_core.losses.common import check_range, prepare, reduce, same_shape, toward
from spml_core.losses.terms import cross_entropy, soft_cross_entropy

__all__ = ["beta_divergence", "smile", "smile_joint"]


def smile(
    logits: Tensor,
    enhanced: Tensor,
    observed: Tensor,
    *,
    mix: float = 0.1,
    rate: float | None = None,
    reduction: str = "mean",
) -> Tensor:
    """SMILE's classifier loss: cross-entropy with a mixture of enhanced labels and its own predictions as target.

    L = w (-t log p - (1 - t) log(1 - p)) with t = mix d + (1 - mix) r, d = sigmoid(enhanced), r = 1 and w = 1 for
    observed positives, r = p and w = rate for unobserved labels. No gradient flows through t. A verified negative has
    t = 0 and w = 1. Source: SMILE (Xu et al., NeurIPS 2022). Deviation: as printed, an observed positive also has the
    target t, which is below 1. No released value of this form was compared; see `smile_joint`.

    Args:
        enhanced: (N, C) logits of the description degrees d.
        mix: in [0, 1], share of the enhanced labels in the target.
        rate: >= 0, weight of an unobserved label; None = 1 / (C - 1), so that the unobserved labels of an image
            together weigh as much as its positive.
    """
    z, y = prepare(logits, observed)
    same_shape("enhanced", enhanced, z)
    rate = 1 / max(z.shape[-1] - 1, 1) if rate is None else rate
    check_range(0, 1, mix=mix)
    check_range(0, float("inf"), rate=rate)
    degree = torch.sigmoid(enhanced.detach().to(z.dtype))
    own = torch.where(y > 0, 1, torch.sigmoid(z.detach()))
    target = torch.where(y < 0, 0, torch.lerp(own, degree, mix))
    return reduce((rate + (1 - rate) * y.abs()) * soft_cross_entropy(z, target), reduction)


def smile_joint(
    logits: Tensor,
    enhanced: Tensor,
    observed: Tensor,
    *,
    theta: float = 1.0,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """SMILE as released with MIME: one loss for the classifier and the encoder.

    L = theta AN(p) - d log p - (1 - d) log(1 - p) + AN(d) with d = sigmoid(enhanced), AN(x) = -log x for observed
    positives and -log(1 - x) for all other labels. The gradient reaches the encoder through both terms that contain d.
    Source: the code released with MIME (Liu et al., ICML 2023). It adds 1e-5 inside the logarithms
    (`log_floor=1e-5`) and two divergences, each times 1e-5: `gaussian_divergence` and `beta_divergence`.

    Args:
        enhanced: (N, C) logits of the description degrees d.
        theta: >= 0, weight of the observed labels.
    """
    z, y = prepare(logits, observed)
    same_shape("enhanced", enhanced, z)
    check_range(0, float("inf"), theta=theta)
    e = enhanced.to(z.dtype)
    followed = soft_cross_entropy(z, torch.sigmoid(e), log_floor)
    claimed = theta * cross_entropy(toward(z, y), log_floor) + cross_entropy(toward(e, y), log_floor)
    return reduce(claimed + followed, reduction)


def beta_divergence(alpha: Tensor, beta: Tensor) -> Tensor:
    """Return the mean over all entries of KL(Beta(alpha, beta) to Beta(1, 1)), a scalar: SMILE's encoder regulariser.

    Deviation: SMILE's released code for tabular data has the wrong sign of log Gamma(alpha + beta) - log Gamma(alpha)
    - log Gamma(beta); this is the true divergence.
    """
    a, b = (x if x.dtype == torch.float64 else x.float() for x in (alpha, beta))
    log_constant = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    means = (a - 1) * torch.digamma(a) + (b - 1) * torch.digamma(b) - (a + b - 2) * torch.digamma(a + b)
    return (log_constant + means).mean()
