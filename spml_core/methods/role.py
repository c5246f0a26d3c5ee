"""ROLE: a table of label estimates, learned beside the model."""

from __future__ import annotations

import math

import torch
from torch import nn

from spml_core import losses
from spml_core.methods.base import register
from spml_core.methods.memory import Memory, check_number


@register("role")
class ROLE(Memory):
    """Regularised online label estimation: model and label estimates learn from each other (Cole et al., CVPR 2021).

    `spml_core.losses.role`; LASD A.2.2 repeats the equations.

    `estimator`: parameter (num_examples, C), logits of the label estimates. It starts uniform between -logit 0.6 and
    logit 0.6; `start` puts observed positives at logit 0.995 and verified negatives at its negative.

    Args:
        expected_positives: k in (0, C], true positives an image. Required: there is no default for new data.
        lr_factor: learning rate of the estimates, relative to the model's. They share its Adam, which is dense: rows
            outside the batch move on with their momentum, as in the released code.
    """

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        expected_positives: float | None = None,
        lr_factor: float = 10.0,
        log_floor: float = 0.0,
    ):
        losses.expected_positives_penalty(torch.zeros(1, num_classes), expected_positives)  # checks it
        check_number("lr_factor", lr_factor, 0, math.inf, "()")
        check_number("log_floor", log_floor, 0, 1)
        super().__init__(
            num_classes,
            num_examples,
            expected_positives=expected_positives,
            lr_factor=lr_factor,
            log_floor=log_floor,
        )
        bound = math.log(0.6 / 0.4)
        self.estimator = nn.Parameter(torch.empty(self.num_examples, num_classes).uniform_(-bound, bound))

    @torch.no_grad()
    def start(self, model, observed):
        sure = math.log(0.995 / 0.005)
        known = torch.where(observed > 0, sure, -sure).to(self.estimator)
        self.estimator.copy_(torch.where(observed == 0, self.estimator, known))

    def param_groups(self, lr):
        return [{"params": [self.estimator], "lr": lr * self.hyperparameters["lr_factor"]}]

    def forward(self, logits, observed, step):
        estimates = self.estimator.index_select(0, self.rows(step, logits))
        options = {k: self.hyperparameters[k] for k in ("expected_positives", "log_floor")}
        return losses.role(logits, estimates, observed, **options)
