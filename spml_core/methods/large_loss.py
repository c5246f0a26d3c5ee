"""Large Loss: reject or correct the unobserved labels with the largest loss."""

from functools import partial
from typing import ClassVar

import torch

from spml_core import losses
from spml_core.losses.pseudo import count_of
from spml_core.methods import latex
from spml_core.methods.base import Method, Number, Step
from spml_core.methods.display import ORANGE, published
from spml_core.methods.memory import Memory
from spml_core.methods.registry import register

KIM = "Kim et al., CVPR 2022 (share of all labels: {} %)"


class _Growing(Method):
    """k = ceil(N C (epoch - 1) delta), 0 in the first epoch."""

    clocked = batchwise = True

    def count(self, logits: torch.Tensor, step: Step) -> int:
        return count_of(self.hyperparameters["delta"], logits.numel() * (step.epoch - 1))

    def label_loss(self, step):
        return lambda z, s, **reduction: self.loss(z, s, k=self.count(z, step), **reduction)


@register("ll_r")
class LLR(_Growing):
    """Large Loss, rejection: the unobserved labels with the largest loss are ignored (Kim et al., CVPR 2022).

    `spml_core.losses.ll_r` with k = ceil(N C (epoch - 1) delta) labels of each batch: none in the first epoch, a share
    of delta more in each later one. Exactly k unobserved labels are chosen, or all if there are fewer; ties are broken
    by position.

    Args:
        delta: in [0, 1], share of all labels that each epoch adds. Published: 0.005.

    Deviation: the released code counts in percent (0.5), and rejects all labels tied with the k-th.
    """

    loss = staticmethod(losses.ll_r)
    own: ClassVar = {"delta": Number(0.005, 0, 1)}
    label, color, line = "LL-R", ORANGE, "--"
    presets = published(KIM.format(0.5), delta=0.005)

    equation = latex.largest("delta * (epoch - 1)", "0")


@register("ll_ct")
class LLCt(_Growing):
    """Large Loss, temporary correction: the unobserved labels with the largest loss count as positive in this step.

    `spml_core.losses.ll_ct` with k = ceil(N C (epoch - 1) delta), as in `ll_r` (Kim et al., CVPR 2022).

    Args:
        delta: in [0, 1], share of all labels that each epoch adds. Published: 0.002.

    Deviation: the released code counts in percent (0.2), and corrects all labels tied with the k-th.
    """

    loss = staticmethod(losses.ll_ct)
    own: ClassVar = {"delta": Number(0.002, 0, 1)}
    label, color, line = "LL-Ct", ORANGE, ":"
    presets = published(KIM.format(0.2), delta=0.002)

    equation = latex.largest("delta * (epoch - 1)", r"-\log p")


@register("ll_cp")
class LLCp(Memory):
    """Large Loss, permanent correction: the unobserved labels with the largest loss become positive for good.

    From the second epoch on, k = ceil(N C delta) labels of each batch become positive, at once and for all later steps.
    They are chosen among the unobserved labels that are not corrected yet (Kim et al., CVPR 2022).

    `corrected`: buffer (num_examples, C) bool.

    Args:
        delta: in [0, 1], share of all labels corrected in each step. Published: 0.001.

    Deviations: the released code counts in percent (0.1). In the loss it corrects all labels tied with the k-th, but
    for good only those above it, at least one fewer.
    """

    own: ClassVar = {"delta": Number(0.001, 0, 1)}
    remembers: ClassVar = {"corrected": False}
    clocked = batchwise = True
    label, color, line = "LL-Cp", ORANGE, "-."
    presets = published(KIM.format(0.1), delta=0.001)

    def label_loss(self, step):
        return partial(_corrected_an, corrected=self.kept("corrected", step))

    def record(self, index, logits, observed, step):
        if step.epoch > 1:
            corrected = self.kept("corrected", step)
            labels = losses.as_positive(observed, corrected)
            k = count_of(self.hyperparameters["delta"], logits.numel())
            self.corrected[index] = corrected | losses.large_losses(logits, labels, k=k)

    equation = latex.largest("delta", r"-\log p\ \mathrm{for\ good}")


def _corrected_an(logits, observed, corrected, reduction="mean"):
    return losses.an(logits, losses.as_positive(observed, corrected), reduction=reduction)
