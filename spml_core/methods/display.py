"""What a method is shown with: its colour and line in figures, its controls in the loss lab."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from numbers import Real
from typing import NamedTuple

# The colour-blind palette of seaborn, black and wine; related methods share a colour, in the order of tables.
BLACK, BLUE, VERMILION, PURPLE, GREEN = "#000000", "#0173b2", "#d55e00", "#cc78bc", "#029e73"
ORANGE, BROWN, GREY, SKY, PINK, WINE = "#de8f05", "#ca9161", "#949494", "#56b4e9", "#fbafe4", "#882255"
COLORS = (BLACK, BLUE, VERMILION, PURPLE, GREEN, ORANGE, BROWN, GREY, SKY, PINK, WINE)
LINES = ("-", "--", ":", "-.", (0, (3, 1, 1, 1, 1, 1)))


def free_look(name: str, taken: Iterable[tuple]) -> tuple:
    """Return a (colour, line) for a method without one: of those not taken, always the same for the same name."""
    looks, start, taken = [(c, line) for line in LINES for c in COLORS], zlib.crc32(name.encode()), set(taken)
    turned = [looks[(start + n) % len(looks)] for n in range(len(looks))]
    return next((look for look in turned if look not in taken), turned[0])


def look_order(method) -> tuple[int, int]:
    """Return a key that sorts methods by colour, so that related ones come together; unknown colours come last."""
    color = COLORS.index(method.color) if method.color in COLORS else len(COLORS)
    return color, LINES.index(method.line) if method.line in LINES else len(LINES)


class Slider(NamedTuple):
    """A number between two ends, in steps; `value` is where it begins if the hyperparameter has no default."""

    words: str
    low: float
    high: float
    step: float
    value: float | None = None


class Options(NamedTuple):
    """A list to choose from: values, or (what is shown, value) pairs. Without any, a text to write."""

    words: str
    options: tuple = ()


_USUAL = {
    "w": Slider("slope w of k̂", -20, 20, 0.1),
    "b": Slider("offset b of k̂", -15, 15, 0.1),
    "mu": Slider("centre μ of v", -0.5, 1.5, 0.01),
    "sigma": Slider("width σ of v", 0.01, 4, 0.01),
    "q1": Slider("exponent q₁", 0, 2, 0.01),
    "q2": Slider("exponent q₂", 0, 2, 0.01),
    "q3": Slider("exponent q₃", 0, 2, 0.01),
    "tau": Slider("threshold τ on p", 0, 1, 0.01),
    "weight": Slider("weight", 0, 1, 0.01),
    "margin": Slider("margin m on z", 0, 4, 0.05),
    "gamma": Slider("focusing γ", 0, 8, 0.1),
    "gamma_pos": Slider("focusing γ₊", 0, 8, 0.1),
    "gamma_neg": Slider("focusing γ₋", 0, 8, 0.1),
    "lam": Slider("λ of Hill", 1, 3, 0.01),
    "alpha": Slider("strength α of the entropy", 0, 2, 0.01),
    "smoothing": Slider("smoothing", 0, 1, 0.01),
    "expected_positives": Slider("positives an image k", 1, 9, 0.1, value=1.5),  # of digits
    "delta": Slider("share δ an epoch", 0, 0.1, 0.001),
    "warmup": Slider("warm-up epochs", 1, 9, 1),
    "base": Options("base loss", ("bce", "focal", "asl", "focal_margin")),
}


def usual(*names: str) -> dict[str, Slider | Options]:
    """Return the controls of hyperparameters that several methods have."""
    return {name: _USUAL[name] for name in names}


def derived(name: str, default, required: bool = False) -> Slider | Options | None:
    """Return a control for a hyperparameter that nobody has described, from its default; None where there is none."""
    if isinstance(default, bool):
        return Options(name, (("yes", True), ("no", False)))
    if isinstance(default, str):
        return Options(name)
    value = 1.0 if default is None and required else default
    ends = value if isinstance(value, tuple | list) else (value,)
    if len(ends) > 2 or not all(isinstance(end, Real) and math.isfinite(end) for end in ends):
        return None
    whole = isinstance(value, int)
    high = 2 * max(map(abs, ends)) or (10 if whole else 1)
    step = 1 if whole else 10.0 ** (math.floor(math.log10(high)) - 2)
    return Slider(name, -high if min(ends) < 0 else 0, high, step, value)
