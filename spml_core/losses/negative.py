"""Losses that treat unobserved labels as negatives."""

from torch import Tensor

from spml_core.losses.common import check_range, prepare, reduce, toward, weigh
from spml_core.losses.terms import cross_entropy, soft_cross_entropy

__all__ = ["an", "an_ls", "bce", "dw", "iu", "iun", "n_ls", "wan"]


def bce(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy on full labels, the upper bound of every table: -log p where 1, -log(1 - p) elsewhere.

    The same formula as `an`; the name says that every label is observed. Source: EM Table 1 ("full labels").
    """
    return an(logits, observed, log_floor=log_floor, reduction=reduction)


def iun(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Ignore unobserved: binary cross-entropy on known labels only. Given all true negatives, it is an oracle.

    L = -log p for observed positives, -log(1 - p) for verified negatives, 0 for unobserved labels. Source: EM Table 1
    and 4.1 ("all negative labels and one positive label per image"). Deviation: the mean runs over all N*C entries.
    """
    return wan(logits, observed, weight=0.0, log_floor=log_floor, reduction=reduction)


def iu(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Ignore unobserved, without an oracle: cross-entropy on one positive and one verified negative per image.

    The same formula as `iun`; the name says that no other label is observed. Source: the released code of Cole et al.,
    which adds 1e-5 inside both logarithms (`log_floor=1e-5`).
    """
    return iun(logits, observed, log_floor=log_floor, reduction=reduction)


def an(logits: Tensor, observed: Tensor, *, log_floor: float = 0.0, reduction: str = "mean") -> Tensor:
    """Assume negative: binary cross-entropy with every unobserved label treated as a negative.

    L = -log p for observed positives, -log(1 - p) for the rest. Source: Cole Eq. 2; EM Eq. 1.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).
    """
    z, y = prepare(logits, observed)
    return reduce(cross_entropy(toward(z, y), log_floor), reduction)


def wan(
    logits: Tensor,
    observed: Tensor,
    *,
    weight: float | None = None,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Weak assume negative: `an` with the assumed negatives down-weighted.

    L = -log p for observed positives, -weight * log(1 - p) for unobserved labels. Source: Cole Eq. 4.
    Deviation: the released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).

    Args:
        weight: in [0, 1]; None = 1/(C - 1), so that one positive weighs as much as all assumed negatives.
    """
    z, y = prepare(logits, observed)
    if weight is None:
        if z.shape[-1] < 2:
            raise ValueError("wan needs at least 2 classes for its weight 1/(C - 1); give weight= explicitly")
        weight = 1 / (z.shape[-1] - 1)
    check_range(0, 1, weight=weight)
    return reduce(cross_entropy(toward(z, y), log_floor) * weigh(y, weight), reduction)


def dw(
    logits: Tensor, observed: Tensor, *, weight: float = 0.1, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Down-weighting: `wan` with a weight that is chosen, not derived.

    L = -log p for observed positives, -weight * log(1 - p) for unobserved labels. Source: EM 4.1, B.2.
    Deviation: the authors released no code for it; their code of EM adds 1e-5 inside logarithms (`log_floor=1e-5`).

    Args:
        weight: in [0, 1]. The paper's values (EM B.2): 0.1 VOC, COCO and NUS-WIDE, 0.02 CUB.
    """
    return wan(logits, observed, weight=weight, log_floor=log_floor, reduction=reduction)


def an_ls(
    logits: Tensor,
    observed: Tensor,
    *,
    smoothing: float = 0.1,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Assume negative with label smoothing: every target moves by `smoothing` towards the other side.

    L = -(1 - s) log p - s log(1 - p) for observed positives, -(1 - s) log(1 - p) - s log p for unobserved labels, with
    s = smoothing. A verified negative is not smoothed. Source: Cole 4.2; LASD A.2.2; EM 4.1 ("LS").

    Deviations: the released code moves targets by 0.1, as here, while LASD's appendix prints eps/2 with eps = 0.1
    (`smoothing=0.05`). The released code adds 1e-5 inside both logarithms (`log_floor=1e-5`).

    Args:
        smoothing: in [0, 1], the amount moved; 0 is `an`.
    """
    z, y = prepare(logits, observed)
    check_range(0, 1, smoothing=smoothing)
    moved = smoothing * (1 + y.clamp(max=0))  # 0 for verified negatives
    return reduce(soft_cross_entropy(toward(z, y), 1 - moved, log_floor), reduction)


def n_ls(
    logits: Tensor,
    observed: Tensor,
    *,
    smoothing: float = 0.1,
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Assume negative with label smoothing of the assumed negatives only.

    L = -log p for observed positives, -(1 - smoothing) log(1 - p) - smoothing log p for unobserved labels.
    Source: EM 4.1 ("N-LS"). The paper does not define its coefficient; here it is the amount moved, as in `an_ls`.
    Deviation: the authors released no code for it; their code of EM adds 1e-5 inside logarithms (`log_floor=1e-5`).

    Args:
        smoothing: in [0, 1]. The paper's values (EM B.2): 0.3 VOC, 0.1 elsewhere.
    """
    z, y = prepare(logits, observed)
    check_range(0, 1, smoothing=smoothing)
    moved = smoothing * (1 - y.abs())
    return reduce(soft_cross_entropy(toward(z, y), 1 - moved, log_floor), reduction)
