"""A control for each hyperparameter: its name in words, its range, its step."""

from __future__ import annotations

import ipywidgets as widgets

from spml_core import methods
from spml_core.explore.panel import choice, decimals, number, slider

# name: words, lowest, highest, step. Every method takes the lowest and the highest, unless OWN says otherwise.
NUMBERS = {
    "w": ("slope w of k̂", -20, 20, 0.1),
    "b": ("offset b of k̂", -15, 15, 0.1),
    "tau": ("threshold τ on p", 0, 1, 0.01),
    "annotation_rate": ("annotation rate a of k̂", 0, 1, 0.01),
    "weight": ("weight", 0, 1, 0.01),
    "mu": ("centre μ of v", -0.5, 1.5, 0.01),
    "sigma": ("width σ of v", 0.01, 4, 0.01),
    "q1": ("exponent q₁", 0, 2, 0.01),
    "q2": ("exponent q₂", 0, 2, 0.01),
    "q3": ("exponent q₃", 0, 2, 0.01),
    "margin": ("margin m on z", 0, 4, 0.05),
    "gamma": ("focusing γ", 0, 8, 0.1),
    "gamma_pos": ("focusing γ₊", 0, 8, 0.1),
    "gamma_neg": ("focusing γ₋", 0, 8, 0.1),
    "lam": ("λ of Hill", 1, 3, 0.01),
    "alpha": ("strength α of the entropy", 0, 2, 0.01),
    "beta": ("weight β of pseudo-labels", 0, 1, 0.01),
    "theta": ("final share θ of negatives", 0.01, 1, 0.01),
    "positive": ("final share of positives", 0, 1, 0.01),
    "smoothing": ("smoothing", 0, 1, 0.01),
    "expected_positives": ("positives an image k", 1, 9, 0.1),
    "decay": ("decay of the average", 0, 0.99, 0.01),
    "first": ("share of stage one", 0.05, 0.95, 0.05),
    "delta": ("share δ an epoch", 0, 0.1, 0.001),
    "lambda_plus": ("weight λ₊", 0, 1, 0.01),
    "warmup": ("warm-up epochs", 1, 9, 1),
    "first_epoch": ("corrects from epoch", 1, 10, 1),
}
OWN = {
    ("asl", "margin"): ("margin m on p", 0, 1, 0.01),
    ("asl_ps", "margin"): ("margin m on p", 0, 1, 0.01),
    ("pseudo_label", "tau"): ("threshold τ on p", 0.01, 0.99, 0.01),
}
CHOICES = {
    "base": ("base loss", ["bce", "focal", "asl", "focal_margin"]),
    "negative": ("loss of negatives", ["focal", "hill"]),
    "schedule": ("schedule", ["code", "paper"]),
    "soft": ("pseudo-labels", [("soft", True), ("hard", False)]),
    "shift_corrected": ("margin on corrected", [("no", False), ("yes", True)]),
    "log_floor": ("logarithms", [("exact", 0.0), ("+ 1e-7, as published", 1e-7), ("+ 1e-5, as published", 1e-5)]),
}  # fmt: skip
# What changes no curve: weights of terms that are not of one label, learning rates of a method's own.
LEFT_OUT = {"strength", "sgd_lr", "lr_factor", ("lasd", "alpha"), ("gr", "expected_positives")}
LEFT_OUT |= {("pseudo_label", "log_floor")}  # of one of its four bases
GIVEN = {"expected_positives": 1.5}  # of digits, where a method has no default
PARTS = {
    "k_hat": ("pseudo-label k̂", {"zero": "zero", "logistic": "logistic: sigmoid(w p + b)",
        "threshold": "threshold: 1 where p > τ", "annotation_rate": "GR Eq. 6: (1-a) p / (1 - a p)"}),
    "v": ("weight v", {"constant": "constant", "gaussian": "Gaussian in p", "threshold": "0 where p > τ"}),
    "l1": ("L₁, observed", {}),
    "l2": ("L₂, missing as true", {}),
    "l3": ("L₃, missing as false", {}),
}  # fmt: skip
TERMS = {
    "cross_entropy": "cross-entropy",
    "robust": "robust, exponent q",
    "focal": "focal, with margin",
    "squared": "squared error",
    "hill": "Hill",
    "entropy": "negative entropy",
}
NEEDS = {  # numbers that a part of the unified frame has
    "k_hat": {"logistic": ("w", "b"), "threshold": ("tau",), "annotation_rate": ("annotation_rate",)},
    "v": {"constant": ("weight",), "gaussian": ("mu", "sigma"), "threshold": ("weight", "tau")},
    "l1": {"robust": ("q1",), "focal": ("margin", "gamma")},
    "l2": {"robust": ("q2",), "focal": ("margin", "gamma")},
    "l3": {"robust": ("q3",), "focal": ("gamma",), "hill": ("lam",)},
}


class Hyperparameters:
    """The controls of one method: `shown()` are those that apply, `params()` their values by the method's names.

    What a control cannot say (a default that is derived, a part of no single label) stays at its default.
    """

    def __init__(self, method: str):
        self.method, self.defaults = method, methods.defaults(method)
        self.controls = {}  # name: one control, or two for the ends of a schedule
        for name, default in self.defaults.items():
            if made := self._controls(name, default):
                self.controls[name] = made

    def all(self) -> list[widgets.Widget]:
        return [widget for group in self.controls.values() for widget in group]

    def shown(self) -> list[widgets.Widget]:
        names = self.controls if self.method != "unified" else self._used()
        return [widget for name in names for widget in self.controls[name]]

    def params(self) -> dict:
        """Values of all controls that are shown, with the digits that are shown."""
        names = self.controls if self.method != "unified" else self._used()
        values = {name: tuple(number(widget) for widget in self.controls[name]) for name in names}
        return {name: value[0] if len(value) == 1 else value for name, value in values.items()}

    def changed(self) -> dict:
        """`params()` without what is the default anyway."""
        return {name: value for name, value in self.params().items() if value != self.defaults[name]}

    def set(self, values: dict) -> None:
        """Let the controls show these, by the method's names; a pair for the ends of a schedule."""
        for name, value in values.items():
            if name not in self.controls:
                raise ValueError(
                    f"the loss lab has no control {name!r} for {self.method}: it has {', '.join(self.controls)}"
                )
            controls = self.controls[name]
            pair = value if isinstance(value, tuple | list) else [value] * len(controls)
            for widget, one in zip(controls, pair, strict=True):
                if hasattr(widget, "min"):  # else a slider would take its end for a value beyond it
                    widget.min, widget.max = min(widget.min, one), max(widget.max, one)
                if isinstance(widget, widgets.FloatSlider):
                    while abs(round(one, decimals(widget.step)) - one) > 1e-9 and widget.step > 1e-6:
                        widget.step /= 10  # as fine as what is asked for
                    widget.readout_format = f".{decimals(widget.step)}f"
                widget.value = one

    def _used(self) -> list[str]:
        chosen = {part: self.controls[part][0].value for part in NEEDS}
        parts = [part for part in NEEDS if part != "l2" or chosen["k_hat"] != "zero"]
        numbers = [name for part in parts for name in NEEDS[part].get(chosen[part], ())]
        return [*parts, *dict.fromkeys(numbers)]

    def _controls(self, name: str, default) -> list[widgets.Widget]:
        method = self.method
        if name in LEFT_OUT or (method, name) in LEFT_OUT:
            return []
        if method == "unified" and name in PARTS:
            words, texts = PARTS[name]
            texts = texts or TERMS
            return [choice(words, [(texts[v], v) for v in methods.get(method).CHOICES[name]], default)]
        if name in CHOICES:
            words, options = CHOICES[name]
            return [choice(words, options, default)]
        default = GIVEN.get(name) if default is None else default
        if default is None:
            return []
        words, low, high, step = OWN.get((method, name), NUMBERS[name])
        if isinstance(default, tuple):
            ends = zip(("start", "end"), default, strict=True)
            return [slider(f"{words}, {end}", value, low, high, step) for end, value in ends]
        return [slider(words, default, low, high, step, whole=isinstance(default, int))]
