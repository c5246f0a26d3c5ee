"""Large Loss: unobserved labels of the largest loss are taken for false negatives (Kim et al., CVPR 2022)."""

from __future__ import annotations

from torch import Tensor

from spml_core.losses.common import as_numbers, prepare
from spml_core.losses.negative import an
from spml_core.losses.pseudo import weighted_an
from spml_core.losses.select import as_positive, large_losses


def ll_r(logits: Tensor, observed: Tensor, *, k: int, reduction: str = "mean") -> Tensor:
    """Large Loss, rejection: `an` without the k unobserved labels of the largest loss; their loss is 0.

    The mean runs over all N*C entries, rejected ones included. Source: Kim et al., 2022 (LL-R).
    Deviation: the released code rejects every label tied with the k-th largest loss, and observed positives where a
    batch has no other label; here exactly k unobserved labels, see `large_losses`.

    Args:
        k: >= 0, how many labels of the batch; the method counts them from its rate.
    """
    z, labels = prepare(logits, observed)
    kept = 1 - as_numbers(large_losses(z, labels, k=k), z.dtype)
    return weighted_an(z, labels, kept, log_floor=0.0, reduction=reduction)


def ll_ct(logits: Tensor, observed: Tensor, *, k: int, reduction: str = "mean") -> Tensor:
    """Large Loss, temporary correction: `an` with the k unobserved labels of the largest loss taken for positives.

    Source: Kim et al., 2022 (LL-Ct). Deviation: exactly k labels, as in `ll_r`.

    Args:
        k: >= 0, how many labels of the batch.
    """
    z, labels = prepare(logits, observed)
    return an(z, as_positive(labels, large_losses(z, labels, k=k)), reduction=reduction)
