"""ROLE: a table of label estimates, learned beside the model."""

import math
from typing import ClassVar

import torch
from torch import nn

from spml_core import losses
from spml_core.methods.base import Number
from spml_core.methods.display import PINK, published
from spml_core.methods.memory import Memory
from spml_core.methods.registry import register


@register("role")
class ROLE(Memory):
    """Regularised online label estimation: model and label estimates learn from each other (Cole et al., CVPR 2021).

    `spml_core.losses.role`; LASD A.2.2 repeats the equations.

    `estimator`: parameter (num_examples, C), logits of the label estimates. Its initial values are uniform between
    -logit 0.6 and logit 0.6; `start` sets observed positives to logit 0.995 and verified negatives to its negative.

    Args:
        expected_positives: k in (0, C], true positives per image. Required: there is no default for new data.
        lr_factor: learning rate of the estimates, relative to the model's. They share the model's Adam, which is dense:
            rows outside the batch keep moving with their momentum, as in the released code.
    """

    loss = staticmethod(losses.role)
    own: ClassVar = {"expected_positives": None, "lr_factor": Number(10.0, 0, ends="(]")}
    label, color, line = "ROLE", PINK, "--"
    no_curve = "it depends on estimates that training learns"
    requires = ("expected_positives",)
    presets = published("Cole et al., CVPR 2021 (k)", expected_positives=[1.5, 2.9, 1.9, 31.4])

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        bound = math.log(0.6 / 0.4)
        self.estimator = nn.Parameter(torch.empty(self.num_examples, num_classes).uniform_(-bound, bound))

    @torch.no_grad()
    def start(self, model, observed):
        sure = math.log(0.995 / 0.005)
        known = torch.where(observed > 0, sure, -sure).to(self.estimator)
        self.estimator.copy_(torch.where(observed == 0, self.estimator, known))

    def param_groups(self, lr):
        return [{"params": [self.estimator], "lr": lr * self.hyperparameters["lr_factor"]}]

    def label_loss(self, step):
        """Return the loss of a batch, which cannot be split into losses of single labels."""
        estimates, constants = self.kept("estimator", step), self.constants()
        return lambda z, s: self.loss(z, estimates, s, **constants)
