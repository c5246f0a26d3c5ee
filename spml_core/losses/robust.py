"""The generalized robust loss of GR, and its frame for all other losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from spml_core.losses.common import assemble, check_range, prepare, reduce
from spml_core.losses.fused import fused, joint, row_blocks
from spml_core.losses.terms import robust_term


def gr(
    logits: Tensor,
    observed: Tensor,
    *,
    w: float | Tensor,
    b: float | Tensor,
    mu: float | Tensor,
    sigma: float | Tensor,
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
            Each of the four may be a tensor that broadcasts to (N, C), and then has a gradient itself.
        q1, q2, q3: in [0, 1.5] or so, >= 0; 0 is cross-entropy, 1 is mean absolute error.
    """
    z, labels = prepare(logits, observed)
    if not isinstance(sigma, Tensor) and not sigma > 0:
        raise ValueError(f"sigma must be > 0 (width of the weight v), got {sigma}")
    for name, q in (("q1", q1), ("q2", q2), ("q3", q3)):
        check_range(name, q, 0, math.inf)
    check_range("log_floor", log_floor, 0, 1)
    constants = (w, b, mu, sigma, q1, q2, q3, log_floor)
    learned, usual = constants[:4], q1 == q2 > 0 and q3 == 1
    if any(isinstance(c, Tensor) for c in learned):
        by_class = all(isinstance(c, Tensor) and c.shape == z.shape[1:] for c in learned)
        if by_class and usual and reduction == "mean":
            direct = partial(_gr_and_all_slopes, labels=labels, q=q2)
            return joint(direct, partial(_gr_mean, labels=labels, powers=constants[4:]), z, *learned)
        return reduce(_gr_by_autograd(z, labels, *constants), reduction)
    in_place = _gr_in_place if usual else None
    return fused(_gr_and_slope, z, labels, *constants, reduction=reduction, in_place=in_place)


def _pseudo_label_and_weight(p: Tensor, labels: Tensor, w, b, mu, sigma) -> tuple[Tensor, Tensor]:
    """k and v of GR; a known label is an unknown one with k = 1 or 0 and v = 1."""
    unknown = 1 - labels.abs()
    k = labels.clamp(min=0) + unknown * torch.sigmoid(w * p + b)
    return k, torch.exp(unknown * (p - mu) ** 2 * (-1 / (2 * sigma**2)))


def _gr_by_autograd(z, labels, w, b, mu, sigma, q1, q2, q3, log_floor) -> Tensor:
    """GR entry by entry, where w, b, mu or sigma needs a gradient too."""
    k, v = _pseudo_label_and_weight(torch.sigmoid(z.detach()), labels, w, b, mu, sigma)
    positive = robust_term(z, q2, log_floor)
    if q1 != q2:
        positive = torch.lerp(positive, robust_term(z, q1, log_floor), labels.clamp(min=0))
    negative = torch.sigmoid(z) if q3 == 1 else robust_term(-z, q3, log_floor)
    return v * torch.lerp(negative, positive, k)


def _gr_mean(z, w, b, mu, sigma, labels, powers) -> Tensor:
    return _gr_by_autograd(z, labels, w, b, mu, sigma, *powers).sum() / z.numel()


def _gr_and_all_slopes(z, w, b, mu, sigma, labels, q) -> tuple[Tensor, list[Tensor], float]:
    """The mean of GR for q1 = q2 = q > 0 and q3 = 1; up to a factor, its derivatives by z and by w, b, mu, sigma."""
    total, slope = z.new_zeros(()), torch.empty_like(z)
    by_w, by_b, by_mu, by_sigma = z.new_zeros(4, z.shape[1])
    width = -0.5 / sigma**2
    for part in row_blocks(z):
        log_p = logsigmoid(z[part])
        p = torch.exp(log_p)
        unknown = 1 - labels[part].abs()
        soft = torch.addcmul(b, w, p).sigmoid_().mul_(unknown)
        off = (p - mu).mul_(unknown)
        v = off.square().mul_(width).exp_()
        positive = (soft + labels[part].clamp(min=0)).mul_(v)  # v k, the weight of L2
        rest = v.sub_(positive)  # v (1 - k), the weight of L3
        drop = log_p.mul_(q).expm1_()  # -q L2
        by_k = torch.add(p, drop, alpha=1 / q).mul_(soft).mul_(rest)  # of -(L2 - L3)
        rest = rest.mul_(p)
        drop = drop.mul_(positive)
        loss = torch.sub(rest, drop, alpha=1 / q)
        torch.mul(rest.sub_(drop).sub_(positive), 1 - p, out=slope[part])
        total += loss.sum()
        by_b -= by_k.sum(0)
        by_w -= by_k.mul_(p).sum(0)
        by_mu += loss.mul_(off).sum(0)
        by_sigma += loss.mul_(off).sum(0)
    by_mu /= sigma**2
    by_sigma /= sigma**3
    return total / z.numel(), [slope, by_w, by_b, by_mu, by_sigma], 1 / z.numel()


def _gr_and_slope(z, labels, w, b, mu, sigma, q1, q2, q3, log_floor) -> tuple[Tensor, Tensor]:
    """GR entry by entry, and its derivative by z in closed form (Eq. 18, and its like for L1 and L3).

    Names are deleted to bound the memory.
    """
    p, not_p, log_p = _sigmoid_and_log(z)
    k, v = _pseudo_label_and_weight(p.detach(), labels, w, b, mu, sigma)
    certain = labels.clamp(min=0) if q1 != q2 else None
    positive, power = _robust_and_power(log_p, p, not_p, q2, log_floor)
    if q1 != q2:
        observed, observed_power = _robust_and_power(log_p, p, not_p, q1, log_floor)
        positive, power = torch.lerp(positive, observed, certain), torch.lerp(power, observed_power, certain)
        del observed, observed_power
    del certain
    rise = power * not_p
    negative, power = _robust_and_power(log_p - z if q3 != 1 else None, not_p, p, q3, log_floor)
    fall = power * p
    del log_p, power, p, not_p
    not_k = 1 - k
    return v * (k * positive + not_k * negative), v * (not_k * fall - k * rise)


def _gr_in_place(z, labels, w, b, mu, sigma, _, q, *__) -> tuple[Tensor, Tensor]:
    """`_gr_and_slope` for q1 = q2 = q > 0 and q3 = 1, on four tensors besides the loss.

    Then L2 = (1 - p^q) / q has the slope -p^q (1 - p), and L3 = p the slope p (1 - p).
    """
    log_p = logsigmoid(z)
    p = torch.exp(log_p)
    unknown = 1 - labels.abs()
    k = (w * p).add_(b).sigmoid_().mul_(unknown)
    k.add_(labels.clamp(min=0))
    v = (p - mu).square_().mul_(unknown).mul_(-1 / (2 * sigma**2)).exp_()
    del unknown
    positive = k.mul_(v)  # v k, the weight of L2
    negative = v.sub_(positive).mul_(p)  # v (1 - k) L3
    drop = log_p.mul_(q).expm1_().mul_(positive)  # v k (p^q - 1)
    loss = torch.sub(negative, drop, alpha=1 / q)
    slope = negative.sub_(drop).sub_(positive)
    del k, drop, positive, log_p
    return loss, slope.mul_(1 - p)


def _sigmoid_and_log(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p, 1 - p and log p."""
    if not torch.compiler.is_compiling():
        log_p = logsigmoid(z)
        p = torch.exp(log_p)
        return p, 1 - p, log_p
    # Compiled, log1p takes as long as three exp, and a choice nothing: so from one exp and one log, as exact.
    e = torch.exp(-z.abs())
    u = 1 + e
    large = 1 / u
    small = e * large
    log_u = torch.log(u) + (e - (u - 1)) * large  # log1p(e): of the first order in what rounding took from e
    return torch.where(z < 0, small, large), torch.where(z < 0, large, small), z.clamp(max=0) - log_u


def _power_and_drop(x: Tensor) -> tuple[Tensor, Tensor]:
    """exp(x) and exp(x) - 1, for x <= 0."""
    if not torch.compiler.is_compiling() or x.dtype == torch.float64:
        drop = torch.expm1(x)
        return drop + 1, drop
    # Compiled, expm1 takes as long as three exp: near 0 its series, to the last bit of float32.
    power = torch.exp(x)
    series = torch.full_like(x, 1 / 720)
    for factorial in (120, 24, 6, 2, 1):
        series = series * x + 1 / factorial
    return power, torch.where(x > -0.25, series * x, power - 1)


def _robust_and_power(log_x: Tensor, x: Tensor, not_x: Tensor, q: float, log_floor: float):
    """(1 - x^q) / q and x^q, where x is p or 1 - p: the derivative by x's logit is -x^q (1 - x)."""
    if q == 1:
        return not_x, x
    if q == 0 and not log_floor:
        return -log_x, torch.ones_like(x)
    if q == 0:
        return -torch.logaddexp(log_x, log_x.new_tensor(math.log(log_floor))), x / (x + log_floor)
    power, drop = _power_and_drop(q * log_x)
    return drop * (-1 / q), power


def unified(
    logits: Tensor,
    observed: Tensor,
    k_hat: float | Tensor | Callable[[Tensor], Tensor],
    v: float | Tensor | Callable[[Tensor], Tensor],
    l1: Callable[[Tensor], Tensor],
    l2: Callable[[Tensor], Tensor] | None,
    l3: Callable[[Tensor], Tensor],
    *,
    reduction: str = "mean",
) -> Tensor:
    """The frame that GR puts around all losses (Eq. 5, Table 1): choose k, v and three terms, have a loss.

    L = l1(z) for observed positives, v (k l2(z) + (1 - k) l3(z)) for unobserved labels, l3(z) for verified negatives.
    `spml_core.losses.terms` has the terms; a term for "false" is often one for "true" taken at -z.

    Deviation: Table 1 simplifies the losses it lists (Hill's positives, SPLC's negatives and margins); the functions of
    this package follow the authors of each loss.

    Args:
        k_hat: pseudo-label in [0, 1]: a number, a tensor that broadcasts to (N, C), or a function of p. A function gets
            p without its gradient.
        v: weight of unobserved labels, likewise. Where k is "undefined" in Table 1, v is 0.
        l1, l2, l3: functions of the logit, finite for any label; l2 = None where k is 0 everywhere.
    """
    z, labels = prepare(logits, observed)
    p = torch.sigmoid(z.detach())
    k, v = (f(p) if callable(f) else f for f in (k_hat, v))
    unknown = (1 - k) * l3(z) if l2 is None else k * l2(z) + (1 - k) * l3(z)
    return assemble(labels, l1(z), v * unknown, l3(z), reduction)
