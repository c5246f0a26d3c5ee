"""GR with k and v learned by gradient descent, the ablation of its Table 3."""

import math
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from spml_core import losses
from spml_core.methods import latex
from spml_core.methods.base import Method, Number
from spml_core.methods.display import BLUE
from spml_core.methods.registry import register


@register("gr_trainable")
class GRTrainable(Method):
    """GR with trainable pseudo-label and weight: w, b, mu, sigma of each class learn by SGD (GR Table 3, last row).

    `spml_core.losses.gr` with k and v learned instead of scheduled; k(p) is a logistic of p for each class, without
    gradient through p. `w`, `b`, `mu`, `log_sigma`: parameters (C,).

    Args:
        w, b, mu, sigma: initial values, the same for every class; by default GR's start values.
        sgd_lr: > 0, learning rate of their SGD, which has no momentum.
        q1, q2, q3: >= 0, as in `gr`.

    The source does not specify the optimizer's settings or the initial values; that each class has its own parameters
    follows from the subscripts of its Eq. 4 and 5. Sigma is learned as its logarithm, which keeps it positive. The loss
    falls when v does, so only a small learning rate keeps the weight of unobserved labels from vanishing. The paper
    also finds this worse than the schedule.
    """

    loss = staticmethod(losses.gr)
    own: ClassVar = {
        "w": Number(0.0),
        "b": Number(-2.0),
        "mu": Number(0.5),
        "sigma": Number(2.0, 0, ends="(]"),
        "sgd_lr": Number(0.1, 0, ends="(]"),
    }
    label, color, line, whole = "GR, trainable", BLUE, "--", False
    controls: ClassVar = {"sgd_lr": None}

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        start = {k: self.hyperparameters[k] for k in ("w", "b", "mu")}
        for name, value in (start | {"log_sigma": math.log(self.hyperparameters["sigma"])}).items():
            self.register_parameter(name, nn.Parameter(torch.full((num_classes,), float(value))))

    def param_groups(self, lr):
        return []

    def own_optimizer(self, lr):
        return torch.optim.SGD(self.parameters(), lr=self.hyperparameters["sgd_lr"])

    def label_loss(self, step):
        learned = {"w": self.w, "b": self.b, "mu": self.mu, "sigma": self.log_sigma.exp()}
        return partial(self.loss, **self.constants() | learned)

    def equation(self, step):
        return latex.fill(latex.GR, self.hyperparameters)
