"""Losses for single-positive and partial multi-label learning: pure functions on logits.

Shared by every function here:

Args:
    logits: (N, C) real, any float type; half precision is computed in float32.
    observed: (N, C) of any type in {1, 0, -1}: 1 confirmed positive, 0 unobserved, -1 verified negative. A verified
        negative gets the loss's own negative term at full weight: -log(1 - p) unless a docstring says otherwise.
    log_floor: in [0, 1], added inside each logarithm as the authors' released code does, e.g. log(p + 1e-5); powers
        stay exact. The default 0 is exact. A floor reproduces published numbers, and the gradient that dies for
        confident mistakes.
    reduction: "mean" over N*C, "sum", or "none" for (N, C).

Returns:
    Tensor in float32 (float64 for float64 logits): a scalar, or (N, C) with reduction "none".

Raises:
    ValueError: logits or labels are no tensors, shapes or devices differ, logits are not floating point, or a
        hyperparameter is out of range.

Throughout, z is a logit and p = sigmoid(z). Nothing branches on a tensor's value, so all of it runs on
`device="meta"`. The papers: GR = Chen et al., IJCAI 2024; EM = Zhou et al., ECCV 2022; Cole = Cole et al., CVPR 2021.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

REDUCTIONS = ("mean", "sum", "none")


def bce(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy on full labels, the upper bound of every table: -log p where 1, -log(1 - p) elsewhere.

    The same formula as `an`; the name says that the caller observed everything. Source: EM Table 1 ("full labels").
    """
    return an(logits, observed, log_floor=log_floor, reduction=reduction)


def an(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Assume negative: binary cross-entropy with every unobserved label taken for a negative.

    L = -log p for observed positives, -log(1 - p) for the rest. Source: Cole Eq. 2; EM Eq. 1.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).
    """
    return wan(logits, observed, weight=1.0, log_floor=log_floor, reduction=reduction)


def wan(
    logits: Tensor,
    observed: Tensor,
    *,
    weight: float | None = None,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Weak assume negative: `an` with the assumed negatives weighted down.

    L = -log p for observed positives, -weight * log(1 - p) for unobserved labels. Source: Cole Eq. 4.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).

    Args:
        weight: in [0, 1]; None = 1/(C - 1), so that one positive weighs as much as all assumed negatives.
    """
    z, observed = _prepare(logits, observed)
    if weight is None:
        if z.shape[-1] < 2:
            raise ValueError("wan needs at least 2 classes for its weight 1/(C - 1); give weight= explicitly")
        weight = 1 / (z.shape[-1] - 1)
    _check_range("weight", weight, 0, 1)
    negative = -_log_p(-z, log_floor)
    return _assemble(observed, -_log_p(z, log_floor), weight * negative, negative, reduction)


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
    z, observed = _prepare(logits, observed)
    _check_range("alpha", alpha, 0, math.inf)
    log_p, log_not_p = _log_p(z, log_floor), _log_p(-z, log_floor)
    p = torch.sigmoid(z)
    unknown = alpha * (p * log_p + torch.sigmoid(-z) * log_not_p)
    return _assemble(observed, -log_p, unknown, -log_not_p, reduction)


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
    z, observed = _prepare(logits, observed)
    if not sigma > 0:
        raise ValueError(f"sigma must be > 0 (width of the weight v), got {sigma}")
    p = torch.sigmoid(z.detach())
    k = torch.sigmoid(w * p + b)
    v = torch.exp(-((p - mu) ** 2) / (2 * sigma**2))
    l1, l2 = _robust("q1", z, q1, log_floor), _robust("q2", z, q2, log_floor)
    l3 = _robust("q3", -z, q3, log_floor)
    return _assemble(observed, l1, v * (k * l2 + (1 - k) * l3), l3, reduction)


def hill(
    logits: Tensor,
    observed: Tensor,
    *,
    lam: float = 1.5,
    margin: float = 1.0,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> Tensor:
    """Hill: a negative loss whose gradient fades for confident positives, with Focal margin on observed positives.

    L = -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) for observed positives, (lam - p) p^2 for all other
    labels, verified negatives included. Source: Zhang et al., 2021, Eq. 11 (positives), Eq. 5 (negatives).
    Deviation: none found; GR Table 1 prints -log p for its positives, which is neither.

    Args:
        lam: >= 1.5 keeps the negative term increasing in p on [0, 1]; 1.5 makes its gradient vanish at p = 1.
        margin: m >= 0, shift of the logit; larger focuses on semi-hard positives.
        gamma: >= 0, focusing.
    """
    z, observed = _prepare(logits, observed)
    _check_range("lam", lam, 1, math.inf)
    _check_range("margin", margin, 0, math.inf)
    _check_range("gamma", gamma, 0, math.inf)
    p, shifted = torch.sigmoid(z), z - margin
    positive = -torch.exp(gamma * logsigmoid(-shifted)) * logsigmoid(shifted)
    negative = (lam - p) * p**2
    return _assemble(observed, positive, negative, negative, reduction)


def _robust(name: str, z: Tensor, q: float, log_floor: float) -> Tensor:
    """(1 - p^q) / q, from the logit; its limit -log p at q = 0."""
    _check_range(name, q, 0, math.inf)
    return -_log_p(z, log_floor) if q == 0 else -torch.expm1(q * logsigmoid(z)) / q


def _log_p(z: Tensor, log_floor: float) -> Tensor:
    """log(sigmoid(z) + log_floor), finite at any logit."""
    _check_range("log_floor", log_floor, 0, 1)
    log_p = logsigmoid(z)
    return torch.logaddexp(log_p, log_p.new_tensor(math.log(log_floor))) if log_floor else log_p


def _prepare(logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    for name, value in (("logits", logits), ("observed", observed)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}: pass it through torch.as_tensor first")
    if logits.shape != observed.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and observed {tuple(observed.shape)} differ in shape; both are (N, C)"
        )
    if logits.device != observed.device:
        raise ValueError(f"logits are on {logits.device}, observed on {observed.device}: move them together")
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, got {logits.dtype}: pass the model's raw output")
    return (logits if logits.dtype == torch.float64 else logits.float()), observed


def _assemble(
    observed: Tensor, positive: Tensor, unknown: Tensor, negative: Tensor, reduction: str
) -> Tensor:
    loss = torch.where(observed > 0, positive, torch.where(observed < 0, negative, unknown))
    if reduction == "none":
        return loss
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}: use one of {', '.join(REDUCTIONS)}")
    return loss.mean() if reduction == "mean" else loss.sum()


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, str | None) or not low <= value <= high or value == math.inf:
        end = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must be a number in [{low}, {high}{end}, got {value!r}")
