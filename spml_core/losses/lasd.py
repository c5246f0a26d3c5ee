"""LASD: leverage against imbalance, pseudo-labels by a threshold, and consistency between views."""

import math

import torch
from torch import Tensor

from spml_core.losses.common import as_positive, check_range, prepare, reduce, toward, weigh
from spml_core.losses.terms import focal_term

__all__ = ["consistency", "lasd", "leverage"]


def lasd(
    logits: Tensor,
    observed: Tensor,
    *,
    lambda_plus: float = 0.1,
    lambda_minus: float,
    tau: float = 0.9,
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    reduction: str = "mean",
) -> Tensor:
    """Leveraged asymmetric loss with disambiguation, without its consistency term.

    L = L+ for observed positives; for unobserved labels lambda_plus * L+ where p > tau, lambda_minus * L- elsewhere;
    L+ = -(1 - p)^gamma_pos log p, L- = -p^gamma_neg log(1 - p). A verified negative gets L- at weight 1.
    Source: LASD Eq. 4 to 6. Deviation: Eq. 6 sums over classes; this is the mean over N*C. No released code is known.

    Args:
        lambda_plus, lambda_minus: >= 0, weights of pseudo-positives and pseudo-negatives; `leverage` computes the
            second from the first.
        tau: in [0, 1], threshold on p; 1 makes every unobserved label a negative.
        gamma_pos, gamma_neg: >= 0, focusing.
    """
    z, y = prepare(logits, observed)
    check_range(0, math.inf, lambda_plus=lambda_plus, lambda_minus=lambda_minus)
    check_range(0, 1, tau=tau)
    check_range(0, math.inf, gamma_pos=gamma_pos, gamma_neg=gamma_neg)
    claimed = as_positive(y, torch.sigmoid(z) > tau)
    positive = claimed.clamp(min=0)
    weight = weigh(y, lambda_minus) + (lambda_plus - lambda_minus) * (positive - y.clamp(min=0))
    gamma = gamma_neg + (gamma_pos - gamma_neg) * positive
    return reduce(weight * focal_term(toward(z, claimed), gamma), reduction)


def leverage(lambda_plus: float, expected_positives: float, num_classes: int) -> float:
    """Return lambda_minus = (1 + lambda_plus (k - 1)) / (C - k), which makes LASD consistent (LASD Theorem 5.4).

    Deviation: the theorem holds for images with k positives each; here k is their mean number.

    Raises:
        ValueError: k is outside [1, C).
    """
    if not 1 <= expected_positives < num_classes:
        raise ValueError(
            f"expected_positives must be in [1, {num_classes}), the number of classes, got {expected_positives!r}; "
            "or give lambda_minus"
        )
    return (1 + lambda_plus * (expected_positives - 1)) / (num_classes - expected_positives)


def consistency(logits: Tensor) -> Tensor:
    """Return the squared distances between the probabilities of all pairs of views, summed, as a mean over N*C.

    Source: LASD Eq. 7, for three views; it sums over classes. One view gives 0.

    Args:
        logits: (views, N, C).
    """
    if logits.ndim != 3:
        raise ValueError(f"logits must be (views, N, C), got shape {tuple(logits.shape)}")
    num_views, num_images, num_classes = logits.shape
    p = torch.sigmoid(logits if logits.dtype == torch.float64 else logits.float())
    # V times the summed squared distances from the mean equals the sum over all pairs of V views.
    return (p - p.mean(0)).square().sum() * (num_views / (num_images * num_classes))
