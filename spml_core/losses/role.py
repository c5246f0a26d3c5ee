"""ROLE: classifier and label estimates learn from each other (Cole et al., CVPR 2021)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import check_range, prepare
from spml_core.losses.fused import fused, joint, row_blocks
from spml_core.losses.pseudo import log_and_slope
from spml_core.losses.unknown import check_expected, penalty_of


def role(
    logits: Tensor,
    estimates: Tensor,
    observed: Tensor,
    *,
    expected_positives: float,
    log_floor: float = 0.0,
) -> Tensor:
    """Regularised online label estimation, the mean over N*C.

    L = (L'(p | q) + L'(q | p)) / 2 with p of the classifier, q of the estimates and
    L'(p | q) = mean of [-log p where observed positive] + mean of -(q log p + (1 - q) log(1 - p)) + R(p); the condition
    carries no gradient. R(p) = ((mean over images of sum_c p - k) / C)^2 keeps the number of positives near k.
    Source: Cole et al., 2021; LASD A.2.2.

    Deviations: LASD's L' sums over classes where the released code averages (so do we), and leaves R alone. A verified
    negative, which Cole et al. do not have, costs -log(1 - p) - log(1 - q), without a cross term. The released code
    adds 1e-5 inside the logarithms (`log_floor=1e-5`).

    Args:
        estimates: (N, C) logits of the label estimates of these images.
        expected_positives: k in (0, C], true positives an image; `expected_positives_penalty` is R.
    """
    z, labels = prepare(logits, observed)
    check_range("log_floor", log_floor, 0, 1)
    y = prepare(estimates, observed)[0].to(z.dtype)
    plain = partial(_role, labels=labels, k=expected_positives, log_floor=log_floor)
    if log_floor:
        return plain(z, y)
    check_expected(expected_positives, z.shape[-1])
    return joint(partial(_role_and_slopes, labels=labels, k=expected_positives), plain, z, y)


def _role(z: Tensor, y: Tensor, labels: Tensor, k: float, log_floor: float) -> Tensor:
    positive, crossed = labels.clamp(min=0), 1 + labels.clamp(max=0)  # a verified negative has no cross term
    both = 1 + labels.abs()
    p, q = torch.sigmoid(z), torch.sigmoid(y)
    total = 0
    for own, own_p, target in ((z, p, q), (y, q, p)):
        true = torch.addcmul(positive, target.detach(), crossed)
        total = total + fused(_fit_and_slope, own, true, both, log_floor, reduction="mean")
        total = total + penalty_of(own_p, k)
    return total / 2


def _role_and_slopes(z: Tensor, y: Tensor, labels: Tensor, k: float):
    """`_role` without a floor, and its derivatives by z and y up to a factor; the penalties know the whole batch."""
    probs = torch.sigmoid(z), torch.sigmoid(y)
    gaps = (torch.stack([p.sum() for p in probs]) - k * z.shape[0]) / z.numel()
    total, slopes = z.new_zeros(()), (torch.empty_like(z), torch.empty_like(y))
    for part in row_blocks(z):
        seen = labels[part]
        positive, crossed, both = seen.clamp(min=0), 1 + seen.clamp(max=0), 1 + seen.abs()
        for own, p, other, gap, slope in zip((z, y), probs, reversed(probs), gaps, slopes, strict=True):
            x, own_p = own[part], p[part]
            true = torch.addcmul(positive, other[part], crossed)
            total += (both - true).mul_(x).addcmul_(both, logsigmoid(x), value=-1).sum()
            pull = torch.addcmul(both, 1 - own_p, 2 * gap)  # the penalty's slope is 2 gap p (1 - p)
            torch.mul(pull, own_p, out=slope[part]).sub_(true)
    share = 0.5 / z.numel()
    return total * share + gaps.square().sum() / 2, slopes, share


def _fit_and_slope(z: Tensor, true: Tensor, both: Tensor, log_floor: float):
    """-true log p - false log(1 - p), the weights adding up to `both`, and its derivative by z."""
    false = both - true
    if not log_floor:  # one logarithm serves both
        log_p = logsigmoid(z)
        return false * z - both * log_p, both * torch.exp(log_p) - true
    log_p, rise = log_and_slope(z, log_floor)
    log_not_p, fall = log_and_slope(-z, log_floor)
    return -(true * log_p + false * log_not_p), false * fall - true * rise
