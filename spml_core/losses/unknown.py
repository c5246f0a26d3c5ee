"""Losses that treat unobserved labels as unknown or estimate them, and regularisers that take their place."""

import math
from collections.abc import Iterable
from numbers import Real

import torch
from torch import Tensor

from spml_core.losses.common import check_range, prepare, reduce, same_shape, toward, weigh
from spml_core.losses.terms import cross_entropy, soft_cross_entropy

__all__ = [
    "em", "em_apl", "ent_min", "epr", "expected_positives_penalty", "gaussian_divergence", "lp_norm", "role",
]  # fmt: skip


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
    z, y = prepare(logits, observed)
    check_range(0, math.inf, alpha=alpha)
    return reduce(_entropy(z, y, alpha, log_floor), reduction)


def _entropy(z: Tensor, y: Tensor, alpha: float, log_floor: float) -> Tensor:
    """Return the cross-entropy of known labels, and -alpha times the entropy of p for unobserved labels."""
    known = y.abs()
    target = y.clamp(min=0) + (1 - known) * torch.sigmoid(z)
    return (known - alpha * (1 - known)) * soft_cross_entropy(z, target, log_floor)


def ent_min(
    logits: Tensor, observed: Tensor, *, alpha: float = 0.01, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Entropy minimisation: pushes unobserved labels towards certainty, either way; the opposite of `em`.

    L = -log p for observed positives, alpha * H(p) for unobserved labels. Source: EM 4.1, B.2 ("EntMin").
    Deviation: the authors released no code for it; their code of EM adds 1e-5 inside logarithms (`log_floor=1e-5`).

    Args:
        alpha: >= 0, strength. The paper's values (EM B.2): 0.01 VOC, 0.9 COCO, 0.4 NUS-WIDE and CUB.
    """
    z, y = prepare(logits, observed)
    check_range(0, math.inf, alpha=alpha)
    return reduce(_entropy(z, y, -alpha, log_floor), reduction)


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
    z, y = prepare(logits, observed)
    same_shape("pseudo_negative", pseudo_negative, z)
    check_range(0, math.inf, alpha=alpha, beta=beta)
    soft, known = pseudo_negative.to(z.dtype), y.abs()
    unknown = (1 - known) * (1 - soft.sign())
    target = torch.lerp(torch.lerp(soft, y.clamp(min=0), known), torch.sigmoid(z), unknown)
    weight = weigh(y, beta) - (alpha + beta) * unknown
    return reduce(weight * soft_cross_entropy(z, target, log_floor), reduction)


def epr(
    logits: Tensor,
    observed: Tensor,
    *,
    expected_positives: float | None = None,
    weight: float = 1.0,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Expected positive regularisation: fits observed positives, and a mean of k predicted positives per image.

    L = -log p for observed positives, 0 for unobserved labels; weight * R_k (see `expected_positives_penalty`) is added
    to the mean. With reduction "none" every entry carries weight * R_k, so that their mean is the loss; "sum" is N*C
    times the mean. Source: Cole Eq. 6, 7; LASD A.2.2.

    Deviations: the released code takes the mean over N*C for the first part, while LASD's appendix sums over classes.
    It adds 1e-5 inside the logarithm (`log_floor=1e-5`).

    Args:
        expected_positives: k in (0, C], mean number of true labels per image; no default, since it depends on the data.
        weight: >= 0, lambda of the regulariser, 1 in the released code.
    """
    z, y = prepare(logits, observed)
    check_range(0, math.inf, weight=weight)
    known = cross_entropy(toward(z, y), log_floor) * y.abs()
    return reduce(known + weight * expected_positives_penalty(z, expected_positives), reduction)


def expected_positives_penalty(logits: Tensor, expected_positives: float | None) -> Tensor:
    """Return R_k = ((mean over images of sum over classes of p) - k)^2 / C^2, a scalar (Cole Eq. 6; LASD A.2.2).

    The mean is that of the batch: in a batch of one image, that image alone is held to k.

    Raises:
        ValueError: k is missing, or not in (0, C].
    """
    return _penalty(torch.sigmoid(logits), expected_positives)


def _penalty(p: Tensor, k: float | None) -> Tensor:
    num_classes = p.shape[-1]
    if not isinstance(k, Real) or not 0 < k <= num_classes:
        raise ValueError(
            f"expected_positives must be in (0, {num_classes}], the mean number of true labels of an image, got {k!r}: "
            "estimate it from fully labelled images, e.g. full.sum(axis=1).mean() of the validation set"
        )
    return ((p.sum(dim=-1).mean() - k) / num_classes) ** 2


def role(
    logits: Tensor, estimates: Tensor, observed: Tensor, *, expected_positives: float, log_floor: float = 0.0
) -> Tensor:
    """Regularised online label estimation, the mean over N*C.

    L = (L'(p | q) + L'(q | p)) / 2 with p from the classifier, q from the estimates and
    L'(p | q) = mean of [-log p where observed positive] + mean of -(q log p + (1 - q) log(1 - p)) + R(p). No gradient
    flows through what follows the bar. R(p) = ((mean over images of sum_c p - k) / C)^2 keeps the number of positives
    near k. Source: Cole et al., 2021; LASD A.2.2.

    Deviations: LASD's L' sums over classes, and leaves R as it is; the released code averages, as does this function. A
    verified negative, which Cole et al. do not have, costs -log(1 - p) - log(1 - q), without a cross term. The released
    code adds 1e-5 inside the logarithms (`log_floor=1e-5`).

    Args:
        estimates: (N, C) logits of the label estimates of these images.
        expected_positives: k in (0, C], true positives per image; `expected_positives_penalty` is R.
    """
    z, y = prepare(logits, observed)
    same_shape("estimates", estimates, z)
    estimates = estimates.to(z.dtype)
    positive, known = y.clamp(min=0), y.abs()
    p, q = torch.sigmoid(z), torch.sigmoid(estimates)
    # A known label has two terms, which share their logarithms: of a verified negative both are its own, of a positive
    # one is the cross term.
    own = known * (1 - positive / 2)
    toward_q, toward_p = (torch.lerp(other.detach(), positive, own) for other in (q, p))
    entropies = soft_cross_entropy(z, toward_q, log_floor) + soft_cross_entropy(
        estimates, toward_p, log_floor
    )
    penalties = _penalty(p, expected_positives) + _penalty(q, expected_positives)
    return (reduce((1 + known) * entropies, "mean") + penalties) / 2


def gaussian_divergence(mu: Tensor, std: Tensor) -> Tensor:
    """Return the mean over all entries of KL(N(mu, std) to N(0, 1)) = (mu^2 + std^2 - 1) / 2 - log std, a scalar.

    MIME's regulariser of its latent variables, added to `an`.
    """
    mu, std = (x if x.dtype == torch.float64 else x.float() for x in (mu, std))
    return ((mu.square() + std.square() - 1) / 2 - std.log()).mean()


def lp_norm(parameters: Iterable[Tensor], p: int) -> Tensor:
    """Return the sum of |theta|^p over all given tensors, a scalar: the l1 or (squared) l2 regulariser of EM 4.1, B.2.

    Raises:
        ValueError: p is neither 1 nor 2, or there are no tensors.
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p!r}")
    parameters = list(parameters)
    if not parameters:
        raise ValueError("lp_norm got no tensors: pass model.parameters()")
    return sum(theta.abs().sum() if p == 1 else theta.square().sum() for theta in parameters)
