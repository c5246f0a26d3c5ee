"""Assume negative with a penalty on the model's weights."""

from typing import ClassVar

from spml_core import losses
from spml_core.methods import latex
from spml_core.methods.base import Method, Number
from spml_core.methods.display import PURPLE, published
from spml_core.methods.registry import register


class _Regularised(Method):
    """`an` + strength * sum over the model's trainable parameters of |w|^power."""

    loss = staticmethod(losses.an)
    own: ClassVar = {"strength": Number(1e-6, 0)}
    controls: ClassVar = {"strength": None}
    label_loss = Method.label_loss  # without the penalty, which belongs to no single label
    power: int

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        self._weights = ()  # a tuple, so that the weights are not registered as parameters of this module

    def start(self, model, observed):
        self._weights = tuple(p for p in model.parameters() if p.requires_grad)

    def forward(self, logits, observed, step):
        loss = super().forward(logits, observed, step)
        if not self._weights:
            return loss
        return loss + self.hyperparameters["strength"] * losses.lp_norm(self._weights, self.power)


@register("l1r")
class L1R(_Regularised):
    """Assume negative with l1 regularisation of the model: an + strength * sum |w| (EM 4.1, B.2).

    The weights are those of the model given to `start`; without one there is nothing to penalise.

    Args:
        strength: >= 0. EM searched 1e-9 to 1e-5.

    The source does not say which weights; here all trainable ones, including biases and normalisation.
    """

    power = 1
    label, color, line = "L1R", PURPLE, "--"
    presets = published("EM App. B.2, 2", strength=[1e-6, 1e-7, 1e-7, 1e-9])
    equation = latex.equation()


@register("l2r")
class L2R(_Regularised):
    """Assume negative with l2 regularisation of the model: an + strength * sum w^2 (EM 4.1, B.2).

    The weights are those of the model given to `start`; without one there is nothing to penalise.

    Args:
        strength: >= 0. EM searched 1e-9 to 1e-5.

    The source does not say which weights (here all trainable ones, including biases and normalisation), nor whether
    there is a factor 1/2 (here there is none).
    """

    power = 2
    label, color, line = "L2R", PURPLE, ":"
    presets = published("EM App. B.2, 2", strength=[1e-6, 1e-7, 1e-6, 1e-8])
    equation = latex.equation()
