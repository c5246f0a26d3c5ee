"""The generalized robust loss of GR, and its frame for all other losses."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from spml_core.losses.common import check_range, prepare, reduce
from spml_core.losses.terms import robust_term

__all__ = ["gr", "unified"]


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

    Deviations: the released code uses L1 = -log(p + 1e-7), which is `q1=0, log_floor=1e-7`; the paper says q1 = 0.01.
    The released code stops the gradient through v too, while the paper says so only of k; this function follows the
    code (Eq. 18 tests it). The code's mean runs over the N*C entries of the batch; the paper's Eq. 4 sums over classes
    (`reduction="sum"` divided by N).

    Args:
        w, b: slope and offset of the pseudo-label k, any real. w = 0 makes it constant; -b/w is its threshold.
        mu, sigma: centre and width (> 0) of the weight v, on the scale of p.
            Each of the four may be a tensor that broadcasts to (N, C); it then gets a gradient itself.
        q1, q2, q3: >= 0, usually up to about 1.5; 0 is cross-entropy, 1 is mean absolute error.
    """
    z, y = prepare(logits, observed)
    for name, value in (("w", w), ("b", b), ("mu", mu), ("sigma", sigma)):
        _check_moment(name, value, z)
    if isinstance(sigma, Real) and not sigma > 0:
        raise ValueError(f"sigma must be > 0 (width of the weight v), got {sigma}")
    check_range(0, math.inf, q1=q1, q2=q2, q3=q3)
    check_range(0, 1, log_floor=log_floor)

    p = torch.sigmoid(z)
    k = torch.sigmoid(w * p.detach() + b)
    v = torch.exp((p.detach() - mu) ** 2 * (-1 / (2 * sigma**2)))
    l2 = robust_term(z, q2, log_floor)
    l1 = l2 if q1 == q2 else robust_term(z, q1, log_floor)
    l3 = p if q3 == 1 else robust_term(-z, q3, log_floor)
    return reduce(_frame(y, k, v, l1, l2, l3), reduction)


def _check_moment(name: str, value: float | Tensor, z: Tensor) -> None:
    """Raise ValueError unless value is a number, or a tensor that broadcasts to the logits."""
    if isinstance(value, Tensor):
        pairs = zip(reversed(value.shape), reversed(z.shape), strict=False)
        if value.ndim > z.ndim or any(own not in (1, size) for own, size in pairs):
            raise ValueError(
                f"{name} of shape {tuple(value.shape)} does not broadcast to the logits {tuple(z.shape)}"
            )
    elif not isinstance(value, Real) or isinstance(value, bool):
        raise ValueError(
            f"{name} must be a number, or a tensor that broadcasts to (N, C), got {value!r}: a (start, end) pair "
            f"belongs to the method, e.g. methods.build('gr', num_classes, {name}={value!r})"
        )


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
    """GR's frame for all losses (Eq. 5, Table 1): a choice of k, v and three terms gives a loss.

    L = l1(z) for observed positives, v (k l2(z) + (1 - k) l3(z)) for unobserved labels, l3(z) for verified negatives.
    `spml_core.losses.terms` has the terms; the term for a negative is often the one for a positive, evaluated at -z.

    Deviation: Table 1 simplifies the losses it lists (Hill's positives, SPLC's negatives and margins); the functions of
    this package follow the authors of each loss.

    Args:
        k_hat: pseudo-label in [0, 1]: a number, a tensor that broadcasts to (N, C), or a function of p. A function gets
            p without its gradient.
        v: weight of unobserved labels, likewise. Where k is "undefined" in Table 1, v is 0.
        l1, l2, l3: functions of the logit, finite for any label; l2 = None where k is 0 everywhere.
    """
    z, y = prepare(logits, observed)
    p = torch.sigmoid(z.detach())
    k, v = (torch.as_tensor(f(p) if callable(f) else f, dtype=z.dtype, device=z.device) for f in (k_hat, v))
    true = l1(z)
    return reduce(_frame(y, k, v, true, true if l2 is None else l2(z), l3(z)), reduction)


def _frame(y: Tensor, k: Tensor, v: Tensor, l1: Tensor, l2: Tensor, l3: Tensor) -> Tensor:
    """Return GR Eq. 5, entry by entry: a known label counts as unobserved with k = 1 or 0, v = 1, and l1 for l2."""
    known, positive = y.abs(), y.clamp(min=0)
    k, v = torch.lerp(k.to(y.dtype), positive, known), torch.lerp(v.to(y.dtype), known, known)
    true = l1 if l1 is l2 else torch.lerp(l2, l1, positive)
    return v * torch.lerp(l3, true, k)
