"""The clock, the base classes of all methods, and what hyperparameters beyond those of a loss may be."""

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

# Attributes and methods of a class that change nothing in a training: no part of the identity of its runs.
SHOWN = frozenset({
    "label", "color", "line", "whole", "requires", "presets", "equation", "remark", "no_curve", "clocked", "batchwise",
    "controls", "control", "applicable",
})  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Where training stands. `epoch` counts from 1 to `num_epochs`; `index`: (N,) rows of the training set, or None."""

    epoch: int
    num_epochs: int
    index: Tensor | None = None

    def __post_init__(self):
        if not 1 <= self.epoch <= self.num_epochs:
            raise ValueError(f"epoch counts from 1 to num_epochs={self.num_epochs}, got {self.epoch}")


class Method(nn.Module):
    """Base of all methods: `method(logits, observed, step)` is a scalar, the mean over N*C.

    Its hyperparameters are the keyword arguments of its `loss` that have a default, those of its `__init__`, and `own`;
    each of them is stated in one of the three.

    Attributes:
        hyperparameters: their effective values, as JSON.
        loss: pure function of logits and observed labels.
        supplied: keyword arguments of `loss` that the method gives itself.
        own: further hyperparameters: a default, or a `Number`, `Pair` or `OneOf`, which say what is allowed.
        observes: (num_pos, num_neg) labels an image shows to this method when an experiment does not say otherwise;
            -1 = all. Oracles observe more than one positive, so no truth reaches a loss by another way.
        head: of the model that the method needs, one of `models.HEADS`; without it, whatever the experiment says.
        views: how many views of each image the method compares; above 1, logits are (views, N, C), the original first.

    What it is shown with (`SHOWN`):
        label, color, line: in figures and tables. Given to those that have none when they are registered.
        whole: False for a part or a variant of a published method, which is no row of a benchmark.
        requires: hyperparameters that must be given, since they say something of the data.
        presets: published hyperparameters, `display.published`.
        controls: by hyperparameter, a `Slider` or `Options` of the loss lab; None for one that bends no curve. Where
            nothing is said, it is the usual one of that name, or follows from the default in a loss of one's own.
        no_curve: why the loss is none of single labels; "" if it is.
        clocked: whether the curve of a label moves with the epoch; batchwise: whether with the labels around it.

    The hooks below `forward` are what a trainer has to ask; each does nothing by default.
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
        """Return `forward`, after a look at the shapes."""
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
        """Return `f(logits, observed, reduction=...)`, the loss label by label at this moment.

        Methods that decide on labels by what they have seen need a call with the same batch first. Regularisers of the
        model's weights and of other views are no part of it.
        """
        if self.loss is None:
            raise NotImplementedError(f"method {self.name!r} has neither a loss nor a `forward` of its own")
        return partial(self.loss, **self.constants())

    def forward(self, logits: Tensor, observed: Tensor, step: Step) -> Tensor:
        return self.label_loss(step)(logits, observed)

    @classmethod
    def has_label_loss(cls) -> bool:
        """Return whether `label_loss` says what `forward` computes: not if only `forward` was replaced."""
        last = next(kind for kind in cls.__mro__ if {"forward", "label_loss"} & vars(kind).keys())
        return cls.loss is not None if last is Method else "label_loss" in vars(last)

    def check(self, num_epochs: int) -> None:
        """Raise ValueError if the method cannot do its work in this many epochs; called before any work."""

    def start(self, model: nn.Module, observed: Tensor) -> None:
        """See the model and the observed labels (num_examples, C) once, before the first step of a new training."""

    def param_groups(self, lr: float) -> list[dict]:
        """Return the method's parameters for the model's optimizer, whose learning rate is `lr`."""
        parameters = list(self.parameters())
        return [{"params": parameters}] if parameters else []

    def own_optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """Return an optimizer of its own, for parameters that `param_groups` does not name."""

    def restart_epoch(self, num_epochs: int) -> int:
        """Return the epoch before which the model goes back to its initial weights, 0 = never.

        The best epoch is no earlier one.
        """
        return 0

    def equation(self, step: Step) -> dict[str, str]:
        """Return LaTeX of the loss of one label, with the numbers in force at a step.

        By what stands on the left of it, "observed", "missing", and symbols that these use. Empty where nobody has
        written it.
        """
        return {}

    def remark(self, step: Step) -> str:
        """Return why the numbers of the equation are what they are; "" where there is nothing to say."""
        return ""

    @classmethod
    def control(cls, name: str) -> Slider | Options | None:
        """Return the control of a hyperparameter; None for one without."""
        for kind in cls.__mro__:
            if name in vars(kind).get("controls", {}):
                return kind.controls[name]
        papers = cls.loss is None or cls.loss.__module__.startswith("spml_core.losses")
        if papers and name in USUAL:
            return USUAL[name]
        return derived(name, cls.defaults()[name], name in cls.requires)

    @classmethod
    def applicable(cls, values: dict) -> list[str]:
        """Return those hyperparameters that matter beside the values of the others."""
        return [*values]


class LossMethod(Method):
    """A method that is nothing but a loss; the loss's keyword arguments are its hyperparameters."""


class Auxiliary(Method):
    """A method whose loss takes in what the head of the model computes beside the logits, by its `auxiliary()`."""

    def __init__(self, num_classes, num_examples=None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        self._heads = ()  # a tuple, so that the model does not become a part of this module

    def start(self, model, observed):
        self._heads = tuple(part for part in model.modules() if hasattr(part, "auxiliary"))

    def auxiliary(self):
        """Return what the head computed of the last training batch; None of another head, or before any batch."""
        return next((head.auxiliary() for head in self._heads), None)


def keywords(function: Callable | None) -> dict:
    """Return the keyword-only arguments of a function with their defaults."""
    parameters = inspect.signature(function).parameters if function else {}
    return {k: p.default for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


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
