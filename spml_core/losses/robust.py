"""The generalized robust loss of GR."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import assemble, check_range, log_prob, prepare


def gr(
    logits: Tensor,
    observed: Tensor,
    *,
    w: float,
    b: float,
    mu: float,
    sigma: float,
    q1: float = 0.01,
    q2: float = 0.01,
    q3: float = 1.0,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Generalized robust loss at one moment of training; the schedule of w, b, mu, sigma lives in `methods`.

    L = L1 for observed positives, v * (k * L2 + (1 - k) * L3) for unobserved labels, with the soft pseudo-label
    k = sigmoid(w p + b), the weight v = exp(-(p - mu)^2 / (2 sigma^2)) and the robust terms L1 = (1 - p^q1) / q1,
    L2 = (1 - p^q2) / q2, L3 = (1 - (1 - p)^q3) / q3. No gradient flows through k and v. A verified
    negative gets L3 alone. Source: GR Eq. 4, 5, 7, 11, 14.

    Deviations: the released code takes L1 = -log(p + 1e-7), which is `q1=0, log_floor=1e-7`, where the paper says
    q1 = 0.01; it stops the gradient in v too, where the paper only says so of k (so do we: Eq. 18 tests it).
    Its mean runs over the batch of N*C entries, the paper's Eq. 4 sums over classes (`reduction="sum"` divided by N).

    Args:
        w, b: slope and offset of the pseudo-label k, any real. w = 0 makes it constant; -b/w is its threshold.
        mu, sigma: centre and width (> 0) of the weight v, on the scale of p.
        q1, q2, q3: in [0, 1.5] or so, >= 0; 0 is cross-entropy, 1 is mean absolute error.
    """
    z, observed = prepare(logits, observed)
    if not sigma > 0:
        raise ValueError(f"sigma must be > 0 (width of the weight v), got {sigma}")
    p = torch.sigmoid(z.detach())
    k = torch.sigmoid(w * p + b)
    v = torch.exp(-((p - mu) ** 2) / (2 * sigma**2))
    l1, l2 = _robust("q1", z, q1, log_floor), _robust("q2", z, q2, log_floor)
    l3 = _robust("q3", -z, q3, log_floor)
    return assemble(observed, l1, v * (k * l2 + (1 - k) * l3), l3, reduction)


def _robust(name: str, z: Tensor, q: float, log_floor: float) -> Tensor:
    """(1 - p^q) / q, from the logit; its limit -log p at q = 0."""
    check_range(name, q, 0, math.inf)
    return -log_prob(z, log_floor) if q == 0 else -torch.expm1(q * logsigmoid(z)) / q
