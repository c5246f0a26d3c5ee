"""Hyperparameters of a method beyond those of its loss: the default of each, and what it may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from spml_core.losses.common import check_range


@dataclass(frozen=True)
class Number:
    """A number between `low` and `high`, a whole one if the default is; `ends` says which ends belong to the range."""

    default: float | None
    low: float = -math.inf
    high: float = math.inf
    ends: str = "[]"

    def check(self, name: str, value):
        """Return the value. Raises ValueError unless it fits."""
        if isinstance(self.default, int) and not isinstance(value, Integral):
            raise ValueError(f"{name} must be a whole number, at least {self.low}; got {value!r}")
        check_range(name, value, self.low, self.high, self.ends)
        return value


@dataclass(frozen=True)
class Pair:
    """A (start, end) pair of numbers; a single number stands for a constant."""

    default: float | tuple[float, float]
    low: float = -math.inf
    ends: str = "[]"

    def check(self, name: str, value) -> tuple[float, float]:
        """Return the value as a pair of floats. Raises ValueError unless both ends fit."""
        pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
        if len(pair) != 2 or not all(isinstance(v, Real) and math.isfinite(v) for v in pair):
            raise ValueError(
                f"{name} must be a (start, end) pair of finite numbers or one such number, got {value!r}"
            )
        for end, number in zip(("start", "end"), pair, strict=True):
            check_range(f"{name} at the {end} of its schedule", number, self.low, math.inf, self.ends)
        return (float(pair[0]), float(pair[1]))


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    default: str | bool
    options: tuple

    def check(self, name: str, value):
        """Return the value. Raises ValueError with the options unless it is one of them."""
        if type(value) is not type(self.default) or value not in self.options:
            raise ValueError(
                f"unknown {name} {value!r}: {name} is one of {', '.join(map(str, self.options))}"
            )
        return value
