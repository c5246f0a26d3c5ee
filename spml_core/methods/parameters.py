"""Hyperparameters of a method beyond those of its loss: the default of each, and what it may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real


@dataclass(frozen=True)
class Number:
    """A number between `low` and `high`, a whole one if the default is; `ends` says which ends belong to the range."""

    default: float
    low: float = -math.inf
    high: float = math.inf
    ends: str = "[]"

    def check(self, name: str, value):
        """Return the value. Raises ValueError unless it fits."""
        whole = isinstance(self.default, int)
        fits = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
        fits = fits and (self.low <= value if self.ends[0] == "[" else self.low < value)
        if not fits or not (value <= self.high if self.ends[1] == "]" else value < self.high):
            ends = (
                "(" if self.low == -math.inf else self.ends[0],
                ")" if self.high == math.inf else self.ends[1],
            )
            interval = f"{ends[0]}{self.low}, {self.high}{ends[1]}"
            raise ValueError(f"{name} must be a {'whole ' * whole}number in {interval}, got {value!r}")
        return value


class Pair(Number):
    """A (start, end) pair of such numbers; a single number stands for a constant."""

    def check(self, name: str, value) -> tuple[float, float]:
        """Return the value as a pair of floats. Raises ValueError unless both fit."""
        pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
        if len(pair) != 2:
            raise ValueError(f"{name} must be a (start, end) pair of numbers or one number, got {value!r}")
        start, end = (super(Pair, self).check(name, one) for one in pair)
        return (float(start), float(end))


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    default: str | bool
    options: tuple

    def check(self, name: str, value):
        """Return the value. Raises ValueError with the options unless it is one of them."""
        if type(value) is not type(self.default) or value not in self.options:
            raise ValueError(f"unknown {name} {value!r}: use one of {', '.join(map(str, self.options))}")
        return value
