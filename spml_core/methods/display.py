"""How a method is shown: its colour and line in figures, its controls in the loss lab, its published values."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

# The colour-blind palette of seaborn, black and wine; related methods share a colour, in the order of tables.
BLACK, BLUE, VERMILION, PURPLE, GREEN = "#000000", "#0173b2", "#d55e00", "#cc78bc", "#029e73"
ORANGE, BROWN, GREY, SKY, PINK, WINE = "#de8f05", "#ca9161", "#949494", "#56b4e9", "#fbafe4", "#882255"
COLORS = (BLACK, BLUE, VERMILION, PURPLE, GREEN, ORANGE, BROWN, GREY, SKY, PINK, WINE)
NEW_COLORS = (
    "#3000c0",
    "#781800",
    "#306030",
)  # for methods without a colour; no method of the papers has one of these
LINES = ("-", "--", ":", "-.", (0, (3, 1, 1, 1, 1, 1)))


def free_look(name: str, taken: Iterable[tuple]) -> tuple:
    """Return an unused (colour, line) for a method without one; new colours and solid lines come first."""
    first, taken = zlib.crc32(name.encode()) % len(NEW_COLORS), set(taken)
    turned = NEW_COLORS[first:] + NEW_COLORS[:first]
    looks = [(color, line) for colors in (turned, COLORS) for line in LINES for color in colors]
    return next((look for look in looks if look not in taken), looks[0])


def look_order(method) -> tuple[int, int]:
    """Return a key that sorts methods by colour, so that related ones come together; unknown colours come last."""
    color = COLORS.index(method.color) if method.color in COLORS else len(COLORS)
    return color, LINES.index(method.line) if method.line in LINES else len(LINES)


class Slider(NamedTuple):
    """A number between two ends, in steps; `value` is the initial one if the hyperparameter has no default."""

    words: str
    low: float
    high: float
    step: float
    value: float | None = None


class Options(NamedTuple):
    """A list to choose from: values, or (what is shown, value) pairs. Without any, a text field."""

    words: str
    options: tuple = ()


USUAL = {  # of the papers' losses, by hyperparameter
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
    "expected_positives": Slider("positives per image k", 1, 9, 0.1, value=1.5),  # of digits
    "delta": Slider("share δ per epoch", 0, 0.1, 0.001),
    "warmup": Slider("warm-up epochs", 1, 9, 1),
    "log_floor": Options(
        "logarithms", (("exact", 0.0), ("+ 1e-7, as published", 1e-7), ("+ 1e-5, as published", 1e-5))
    ),
    "base": Options("base loss", ("bce", "focal", "asl", "focal_margin")),
}


def derived(name: str, default, required: bool = False) -> Slider | Options | None:
    """Return a control derived from the default of a hyperparameter; None if the default allows none."""
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


DATASETS = ("voc2012", "coco2014", "nuswide", "cub200")


@dataclass(frozen=True)
class Published:
    """The values that a paper gives for a method: `params` by data set, and their `source`.

    `training` holds, by data set, the epochs, batch size and learning rate that the same source gives.
    """

    source: str
    params: dict[str, dict]
    training: dict[str, dict]


def published(source: str, training: dict | None = None, **params) -> Published:
    """Return the published values of a method.

    Args:
        source: paper and table.
        training: epochs, batch size, learning rate; None = ten epochs, as in EM, LASD and Cole et al.
        params: hyperparameters. A list has a value for each of `DATASETS`, None for one that the source leaves out;
            anything else holds for all of them.
    """
    return Published(
        source, _by_dataset(params), _by_dataset({"epochs": 10} if training is None else training)
    )


def _by_dataset(columns: dict) -> dict[str, dict]:
    of = lambda value, n: value[n] if isinstance(value, list) else value  # noqa: E731
    rows = {d: {name: of(value, n) for name, value in columns.items()} for n, d in enumerate(DATASETS)}
    return {d: row for d, row in rows.items() if None not in row.values()}
