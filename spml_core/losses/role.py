"""ROLE: classifier and label estimates learn from each other (Cole et al., CVPR 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from spml_core.losses.common import assemble, both_log_probs, prepare
from spml_core.losses.unknown import expected_positives_penalty


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
    y = prepare(estimates, observed)[0].to(z.dtype)
    total = 0
    for own, other in ((z, y), (y, z)):
        log_p, log_not_p = both_log_probs(own, log_floor)
        cross = -torch.lerp(log_not_p, log_p, torch.sigmoid(other.detach()))
        fit = assemble(labels, cross - log_p, cross, -2 * log_not_p, "mean")
        total = total + fit + expected_positives_penalty(own, expected_positives)
    return total / 2
