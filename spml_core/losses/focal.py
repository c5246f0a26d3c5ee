"""Losses that weight a label by the model's confidence: Focal, ASL, Focal margin, Hill, and SPLC on top of them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from spml_core.losses.common import as_positive, check_range, prepare, reduce, toward
from spml_core.losses.negative import an
from spml_core.losses.terms import cross_entropy, focal_term, hill_term, log_prob, squared_error

__all__ = ["asl", "asl_ps", "fm_splc", "focal", "focal_margin", "hill", "mse", "splc"]


def focal(
    logits: Tensor,
    observed: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Focal loss with unobserved labels assumed negative: easy labels get little weight.

    L = -alpha (1 - p)^gamma log p for observed positives, -(1 - alpha) p^gamma log(1 - p) for all other labels,
    verified negatives included. Source: Lin et al., 2017; Hill Eq. 3; LASD A.2.2. Deviation: none found.

    Args:
        gamma: >= 0, focusing; 0 is `an` weighted by alpha.
        alpha: in [0, 1], balance of positives; EM B.2 uses 0.75. None = no balance, both weights 1 (LASD A.2.2).
    """
    z, y = prepare(logits, observed)
    check_range(0, math.inf, gamma=gamma)
    loss = focal_term(toward(z, y), gamma)
    if alpha is not None:
        check_range(0, 1, alpha=alpha)
        loss = loss * (1 - alpha + (2 * alpha - 1) * y.clamp(min=0))
    return reduce(loss, reduction)


def asl(
    logits: Tensor,
    observed: Tensor,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Asymmetric loss with unobserved labels assumed negative: Focal with separate focusing for the two kinds of label.

    L = -(1 - p)^gamma_pos log p for observed positives, -p_m^gamma_neg log(1 - p_m) with p_m = max(p - margin, 0) for
    all other labels, verified negatives included. Source: Ridnik et al., 2021; Hill Eq. 4; LASD A.2.2.

    Deviations: Hill Eq. 4 prints p_m in the positive term too, which the released code and LASD do not. The released
    code clamps each logarithm's argument to at least 1e-8 and sums over N*C (`reduction="sum"`).

    Args:
        gamma_pos, gamma_neg: >= 0, focusing of positives and of negatives.
        margin: m in [0, 1], probability shift; negatives with p <= m cost nothing. `asl_ps` is m = 0.05.
    """
    z, y = prepare(logits, observed)
    check_range(0, math.inf, gamma_pos=gamma_pos, gamma_neg=gamma_neg)
    check_range(0, 1, margin=margin)
    positive = y.clamp(min=0)
    if not margin:
        return reduce(focal_term(toward(z, y), gamma_neg + (gamma_pos - gamma_neg) * positive), reduction)
    # A power's slope at 0 may be infinite: the clamp cuts it off far below what p - margin can resolve.
    p_m = (torch.sigmoid(z) - margin).clamp(min=torch.finfo(z.dtype).eps ** 2)
    # Squares and square roots are fast, other powers are not.
    false = torch.log(1 - p_m) * (p_m ** (gamma_neg / 2)) ** 2
    true = -focal_term(z, gamma_pos) if gamma_pos else log_prob(z)
    return reduce(-torch.lerp(false, true, positive), reduction)


def asl_ps(
    logits: Tensor,
    observed: Tensor,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    reduction: str = "mean",
) -> Tensor:
    """`asl` with a probability shift: the same function with its published margin. Source: LASD A.2.2."""
    return asl(logits, observed, gamma_pos=gamma_pos, gamma_neg=gamma_neg, margin=margin, reduction=reduction)


def focal_margin(
    logits: Tensor,
    observed: Tensor,
    *,
    margin: float = 1.0,
    gamma: float = 2.0,
    gamma_neg: float | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Focal margin: Focal with the logit of observed positives shifted down, so that semi-hard ones get most weight.

    L = -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) for observed positives, -p^gamma_neg log(1 - p) for all
    other labels, verified negatives included. Source: Hill Eq. 11 (positives), Eq. 3 (negatives).
    Deviation: none. The paper does not say which negatives "Focal margin" has in its Table VII; here they are those of
    `fm_splc` in the released code.

    Args:
        margin: m >= 0; 0 is `focal`. The paper advises 0.5 to 1.
        gamma: >= 0, focusing.
        gamma_neg: >= 0, focusing of negatives; None = gamma, 0 = cross-entropy ("Focal margin+" of Hill Table VI).
    """
    z, y = prepare(logits, observed)
    positive = y.clamp(min=0)
    check_range(0, math.inf, margin=margin, gamma=gamma)
    if gamma_neg is not None:
        check_range(0, math.inf, gamma_neg=gamma_neg)
        gamma = gamma_neg + (gamma - gamma_neg) * positive
    return reduce(focal_term(toward(z, y) - margin * positive, gamma), reduction)


def mse(logits: Tensor, observed: Tensor, *, reduction: str = "mean") -> Tensor:
    """Squared error on all labels but observed positives: Hill's negative term without its weight.

    L = -log p for observed positives, p^2 for all other labels, verified negatives included.
    Source: Hill III-C and Table VI ("MSE-"). Deviation: the authors released no code for it.
    """
    z, y = prepare(logits, observed)
    return reduce(torch.lerp(squared_error(z), cross_entropy(z), y.clamp(min=0)), reduction)


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
    labels, verified negatives included. Source: Hill Eq. 11 (positives), Eq. 5 (negatives).
    Deviation: none found. GR Table 1 prints -log p for its positives, which is neither of these (`unified` has it).

    Args:
        lam: >= 1.5 keeps the negative term increasing in p on [0, 1]; 1.5 makes its gradient vanish at p = 1.
        margin: m >= 0, shift of the logit; larger focuses on semi-hard positives.
        gamma: >= 0, focusing.
    """
    z, y = prepare(logits, observed)
    check_range(1, math.inf, lam=lam)
    check_range(0, math.inf, margin=margin, gamma=gamma)
    return reduce(torch.lerp(hill_term(z, lam), focal_term(z - margin, gamma), y.clamp(min=0)), reduction)


def splc(
    logits: Tensor,
    observed: Tensor,
    *,
    tau: float = 0.6,
    base: str = "bce",
    correct: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Self-paced loss correction: a base loss that treats unobserved labels with p > tau as positives.

    L = base(p) with those labels set to 1. Source: Hill Eq. 9 (BCE), Eq. 10 and Table VII (other bases).
    Deviation: the authors released `fm_splc` only, which gives corrected labels no margin; here base "focal_margin"
    shifts them like observed positives, as Eq. 10 says.

    Args:
        tau: threshold on p, in [0, 1]; 1 corrects nothing.
        base: "bce", "focal", "asl" or "focal_margin", each with the defaults of its function.
        correct: False gives the plain base loss, as before the first correction.
    """
    loss = base_loss(base)
    z, _ = prepare(logits, observed)
    check_range(0, 1, tau=tau)
    if correct:
        observed = as_positive(observed, torch.sigmoid(z) > tau)
    return loss(logits, observed, reduction=reduction)


def base_loss(name: str) -> Callable[..., Tensor]:
    """Return the loss that label corrections build on (Hill Table VII): "bce", "focal", "asl" or "focal_margin"."""
    bases = {"bce": an, "focal": focal, "asl": asl, "focal_margin": focal_margin}
    if name not in bases:
        raise ValueError(f"base must be one of {', '.join(bases)}, got {name!r}")
    return bases[name]


def fm_splc(
    logits: Tensor,
    observed: Tensor,
    *,
    tau: float = 0.6,
    margin: float = 1.0,
    gamma: float = 2.0,
    negative: str = "focal",
    lam: float = 1.5,
    shift_corrected: bool = False,
    correct: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Focal margin + SPLC, as published: Focal margin positives, and unobserved labels with p > tau become positives.

    L = -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) for observed positives, the same without margin for
    unobserved labels with p > tau, and for all other labels, verified negatives included, -p^gamma log(1 - p)
    (negative "focal") or (lam - p) p^2 ("hill"). Source: Hill Eq. 10, 11; GR Table 1, Eq. 25.

    Deviations: as in the released code, negatives are focal and corrected labels get no margin. Eq. 10 does not specify
    the negatives and shifts corrected labels too. GR Table 1 is `negative="hill", shift_corrected=True`.

    Args:
        tau: threshold on p (without margin), in [0, 1]; 1 corrects nothing.
        margin: m >= 0, shift of the logit.
        gamma: >= 0, focusing.
        negative: "focal" or "hill".
        lam: >= 1, for negative "hill" only.
        shift_corrected: whether corrected labels are shifted by the margin as well.
        correct: False before the first correction.
    """
    z, y = prepare(logits, observed)
    check_range(0, 1, tau=tau)
    check_range(0, math.inf, margin=margin, gamma=gamma)
    check_range(1, math.inf, lam=lam)
    if negative not in ("focal", "hill"):
        raise ValueError(f"negative must be 'focal' or 'hill', got {negative!r}")
    certain = y.clamp(min=0)
    if correct:
        y = as_positive(y, torch.sigmoid(z) > tau)
    positive = y.clamp(min=0)
    shift = margin * (positive if shift_corrected else certain)
    if negative == "hill":
        return reduce(torch.lerp(hill_term(z, lam), focal_term(z - shift, gamma), positive), reduction)
    return reduce(focal_term(toward(z, y) - shift, gamma), reduction)
