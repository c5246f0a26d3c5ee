"""Which labels: masks by rank."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from spml_core.losses.common import as_numbers, prepare
from spml_core.losses.fused import is_eager_cpu


def as_positive(observed: Tensor, positive: Tensor) -> Tensor:
    """`observed` with the unobserved labels of a mask set to 1; an observed label stays what it is."""
    if observed.is_floating_point():  # a `where` takes five times as long
        return torch.addcmul(observed, as_numbers(positive, observed.dtype), 1 - observed.abs())
    return torch.where(positive & (observed == 0), 1, observed)


def large_losses(logits: Tensor, observed: Tensor, *, k: int) -> Tensor:
    """The k unobserved labels whose loss -log(1 - p) is largest, as a mask (N, C).

    Exactly min(k, number of unobserved labels) entries: among equal losses those that come first, row by row. The
    logits are compared, since the loss grows with the logit and would tie where it rounds to 0. A label whose logit is
    NaN or minus infinity is never chosen.

    Args:
        k: >= 0, how many.

    Raises:
        ValueError: k is no whole number >= 0.
    """
    z, labels = prepare(logits, observed)
    if not isinstance(k, int) or k < 0:
        raise ValueError(f"k must be a whole number >= 0, got {k!r}")
    k = min(k, z.numel())
    if k == 0:
        return torch.zeros_like(z, dtype=torch.bool)
    if is_eager_cpu(z):
        return _largest(z.detach(), labels, k)
    z = torch.where(labels == 0, z.detach(), -torch.inf).flatten()
    # Both give the k-th largest; on a CPU sorting the k largest pays off while they are few.
    few = z.device.type != "cpu" or 16 * k <= z.numel()
    last = z.topk(k).values[-1] if few else z.kthvalue(z.numel() - k + 1).values
    above, tied = z > last, (z == last) & (last > -torch.inf)
    room = k - above.sum()
    return (above | (tied & (tied.cumsum(0, dtype=torch.int32) <= room))).view(logits.shape)


def _largest(z: Tensor, labels: Tensor, k: int) -> Tensor:
    """`large_losses` on the CPU, where NumPy's partition, comparison and assignment by a mask are quickest."""
    values = z.numpy().flatten()
    values[labels.numpy().ravel() != 0] = -math.inf
    ordered = values.copy()
    ordered.partition(len(values) - k)
    last = ordered[-k]
    mask = values >= last if last > -math.inf else values > last
    surplus = int(mask.sum()) - k
    if surplus > 0:  # ties with the k-th: the last ones go
        mask[(values == last).nonzero()[0][-surplus:]] = False
    return torch.from_numpy(mask).view(z.shape)


def count_of(share: float, total: int) -> int:
    """ceil(share * total), exactly: 0.1 counts as 1/10, not as the binary number next to it."""
    return math.ceil(Fraction(str(float(share))) * total)


def lowest(values: Tensor, count: Tensor) -> Tensor:
    """Mask (N, C) of the `count[c]` lowest values of each column; among equal values the first rows.

    Args:
        values: (N, C); infinite and NaN entries are no candidates.
        count: (C,) whole numbers, any sign.
    """
    order = torch.where(values.isfinite(), values, torch.inf).argsort(dim=0, stable=True)
    rows = torch.arange(len(values), device=values.device)[:, None].expand_as(order)
    rank = torch.empty_like(order).scatter_(0, order, rows)
    return (rank < count) & values.isfinite()
