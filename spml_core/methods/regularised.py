"""Assume negative with a penalty on the model's weights."""

from __future__ import annotations

import math

from spml_core import losses
from spml_core.methods.base import Method, register
from spml_core.methods.memory import check_number


class _Regularised(Method):
    """`an` + strength * sum over the model's trainable parameters of |w|^power."""

    power: int

    def __init__(self, num_classes, num_examples=None, *, strength: float = 1e-6, log_floor: float = 0.0):
        check_number("strength", strength, 0, math.inf, "[)")
        check_number("log_floor", log_floor, 0, 1)
        super().__init__(num_classes, num_examples, strength=strength, log_floor=log_floor)
        self._weights = ()  # a tuple, so that the model does not become a part of this module

    def start(self, model, observed):
        self._weights = tuple(p for p in model.parameters() if p.requires_grad)

    def forward(self, logits, observed, step):
        loss = losses.an(logits, observed, log_floor=self.hyperparameters["log_floor"])
        if not self._weights:
            return loss
        return loss + self.hyperparameters["strength"] * losses.lp_norm(self._weights, self.power)


@register("l1r")
class L1R(_Regularised):
    """Assume negative with l1 regularisation of the model: an + strength * sum |w| (EM 4.1, B.2).

    The weights are those of the model given to `start`; without one there is nothing to penalise.

    Args:
        strength: >= 0. EM searched 1e-9 to 1e-5.

    The source leaves open which weights: all trainable ones here, biases and normalisation included.
    """

    power = 1


@register("l2r")
class L2R(_Regularised):
    """Assume negative with l2 regularisation of the model: an + strength * sum w^2 (EM 4.1, B.2).

    The weights are those of the model given to `start`; without one there is nothing to penalise.

    Args:
        strength: >= 0. EM searched 1e-9 to 1e-5.

    The source leaves open which weights (all trainable ones here, biases and normalisation included) and whether a
    factor 1/2 belongs to it (none here).
    """

    power = 2
