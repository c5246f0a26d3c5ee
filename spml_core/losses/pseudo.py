"""Losses on pseudo-labels: recorded by a method, or chosen by rank (Large Loss: Kim et al., CVPR 2022)."""

import math
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn.functional import pad

from spml_core.losses.common import as_positive, prepare, reduce, same_shape, toward
from spml_core.losses.focal import base_loss
from spml_core.losses.negative import an
from spml_core.losses.terms import cross_entropy

__all__ = ["en", "large_losses", "ll_ct", "ll_r", "pseudo_label"]
REJECTED = 2  # as a label within `ll_r`: compiled, that is faster than a mask
GROUP = 8  # values per group in `kth_largest`


def en(
    logits: Tensor, observed: Tensor, negative: Tensor, *, log_floor: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Expected negative: cross-entropy on observed positives and pseudo-negatives; other labels are ignored.

    L = -log p for observed positives, -log(1 - p) for unobserved labels in `negative`, 0 for the rest.
    Source: GR App. B, Eq. 20. Deviation: no released code was compared.

    Args:
        negative: (N, C) bool.
    """
    z, y = prepare(logits, observed)
    same_shape("negative", negative, z)
    weight = torch.maximum(y.abs(), negative.to(z.dtype))
    return reduce(weight * cross_entropy(toward(z, y), log_floor), reduction)


def pseudo_label(
    logits: Tensor,
    observed: Tensor,
    pseudo_positive: Tensor,
    *,
    base: str = "bce",
    log_floor: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """A base loss on labels completed by a trained model: unobserved labels in `pseudo_positive` count as positives.

    Source: Hill 4.1, after Lee, 2013; Hill Table VII (other bases than `an`).

    Args:
        pseudo_positive: (N, C) bool.
        base: "bce" (`an`), "focal", "asl" or "focal_margin", each with the defaults of its function.
        log_floor: for base "bce" only; the others have none.
    """
    loss = base_loss(base)
    same_shape("pseudo_positive", pseudo_positive, logits)
    if base != "bce" and log_floor:
        raise ValueError(f"log_floor={log_floor} is for base 'bce', got base {base!r}: leave it 0")
    floor = {"log_floor": log_floor} if base == "bce" else {}
    return loss(logits, as_positive(observed, pseudo_positive), **floor, reduction=reduction)


def ll_r(logits: Tensor, observed: Tensor, *, k: int, reduction: str = "mean") -> Tensor:
    """Large Loss, rejection: `an` without the k unobserved labels with the largest loss; their loss is 0.

    The mean runs over all N*C entries, rejected ones included. Source: Kim et al., 2022 (LL-R).
    Deviation: the released code rejects every label tied with the k-th largest loss, and observed positives where a
    batch has no other label; this rejects exactly k unobserved labels, see `large_losses`.

    Args:
        k: >= 0, number of labels of the batch; the method computes it from its rate.
    """
    z, y = prepare(logits, observed)
    y = y.masked_fill(large_losses(logits, observed, k=k), REJECTED)
    return reduce(cross_entropy(toward(z, y)).masked_fill(y == REJECTED, 0), reduction)


def ll_ct(logits: Tensor, observed: Tensor, *, k: int, reduction: str = "mean") -> Tensor:
    """Large Loss, temporary correction: `an` with the k unobserved labels with the largest loss treated as positives.

    Source: Kim et al., 2022 (LL-Ct). Deviation: exactly k labels, as in `ll_r`.

    Args:
        k: >= 0, number of labels of the batch.
    """
    return an(logits, as_positive(observed, large_losses(logits, observed, k=k)), reduction=reduction)


def large_losses(logits: Tensor, observed: Tensor, *, k: int) -> Tensor:
    """Return the k unobserved labels whose loss -log(1 - p) is largest, as a mask (N, C).

    Exactly min(k, number of unobserved labels) entries are chosen; ties go to the first ones, row by row. Logits are
    compared instead of losses: the order is the same, but losses that round to 0 would tie. A label whose logit is NaN
    or minus infinity is never chosen.

    Args:
        k: >= 0, number of labels.

    Raises:
        ValueError: k is not a whole number >= 0.
    """
    z, y = prepare(logits, observed)
    if not isinstance(k, int) or k < 0:
        raise ValueError(f"k must be a whole number >= 0, got {k!r}")
    k = min(k, z.numel())
    if k == 0:
        return torch.zeros_like(z, dtype=torch.bool)
    z = torch.where(y == 0, z.detach(), -torch.inf).flatten()
    last = kth_largest(z, k)
    above, tied = z > last, z == last
    room = (k - above.sum(dtype=torch.int32)) * (last > -torch.inf)
    return (above | (tied & (tied.cumsum(0, dtype=torch.int32) <= room))).view(logits.shape)


def kth_largest(values: Tensor, k: int) -> Tensor:
    """Return the k-th largest of (M,) values.

    The k largest values lie in the k groups with the largest maxima. If k is small, these groups hold far fewer values
    than there are in all, and selecting among them is faster.
    """
    if k * GROUP <= len(values) // 2:
        groups = pad(values, (0, -len(values) % GROUP), value=-torch.inf).view(-1, GROUP)
        values = groups[groups.amax(1).topk(k, sorted=False).indices].flatten()
    return values.kthvalue(len(values) - k + 1).values


def count_of(share: float, total: int) -> int:
    """Return ceil(share * total), exactly: 0.1 counts as 1/10, not as the binary number next to it."""
    return math.ceil(Fraction(str(float(share))) * total)


def lowest(values: Tensor, count: Tensor) -> Tensor:
    """Return a mask (N, C) of the `count[c]` lowest values of each column; ties go to the first rows.

    Args:
        values: (N, C); infinite and NaN entries are never chosen.
        count: (C,) whole numbers, any sign.
    """
    order = torch.where(values.isfinite(), values, torch.inf).argsort(dim=0, stable=True)
    rows = torch.arange(len(values), device=values.device)[:, None].expand_as(order)
    rank = torch.empty_like(order).scatter_(0, order, rows)
    return (rank < count) & values.isfinite()
