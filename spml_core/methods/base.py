"""The clock, the base classes of all methods, and the types of hyperparameters beyond those of a loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import ClassVar

import torch
from torch import Tensor, nn

from spml_core.methods.display import USUAL, Options, Slider, derived

# Attributes and methods of a class that do not affect training, so they are not part of the identity of its runs.
SHOWN = frozenset({
    "label", "color", "line", "whole", "requires", "presets", "equation", "remark", "no_curve", "clocked", "batchwise",
    "controls", "control", "applicable",
})  # fmt: skip


@dataclass(frozen=True)
class Step:
    """The current step. `epoch` counts from 1 to `num_epochs`; `index`: (N,) rows of the training set, or None."""

    epoch: int
    num_epochs: int
    index: Tensor | None = None

    def __post_init__(self):
        if not 1 <= self.epoch <= self.num_epochs:
            raise ValueError(f"epoch counts from 1 to num_epochs={self.num_epochs}, got {self.epoch}")


class Method(nn.Module):
    """Base class of all methods: `method(logits, observed, step)` returns a scalar, the mean over N*C.

    Its hyperparameters are the keyword arguments of its `loss` that have a default, those of its `__init__`, and `own`;
    each is defined in one of these three places. The attributes from `label` on are for display only (`SHOWN`).

    Attributes:
        hyperparameters: their effective values, as JSON.
        loss: pure function of logits and observed labels.
        supplied: keyword arguments of `loss` that the method passes itself.
        own: further hyperparameters: each a default, or a `Number`, `Pair` or `OneOf`, which says what is allowed.
        observes: (num_pos, num_neg) labels that this method sees of each image unless an experiment says otherwise;
            -1 = all. Oracles observe more than one positive, so the truth reaches a loss only as observed labels.
        head: of the model, one of `models.HEADS`, if the method needs a certain one; else the experiment chooses.
        views: how many views of each image the method compares; above 1, logits are (views, N, C), the original first.
        label, color, line: in figures and tables. A class without them gets them when it is registered.
        whole: False for a part or a variant of a published method, which is left out of benchmarks.
        requires: hyperparameters that must be given, since they depend on the data.
        presets: published hyperparameters, `display.published`.
        controls: by hyperparameter, a `Slider` or `Options` of the loss lab; None for one that changes no curve. A
            hyperparameter without an entry gets the usual control of its name; in a loss of your own, one derived from
            its default.
        no_curve: why the loss of a single label cannot be drawn; "" if it can.
        clocked: whether the curve of a label changes with the epoch; batchwise: whether with the labels around it.

    The hooks below `forward` are for the trainer to call; each does nothing by default.
    """

    name = "(not registered)"
    loss: Callable[..., Tensor] | None = None
    supplied: tuple[str, ...] = ("reduction",)
    own: ClassVar[dict] = {}
    observes = (1, 0)
    views = 1

    label, color, line, whole, presets, no_curve = "", "0.4", "-", True, None, ""
    requires: tuple[str, ...] = ()
    clocked = batchwise = False
    controls: ClassVar[dict] = {}

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__()
        if not num_classes >= 1:
            raise ValueError(f"num_classes must be >= 1, got {num_classes}")
        self.num_classes, self.num_examples = num_classes, num_examples
        self.hyperparameters = self.defaults() | hyperparameters
        for name, allowed in self.own.items():
            if hasattr(allowed, "check"):
                self.hyperparameters[name] = allowed.check(name, self.hyperparameters[name])

    def __call__(self, logits: Tensor, observed: Tensor, step: Step) -> Tensor:
        """Check the shapes and return `forward`."""
        shapes = [tuple(getattr(labels, "shape", ())) for labels in (logits, observed)]
        if shapes[0] and shapes[0][-1] != self.num_classes:
            raise ValueError(
                f"method {self.name!r} was built for num_classes={self.num_classes}, logits are {shapes[0]}: "
                f"build({self.name!r}, num_classes={shapes[0][-1]}, ...)"
            )
        if shapes[0][-2:] != shapes[1]:
            raise ValueError(f"logits {shapes[0]} and observed {shapes[1]} differ in shape; both are (N, C)")
        return super().__call__(logits, observed, step)

    @classmethod
    def defaults(cls) -> dict:
        """Return the hyperparameters with their default values."""
        of_loss = {k: v for k, v in keywords(cls.loss).items() if k not in cls.supplied}
        known = of_loss | keywords(cls.__init__) | cls.own
        known = {k: getattr(v, "default", v) for k, v in known.items()}
        return {k: v for k, v in known.items() if v is not inspect.Parameter.empty}

    def constants(self) -> dict:
        """Return the hyperparameters that are keyword arguments of the loss."""
        return {k: self.hyperparameters[k] for k in keywords(self.loss) if k in self.hyperparameters}

    def label_loss(self, step: Step) -> Callable[..., Tensor]:
        """Return `f(logits, observed, reduction=...)`, the loss of each label at this step.

        Methods that decide on labels from what they have seen must be called with the same batch first. Regularisers of
        the model's weights and of other views are not included.
        """
        if self.loss is None:
            raise NotImplementedError(f"method {self.name!r} has neither a loss nor a `forward` of its own")
        return partial(self.loss, **self.constants())

    def forward(self, logits: Tensor, observed: Tensor, step: Step) -> Tensor:
        return self.label_loss(step)(logits, observed)

    @classmethod
    def has_label_loss(cls) -> bool:
        """Return whether `label_loss` describes what `forward` computes: False if only `forward` was overridden."""
        last = next(kind for kind in cls.__mro__ if {"forward", "label_loss"} & vars(kind).keys())
        return cls.loss is not None if last is Method else "label_loss" in vars(last)

    def check(self, num_epochs: int) -> None:
        """Raise ValueError if the method cannot work with this number of epochs; called before any training."""

    def start(self, model: nn.Module, observed: Tensor) -> None:
        """Receive the model and the observed labels (num_examples, C), once, before the first step of a new run."""

    def param_groups(self, lr: float) -> list[dict]:
        """Return the method's parameters for the model's optimizer, whose learning rate is `lr`."""
        parameters = list(self.parameters())
        return [{"params": parameters}] if parameters else []

    def own_optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """Return a separate optimizer for parameters that `param_groups` leaves out, or None."""

    def restart_epoch(self, num_epochs: int) -> int:
        """Return the epoch before which the model is reset to its initial weights, 0 = never.

        The best epoch is this one or a later one.
        """
        return 0

    def equation(self, step: Step) -> dict[str, str]:
        """Return the loss of one label in LaTeX, with the numbers in force at a step.

        The keys are the left-hand sides: "observed", "missing", and the symbols that these use. Empty for a method
        without an equation.
        """
        return {}

    def remark(self, step: Step) -> str:
        """Return a note that explains the numbers in the equation, or ""."""
        return ""

    @classmethod
    def control(cls, name: str) -> Slider | Options | None:
        """Return the control of a hyperparameter, or None."""
        for kind in cls.__mro__:
            if name in vars(kind).get("controls", {}):
                return kind.controls[name]
        papers = cls.loss is None or cls.loss.__module__.startswith("spml_core.losses")
        if papers and name in USUAL:
            return USUAL[name]
        return derived(name, cls.defaults()[name], name in cls.requires)

    @classmethod
    def applicable(cls, values: dict) -> list[str]:
        """Return the hyperparameters that have an effect, given the values of the others."""
        return [*values]


class LossMethod(Method):
    """A method that consists of a loss only; the loss's keyword arguments are its hyperparameters."""


class Auxiliary(Method):
    """A method whose loss also uses what the model's head computes beside the logits, from the head's `auxiliary()`."""

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        self._heads = ()  # a tuple, so that the heads are not registered as submodules

    def start(self, model, observed):
        self._heads = tuple(part for part in model.modules() if hasattr(part, "auxiliary"))

    def auxiliary(self):
        """Return what the head computed for the last training batch; None with another head or before any batch."""
        return next((head.auxiliary() for head in self._heads), None)


def keywords(function: Callable | None) -> dict:
    """Return the keyword-only arguments of a function with their defaults."""
    parameters = inspect.signature(function).parameters if function else {}
    return {k: p.default for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class Number:
    """A number between `low` and `high`, whole if the default is; `ends` says which ends belong to the range."""

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
