"""GR's frame as a method: k, v and three terms, each chosen by name."""

from functools import partial
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
from spml_core.methods import latex
from spml_core.methods.base import Method, Number, OneOf
from spml_core.methods.display import WINE, Options, Slider
from spml_core.methods.registry import register


def _claimed_true(q: str) -> dict[str, tuple[str, ...]]:
    return {
        "cross_entropy": ("cross-entropy", r"-\log p"),
        "robust": ("robust, exponent q", latex.ROBUST.replace("q", q), q),
        "focal": ("focal, with margin", latex.FOCAL_MARGIN["observed"], "margin", "gamma"),
        "squared": ("squared error", "(1-p)^2"),
    }


_ENTROPY = {"entropy": ("negative entropy", latex.ENTROPY)}
# part: its options, each in words and in LaTeX, with the numbers that it uses
PARTS = {
    "k_hat": {
        "zero": ("zero", "0"),
        "logistic": ("logistic: sigmoid(w p + b)", latex.LOGISTIC, "w", "b"),
        "threshold": ("threshold: 1 where p > τ", "[p > «tau»]", "tau"),
        "annotation_rate": (
            "GR Eq. 6: (1-a) p / (1 - a p)",
            r"\frac{(1 - «annotation_rate»)\,p}{1 - «annotation_rate»\,p}",
            "annotation_rate",
        ),
    },
    "v": {
        "constant": ("constant", "«weight»", "weight"),
        "gaussian": ("Gaussian in p", latex.GAUSSIAN, "mu", "sigma"),
        "threshold": ("0 where p > τ", r"«weight»\,[p \leq «tau»]", "weight", "tau"),
    },
    "l1": _claimed_true("q1"),
    "l2": _claimed_true("q2") | _ENTROPY,
    "l3": {
        "cross_entropy": ("cross-entropy", r"-\log(1-p)"),
        "robust": ("robust, exponent q", latex.ROBUST_NEGATIVE, "q3"),
        "focal": ("focal", latex.FOCAL_NEGATIVE, "gamma"),
        "squared": ("squared error", "p^2"),
        "hill": ("Hill", latex.HILL, "lam"),
    }
    | _ENTROPY,
}
WORDS = ("pseudo-label k̂", "weight v", "L₁, observed", "L₂, missing as true", "L₃, missing as false")
DEFAULTS = ("logistic", "gaussian", "robust", "robust", "robust")


@register("unified")
class Unified(Method):
    """Any loss of GR's frame, its five parts chosen by name: k, v, L1, L2, L3 (GR Eq. 5, Table 1).

    L = L1 for observed positives, v (k L2 + (1 - k) L3) for unobserved labels, L3 for verified negatives, where no
    gradient flows through k and v; `spml_core.losses.unified`. The parts do not change during training; of the
    published methods, `gr` has a schedule and others change their labels.

    Args:
        k_hat: "zero"; "logistic", sigmoid(w p + b) (GR Eq. 7); "threshold", 1 where p > tau; "annotation_rate",
            (1 - a) p / (1 - a p) with a = annotation_rate (GR Eq. 6).
        v: "constant", weight; "gaussian", exp(-(p - mu)^2 / (2 sigma^2)) (GR Eq. 11); "threshold", weight where
            p <= tau and 0 elsewhere.
        l1, l2: loss of a label taken as positive. "cross_entropy", -log p; "robust", (1 - p^q) / q with q1 or q2 (GR
            Eq. 14); "focal", -(1 - p_m)^gamma log p_m with p_m = sigmoid(z - margin) (Hill Eq. 11); "squared",
            (1 - p)^2; l2 also "entropy", -H(p) (EM Eq. 4).
        l3: loss of a label taken as negative. "cross_entropy", -log(1 - p); "robust", with q3; "focal",
            -p^gamma log(1 - p); "squared", p^2; "hill", (lam - p) p^2 (Hill Eq. 5); "entropy", -H(p).
        w, b, tau, annotation_rate, weight, mu, sigma, q1, q2, q3, margin, gamma, lam: numbers of the parts that use
            them. tau and annotation_rate in [0, 1], weight, q1, q2, q3 and gamma >= 0, sigma > 0. Their defaults are
            GR's end values for VOC (GR Table 6), except for b: without the schedule of `gr`, b = -2 counts every
            unobserved label as 12 % positive from the first epoch on, and `digits` is not learned.
    """

    loss = staticmethod(losses.unified)
    own: ClassVar = {
        **{part: OneOf(default, tuple(PARTS[part])) for part, default in zip(PARTS, DEFAULTS, strict=True)},
        "w": Number(2.0),
        "b": Number(-4.0),
        "tau": Number(0.6, 0, 1),
        "annotation_rate": Number(0.5, 0, 1),
        "weight": Number(1.0, 0),
        "mu": Number(0.8),
        "sigma": Number(0.5, 0, ends="(]"),
        "q1": Number(0.01, 0),
        "q2": Number(0.01, 0),
        "q3": Number(1.0, 0),
        "margin": Number(1.0),
        "gamma": Number(2.0, 0),
        "lam": Number(1.5),
    }
    label, color, line, whole = "Unified frame", WINE, "--", False
    controls: ClassVar = {
        **{
            part: Options(words, tuple((text, value) for value, (text, *_) in PARTS[part].items()))
            for part, words in zip(PARTS, WORDS, strict=True)
        },
        "annotation_rate": Slider("annotation rate a of k̂", 0, 1, 0.01),
    }

    def label_loss(self, step):
        terms = {"l1": self._for_true(1), "l2": self._for_true(2), "l3": self._for_false()}
        return partial(self.loss, k_hat=self._k_hat(), v=self._v(), **terms)

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

    @classmethod
    def applicable(cls, values):
        parts = [part for part in PARTS if part != "l2" or values["k_hat"] != "zero"]
        numbers = [name for part in parts for name in PARTS[part][values[part]][2:]]
        return [*parts, *dict.fromkeys(numbers)]

    def equation(self, step):
        h = self.hyperparameters
        k, v, l1, l2, l3 = (PARTS[part][h[part]][1] for part in PARTS)
        texts = latex.GR | {"observed": l1, r"\hat k": k, "v": v, "L_2": l2, "L_3": l3}
        if h["k_hat"] == "zero":
            texts = {"observed": l1, "missing": r"v\,L_3", "v": v, "L_3": l3}
        if "margin" in self.applicable(h):
            texts["p_m"] = latex.FOCAL_MARGIN["p_m"]
        return latex.fill(texts, h)
