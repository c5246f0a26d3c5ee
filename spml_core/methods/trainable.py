"""GR with k and v learned by gradient descent, the ablation of its Table 3."""

from __future__ import annotations

import math

import torch
from torch import nn

from spml_core import losses
from spml_core.methods.base import Method, probe, register
from spml_core.methods.memory import check_number


@register("gr_trainable")
class GRTrainable(Method):
    """GR with trainable pseudo-label and weight: w, b, mu, sigma of each class learn by SGD (GR Table 3, last row).

    `spml_core.losses.gr` whose k and v are not scheduled but learned; k(p) is a logistic of p for each
    class, p without gradient. `w`, `b`, `mu`, `log_sigma`: parameters (C,).

    Args:
        w, b, mu, sigma: their start, the same for every class; GR's start values.
        sgd_lr: > 0, learning rate of their SGD, which has no momentum.
        q1, q2, q3: >= 0, as in `gr`.

    The source leaves open the optimizer's settings and the start; that each class has its own parameters, the
    subscripts of its Eq. 4 and 5 say. Sigma is kept positive by its logarithm. The loss falls when v does, so nothing
    but a small learning rate keeps the weight of unobserved labels from vanishing: the paper, too, finds it worse than
    the schedule.
    """

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        w: float = 0.0,
        b: float = -2.0,
        mu: float = 0.5,
        sigma: float = 2.0,
        sgd_lr: float = 0.1,
        q1: float = 0.01,
        q2: float = 0.01,
        q3: float = 1.0,
        log_floor: float = 0.0,
    ):
        for name, value in (("w", w), ("b", b), ("mu", mu)):
            check_number(name, value, -math.inf, math.inf, "()")
        check_number("sigma", sigma, 0, math.inf, "()")
        check_number("sgd_lr", sgd_lr, 0, math.inf, "()")
        super().__init__(
            num_classes,
            num_examples,
            w=w,
            b=b,
            mu=mu,
            sigma=sigma,
            sgd_lr=sgd_lr,
            q1=q1,
            q2=q2,
            q3=q3,
            log_floor=log_floor,
        )
        for name, value in (("w", w), ("b", b), ("mu", mu), ("log_sigma", math.log(sigma))):
            self.register_parameter(name, nn.Parameter(torch.full((num_classes,), float(value))))
        probe(self)

    def param_groups(self, lr):
        return []

    def own_optimizer(self, lr):
        return torch.optim.SGD(self.parameters(), lr=self.hyperparameters["sgd_lr"])

    def forward(self, logits, observed, step):
        constants = {k: self.hyperparameters[k] for k in ("q1", "q2", "q3", "log_floor")}
        learned = {"w": self.w, "b": self.b, "mu": self.mu, "sigma": self.log_sigma.exp()}
        return losses.gr(logits, observed, **learned, **constants)
