"""Losses that compare the labels of an image or of a class with each other, so that no label has a loss of its own.

With reduction "none", the cost of a comparison is assigned to the entries that it is attributed to, so that the mean
over entries is the loss; "sum" is N*C times the mean.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from spml_core.losses.common import check_range, prepare, reduce
from spml_core.losses.terms import log_prob

__all__ = ["pr", "pu_mlc", "two_way"]

NOTHING = -1e30  # replaces a logit that a maximum must ignore; finite, since infinity has a gradient of NaN


def pr(logits: Tensor, observed: Tensor, *, reduction: str = "mean") -> Tensor:
    """Pairwise ranking: each observed positive of an image against each of its other labels.

    L = sum over the other labels j of the image of max(0, 1 - p + p_j) for an observed positive, 0 for other labels.
    Verified negatives count among the others. Source: Cole et al., CVPR 2021, in their released code. No deviation.

    Probabilities lie in [0, 1], so the hinge is never negative, and the sum over the m other labels is
    m (1 - p) + sum of p_j. No pair has to be formed.
    """
    z, y = prepare(logits, observed)
    positive = y.clamp(min=0)
    other = 1 - positive
    their = (other * torch.sigmoid(z)).sum(-1, keepdim=True)
    return reduce(positive * (other.sum(-1, keepdim=True) * torch.sigmoid(-z) + their), reduction)


def two_way(
    logits: Tensor, observed: Tensor, *, t_pos: float = 4.0, t_neg: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Two-way multi-label loss: observed positives against all other labels, by class and by image.

    L = mean over classes of softplus(t_neg log sum exp(z / t_neg) + t_pos log sum exp(-z / t_pos)), the first sum over
    the unobserved images of the class, the second over its observed positives; plus the same with images and classes
    exchanged. The means run over the classes or images with an observed positive in the batch; one without an
    unobserved label contributes 0. Verified negatives count as unobserved. Source: Kobayashi, CVPR 2023, Eq. 6 to 9.

    The loss is not divided by N*C; with reduction "none", each entry has the share of its class and of its image. The
    only deviation: for a label that is left out, the released code puts -100 where this has minus infinity.

    Args:
        t_pos, t_neg: > 0, temperatures of observed positives and of the rest.
    """
    z, y = prepare(logits, observed)
    check_range(1e-6, math.inf, t_pos=t_pos, t_neg=t_neg)
    positive = y.clamp(min=0)
    w = z * (positive * (-1 / t_pos - 1 / t_neg) + 1 / t_neg)
    entries = sum(_by_group(w, positive, dim, t_pos, t_neg) for dim in (-2, -1))
    return reduce(entries.expand_as(z), reduction)


def _by_group(w: Tensor, positive: Tensor, dim: int, t_pos: float, t_neg: float) -> Tensor:
    """Return the shares of the classes (dim -2) or images (dim -1) in the loss, from signed and scaled logits.

    For speed, both sums of a group share one exp of each logit, less the largest logit of its own kind.
    """
    both, fixed = (positive, 1 - positive), w.detach()
    most = [torch.lerp(fixed.new_tensor(NOTHING), fixed, kind).amax(dim, keepdim=True) for kind in both]
    e = torch.exp(w - torch.lerp(most[1], most[0], positive))
    # The largest term of a sum is 1. A sum without terms is 0; it is raised to 1, whose logarithm is finite.
    sums = [((e * kind).sum(dim, keepdim=True) + (1 - kind.amax(dim, keepdim=True))).log() for kind in both]
    margin = t_pos * (most[0] + sums[0]) + t_neg * (most[1] + sums[1])
    groups = positive.amax(dim, keepdim=True).sum().clamp(min=1)  # with an observed positive
    return softplus(margin) * (margin.numel() / groups)


def pu_mlc(
    logits: Tensor, observed: Tensor, *, alpha: float = 2.0, gamma: float = 0.85, reduction: str = "mean"
) -> Tensor:
    """Positive and unlabelled multi-label classification, by the mean prediction of each class.

    L = sum over classes of m^gamma log m - mean over its observed positives of log q, with q = sigmoid(z / tau),
    m = the mean of q over the batch, and tau = min(1, alpha * the standard deviation of z over the batch). No gradient
    flows through tau and m^gamma. Source: Yuan et al., ICME 2024.

    With reduction "none" every entry has C times the loss of its class. A verified negative, which the paper does not
    have, counts as unobserved. Deviations: the released code adds 1e-10 inside each logarithm; tau is 1 here where all
    logits of a class are equal, as in a batch of one image, and at least 1e-6.

    Args:
        alpha: > 0, factor of the temperature. The paper's values: 2 VOC, 1 COCO.
        gamma: >= 0, exponent of the weight. The paper's values: 0.85 VOC, 0.55 COCO.
    """
    z, y = prepare(logits, observed)
    check_range(1e-6, math.inf, alpha=alpha)
    check_range(0, math.inf, gamma=gamma)
    spread = alpha * z.detach().std(-2, correction=0, keepdim=True)
    log_q = log_prob(z / torch.where(spread > 0, spread.clamp(1e-6, 1), 1))
    log_mean = log_q.logsumexp(-2, keepdim=True) - math.log(z.shape[-2])
    positive = y.clamp(min=0)
    claimed = (positive * log_q).sum(-2, keepdim=True) / positive.sum(-2, keepdim=True).clamp(min=1)
    entries = (gamma * log_mean.detach()).exp() * log_mean - claimed
    return reduce((z.shape[-1] * entries).expand_as(z), reduction)
