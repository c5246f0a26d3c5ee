"""GR's frame as a method: k, v and three terms, each chosen by name."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from spml_core import losses
from spml_core.losses.terms import (
    cross_entropy,
    focal_term,
    hill_term,
    negative_entropy,
    robust_term,
    squared_error,
)
from spml_core.methods.base import Method, probe, register
from spml_core.methods.memory import check_number


@register("unified")
class Unified(Method):
    """Any loss of GR's frame, its five parts chosen by name: k, v, L1, L2, L3 (GR Eq. 5, Table 1).

    L = L1 for observed positives, v (k L2 + (1 - k) L3) for unobserved labels, L3 for verified negatives, where no
    gradient flows through k and v; `spml_core.losses.unified`. The parts stay what they are during training: of the
    published methods, `gr` has a schedule and others change their labels.

    Args:
        k_hat: "zero"; "logistic", sigmoid(w p + b) (GR Eq. 7); "threshold", 1 where p > tau; "annotation_rate",
            (1 - a) p / (1 - a p) with a = annotation_rate (GR Eq. 6).
        v: "constant", weight; "gaussian", exp(-(p - mu)^2 / (2 sigma^2)) (GR Eq. 11); "threshold", weight where
            p <= tau and 0 elsewhere.
        l1, l2: what a label claimed true costs. "cross_entropy", -log p; "robust", (1 - p^q) / q with q1 or q2 (GR
            Eq. 14); "focal", -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) (Hill Eq. 11); "squared",
            (1 - p)^2; l2 also "entropy", -H(p) (EM Eq. 4).
        l3: what a label claimed false costs. "cross_entropy", -log(1 - p); "robust", with q3; "focal",
            -p^gamma log(1 - p); "squared", p^2; "hill", (lam - p) p^2 (Hill Eq. 5); "entropy", -H(p).
        w, b, tau, annotation_rate, weight, mu, sigma, q1, q2, q3, margin, gamma, lam: numbers of the parts that have
            them. tau and annotation_rate in [0, 1], weight, q1, q2, q3 and gamma >= 0, sigma > 0. Their defaults are
            GR's end values for VOC (GR Table 6) but for b: -2 from the first epoch on, without the schedule of `gr`,
            calls 12 % of every unknown label true, and `digits` is not learned.
    """

    FOR_TRUE = ("cross_entropy", "robust", "focal", "squared")
    CHOICES: ClassVar = {
        "k_hat": ("zero", "logistic", "threshold", "annotation_rate"),
        "v": ("constant", "gaussian", "threshold"),
        "l1": FOR_TRUE,
        "l2": (*FOR_TRUE, "entropy"),
        "l3": (*FOR_TRUE, "hill", "entropy"),
    }

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        k_hat: str = "logistic",
        v: str = "gaussian",
        l1: str = "robust",
        l2: str = "robust",
        l3: str = "robust",
        w: float = 2.0,
        b: float = -4.0,
        tau: float = 0.6,
        annotation_rate: float = 0.5,
        weight: float = 1.0,
        mu: float = 0.8,
        sigma: float = 0.5,
        q1: float = 0.01,
        q2: float = 0.01,
        q3: float = 1.0,
        margin: float = 1.0,
        gamma: float = 2.0,
        lam: float = 1.5,
    ):
        chosen = {"k_hat": k_hat, "v": v, "l1": l1, "l2": l2, "l3": l3}
        for name, value in chosen.items():
            if value not in self.CHOICES[name]:
                raise ValueError(f"unknown {name} {value!r}: use one of {', '.join(self.CHOICES[name])}")
        for name, value in {"w": w, "b": b, "mu": mu, "margin": margin, "lam": lam}.items():
            check_number(name, value, -math.inf, math.inf, "()")
        for name, value in {"tau": tau, "annotation_rate": annotation_rate}.items():
            check_number(name, value, 0, 1)
        for name, value in {"weight": weight, "q1": q1, "q2": q2, "q3": q3, "gamma": gamma}.items():
            check_number(name, value, 0, math.inf, "[)")
        check_number("sigma", sigma, 0, math.inf, "()")
        numbers = {"w": w, "b": b, "tau": tau, "annotation_rate": annotation_rate, "weight": weight, "mu": mu}
        numbers |= {
            "sigma": sigma,
            "q1": q1,
            "q2": q2,
            "q3": q3,
            "margin": margin,
            "gamma": gamma,
            "lam": lam,
        }
        super().__init__(num_classes, num_examples, **chosen, **numbers)
        probe(self)

    def forward(self, logits, observed, step):
        return self.loss(logits, observed)

    def loss(self, logits, observed, reduction="mean"):
        """`spml_core.losses.unified` with the parts that were chosen."""
        parts = (self._k_hat(), self._v(), self._for_true(1), self._for_true(2), self._for_false())
        return losses.unified(logits, observed, *parts, reduction=reduction)

    def _k_hat(self):
        h = self.hyperparameters
        a = h["annotation_rate"]
        return {
            "zero": 0.0,
            "logistic": lambda p: torch.sigmoid(h["w"] * p + h["b"]),
            "threshold": lambda p: (p > h["tau"]).to(p.dtype),
            # at a = p = 1, where nothing is missing, 0
            "annotation_rate": lambda p: (1 - a) * p / (1 - a * p).clamp(min=torch.finfo(p.dtype).tiny),
        }[h["k_hat"]]

    def _v(self):
        h = self.hyperparameters
        return {
            "constant": h["weight"],
            "gaussian": lambda p: torch.exp(-((p - h["mu"]) ** 2) / (2 * h["sigma"] ** 2)),
            "threshold": lambda p: h["weight"] * (p <= h["tau"]),
        }[h["v"]]

    def _for_true(self, number):
        h = self.hyperparameters
        return {
            "cross_entropy": cross_entropy,
            "robust": lambda z: robust_term(z, h[f"q{number}"]),
            "focal": lambda z: focal_term(z - h["margin"], h["gamma"]),
            "squared": lambda z: squared_error(-z),
            "entropy": negative_entropy,
        }[h[f"l{number}"]]

    def _for_false(self):
        h = self.hyperparameters
        return {
            "cross_entropy": lambda z: cross_entropy(-z),
            "robust": lambda z: robust_term(-z, h["q3"]),
            "focal": lambda z: focal_term(-z, h["gamma"]),
            "squared": squared_error,
            "hill": lambda z: hill_term(z, h["lam"]),
            "entropy": negative_entropy,
        }[h["l3"]]
