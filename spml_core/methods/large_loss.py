"""Large Loss: reject or correct the unobserved labels of the largest loss."""

from __future__ import annotations

import torch

from spml_core import losses
from spml_core.losses.pseudo import count_of
from spml_core.methods.base import Method, Step, register
from spml_core.methods.memory import Memory, check_number


class _Growing(Method):
    """k = ceil(N C (epoch - 1) delta), 0 in the first epoch."""

    def __init__(self, num_classes, num_examples=None, *, delta: float):
        check_number("delta", delta, 0, 1)
        super().__init__(num_classes, num_examples, delta=delta)

    def count(self, logits: torch.Tensor, step: Step) -> int:
        return count_of(self.hyperparameters["delta"], logits.numel() * (step.epoch - 1))


@register("ll_r")
class LLR(_Growing):
    """Large Loss, rejection: the unobserved labels of the largest loss are ignored (Kim et al., CVPR 2022).

    `spml_core.losses.ll_r` with k = ceil(N C (epoch - 1) delta) labels of each batch: none in the first epoch, delta
    more in each later one; exactly k of the unobserved labels, ties by position, all of them where there are fewer.

    Args:
        delta: in [0, 1], share of all labels that each epoch adds. Published: 0.005.

    Deviation: the released code counts in percent (0.5), and rejects all labels tied with the k-th.
    """

    def __init__(self, num_classes, num_examples=None, *, delta: float = 0.005):
        super().__init__(num_classes, num_examples, delta=delta)

    def forward(self, logits, observed, step):
        return losses.ll_r(logits, observed, k=self.count(logits, step))


@register("ll_ct")
class LLCt(_Growing):
    """Large Loss, temporary correction: the unobserved labels of the largest loss count as positive in this step.

    `spml_core.losses.ll_ct` with k = ceil(N C (epoch - 1) delta), as in `ll_r` (Kim et al., CVPR 2022).

    Args:
        delta: in [0, 1], share of all labels that each epoch adds. Published: 0.002.

    Deviation: the released code counts in percent (0.2), and corrects all labels tied with the k-th.
    """

    def __init__(self, num_classes, num_examples=None, *, delta: float = 0.002):
        super().__init__(num_classes, num_examples, delta=delta)

    def forward(self, logits, observed, step):
        return losses.ll_ct(logits, observed, k=self.count(logits, step))


@register("ll_cp")
class LLCp(Memory):
    """Large Loss, permanent correction: the unobserved labels of the largest loss become positive for good.

    From the second epoch on, k = ceil(N C delta) labels of each batch become positive, at once and for all later steps;
    they are chosen among the unobserved labels that are not corrected yet (Kim et al., CVPR 2022).

    `corrected`: buffer (num_examples, C) bool.

    Args:
        delta: in [0, 1], share of all labels corrected in each step. Published: 0.001.

    Deviation: the released code counts in percent (0.1), corrects in the loss all labels tied with the k-th and for
    good those above it only, at least one fewer.
    """

    def __init__(self, num_classes, num_examples=None, *, delta: float = 0.001):
        check_number("delta", delta, 0, 1)
        super().__init__(num_classes, num_examples, delta=delta)
        self.remember("corrected", False)

    def forward(self, logits, observed, step):
        index = self.rows(step, logits)
        corrected = self.corrected.index_select(0, index)
        labels = losses.as_positive(observed, corrected)
        if step.epoch > 1:
            k = count_of(self.hyperparameters["delta"], logits.numel())
            new = losses.large_losses(logits, labels, k=k)
            self.corrected[index] = corrected | new
            labels = losses.as_positive(labels, new)
        return losses.an(logits, labels)
