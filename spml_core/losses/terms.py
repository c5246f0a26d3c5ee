"""The terms that losses are made of: functions of one logit z, elementwise, with p = sigmoid(z).

Each is written for a label claimed true; the term of a label claimed false is, for `cross_entropy`, `focal_term` and
`robust_term`, the same function of -z. `unified` takes them, or any others, as L1, L2, L3.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import both_log_probs, log_prob


def cross_entropy(z: Tensor, log_floor: float = 0.0) -> Tensor:
    """-log(p + log_floor)."""
    return -log_prob(z, log_floor)


def focal_term(z: Tensor, gamma: float | Tensor) -> Tensor:
    """-(1 - p)^gamma log p (Hill Eq. 3); of z - margin, Focal margin (Hill Eq. 11)."""
    log_p = logsigmoid(z)
    return -torch.exp(gamma * (log_p - z)) * log_p


def negative_entropy(z: Tensor, log_floor: float = 0.0) -> Tensor:
    """p log p + (1 - p) log(1 - p) = -H(p) (EM Eq. 4)."""
    log_p, log_not_p = both_log_probs(z, log_floor)
    return torch.sigmoid(z) * log_p + torch.sigmoid(-z) * log_not_p


def squared_error(z: Tensor) -> Tensor:
    """p^2, for a label claimed false (Hill III-C)."""
    return torch.sigmoid(z) ** 2


def hill_term(z: Tensor, lam: float = 1.5) -> Tensor:
    """(lam - p) p^2, for a label claimed false (Hill Eq. 5)."""
    p = torch.sigmoid(z)
    return (lam - p) * p**2


def robust_term(z: Tensor, q: float, log_floor: float = 0.0) -> Tensor:
    """(1 - p^q) / q (GR Eq. 14); -log(p + log_floor), its limit without a floor, at q = 0."""
    return -torch.expm1(q * logsigmoid(z)) / q if q else cross_entropy(z, log_floor)
