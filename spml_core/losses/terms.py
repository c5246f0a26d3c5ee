"""The terms that losses are made of: elementwise functions of a logit z, with p = sigmoid(z).

Unless noted, a term is that of a label taken as positive. For `cross_entropy`, `focal_term` and `robust_term`, the term
of a label taken as negative is the same function of -z. `unified` accepts these terms, or any others, as L1, L2, L3.

The numerics live here: value and gradient are finite for |z| up to 1e4, and exact to the last bits. In eager mode,
torch's own kernels for log-sigmoid and expm1 are fastest. When compiled, each of them takes as long as three exp, so
the compiler gets the same functions built from one exp and one logarithm.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import check_range


def log_prob(z: Tensor, log_floor: float = 0.0) -> Tensor:
    """Return log(p + log_floor)."""
    check_range(0, 1, log_floor=log_floor)
    if torch.compiler.is_compiling():
        e = torch.exp(-z.abs())
        u = 1 + e
        # log(u) + (e - (u - 1)) / u is log(1 + e), to first order in what rounding took from e. At z = 0, where an
        # untrained network is, `minimum` has the slope 1/2 and `clamp` has 0.
        log_p = torch.minimum(z, z.new_zeros(())) - torch.log(u) - (e - (u - 1)) / u
    else:
        log_p = logsigmoid(z)
    return torch.logaddexp(log_p, log_p.new_tensor(math.log(log_floor))) if log_floor else log_p


def power_drop(log_x: Tensor, q: float) -> Tensor:
    """Return x^q - 1 for x <= 1, given log x."""
    if not torch.compiler.is_compiling() or log_x.dtype == torch.float64:
        return torch.expm1(q * log_x)
    x = q * log_x
    series = torch.full_like(x, 1 / 5040)
    for factorial in (720, 120, 24, 6, 2, 1):
        series = series * x + 1 / factorial
    return torch.where(x > -0.25, series * x, torch.exp(x) - 1)


def cross_entropy(z: Tensor, log_floor: float = 0.0) -> Tensor:
    """Return -log(p + log_floor)."""
    return -log_prob(z, log_floor)


def soft_cross_entropy(z: Tensor, target: Tensor | float, log_floor: float = 0.0) -> Tensor:
    """Return -t log p - (1 - t) log(1 - p) for a target t in [0, 1], which may carry a gradient."""
    log_p = log_prob(z, log_floor)
    if log_floor:
        return -torch.lerp(log_prob(-z, log_floor), log_p, target)
    return (1 - target) * z - log_p  # since log(1 - p) = log p - z


def focal_term(z: Tensor, gamma: float | Tensor) -> Tensor:
    """Return -(1 - p)^gamma log p (Hill Eq. 3); at z - margin, it is Focal margin (Hill Eq. 11)."""
    log_p = log_prob(z)
    return -torch.exp(gamma * (log_p - z)) * log_p


def negative_entropy(z: Tensor, log_floor: float = 0.0) -> Tensor:
    """Return p log p + (1 - p) log(1 - p) = -H(p) (EM Eq. 4)."""
    return -soft_cross_entropy(z, torch.sigmoid(z), log_floor)


def squared_error(z: Tensor) -> Tensor:
    """Return p^2, for a label taken as negative (Hill III-C)."""
    return torch.sigmoid(z) ** 2


def hill_term(z: Tensor, lam: float = 1.5) -> Tensor:
    """Return (lam - p) p^2, for a label taken as negative (Hill Eq. 5)."""
    p = torch.sigmoid(z)
    return (lam - p) * p**2


def robust_term(z: Tensor, q: float, log_floor: float = 0.0) -> Tensor:
    """Return (1 - p^q) / q (GR Eq. 14); at q = 0, -log(p + log_floor), which without a floor is its limit."""
    if q == 0:
        return cross_entropy(z, log_floor)
    return torch.sigmoid(-z) if q == 1 else power_drop(log_prob(z), q) * (-1 / q)
