"""The registry of methods: a loss plus whatever it needs over time (schedules, pseudo-labels, label estimates).

    method = build("gr", num_classes=20, num_examples=4574, b=(-2, -8))
    value = method(logits, observed, Step(epoch=1, num_epochs=8, index=index))

A method is an `nn.Module`: its parameters join the optimizer, its buffers follow `.to(device)`, its state is saved in
the checkpoint. To add one, decorate a class with `@register("name")`; `build`, the command line and the notebooks find
it there. Its keyword arguments are its hyperparameters, their defaults are what runs.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import math
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn

from spml_core import losses

SCHEDULES = ("code", "paper")


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

    Attributes:
        observes: (num_pos, num_neg) labels an image shows to this method when an experiment does not say otherwise;
            -1 = all. Oracles observe more than one positive, so no truth reaches a loss by another way.
        hyperparameters: the effective values of the keyword arguments, as JSON.
    """

    observes = (1, 0)

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__()
        if not num_classes >= 1:
            raise ValueError(f"num_classes must be >= 1, got {num_classes}")
        self.num_classes, self.num_examples = num_classes, num_examples
        self.hyperparameters = hyperparameters

    @classmethod
    def defaults(cls) -> dict:
        return _keywords(cls.__init__)

    def forward(self, logits: Tensor, observed: Tensor, step: Step) -> Tensor:
        raise NotImplementedError


_REGISTRY: dict[str, type[Method]] = {}
_PARSING = threading.Lock()  # CPython 3.11's parser fails when threads build syntax trees at once


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: make a `Method` available to `build` under `name`."""

    def add(cls: type[Method]) -> type[Method]:
        known = _REGISTRY.get(name)
        # The same class again is a notebook cell that runs twice, or a module reloaded.
        if known is not None and _full_name(known) != _full_name(cls):
            raise ValueError(f"method name {name!r} is taken by {_full_name(known)}: choose another")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Registered names, sorted."""
    return sorted(_REGISTRY)


def available() -> dict[str, str]:
    """Registered names with the first sentence of each docstring."""
    return {name: inspect.getdoc(cls).split("\n")[0] for name, cls in sorted(_REGISTRY.items())}


def get(name: str) -> type[Method]:
    """The class registered as `name`.

    Raises:
        ValueError: unknown name, with the nearest ones.
    """
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, _REGISTRY, n=3, cutoff=0.3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ValueError(f"unknown method {name!r}: {hint}Known: {', '.join(names())}.")
    return _REGISTRY[name]


def build(name: str, num_classes: int, num_examples: int | None = None, **params) -> Method:
    """Make a method.

    Args:
        name: a registered name, e.g. "gr".
        num_classes: C.
        num_examples: size of the training set, for methods that keep something for each example.
        params: hyperparameters by keyword.

    Raises:
        ValueError: unknown name (with the nearest ones), unknown hyperparameter (with those there are), value out of
            range.
    """
    cls = get(name)
    known = defaults(name)
    if unknown := sorted(set(params) - set(known)):
        raise ValueError(
            f"method {name!r} has no parameter {', '.join(unknown)}. "
            f"It has: {', '.join(f'{k}={v!r}' for k, v in known.items()) or 'none'}."
        )
    return cls(num_classes, num_examples, **params)


def defaults(name: str) -> dict:
    """Hyperparameters of a method with their default values."""
    return get(name).defaults()


def source_digest(name: str) -> str:
    """SHA-256 of the code a method consists of: its class and the losses it calls, without comments and docstrings.

    Part of a run's identity, so that editing a loss retrains the runs of that loss and of no other.
    """
    with _PARSING:
        return _source_digest(name)


def _source_digest(name: str) -> str:
    seen: dict[str, str] = {}
    queue = [cls for cls in get(name).__mro__ if issubclass(cls, Method)]
    while queue:
        item = queue.pop()
        key = _full_name(item)
        if key in seen:
            continue
        seen[key] = _code(item)
        scope = {**vars(inspect.getmodule(item)), **vars(losses)}
        nodes = list(ast.walk(ast.parse(seen[key])))
        words = {n.id for n in nodes if isinstance(n, ast.Name)} | {
            n.attr for n in nodes if isinstance(n, ast.Attribute)
        }
        queue += [
            f for w in words if inspect.isfunction(f := scope.get(w)) and f.__module__ == losses.__name__
        ]
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _full_name(item) -> str:
    return f"{item.__module__}.{item.__qualname__}"


def _code(item) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


class LossMethod(Method):
    """A method that is nothing but a loss; the loss's keyword arguments are its hyperparameters."""

    loss: Callable[..., Tensor]

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__(num_classes, num_examples, **{**self.defaults(), **hyperparameters})
        _probe(self)

    @classmethod
    def defaults(cls) -> dict:
        return {k: v for k, v in _keywords(cls.loss).items() if k != "reduction"}

    def forward(self, logits, observed, step):
        return self.loss(logits, observed, **self.hyperparameters)


@register("bce")
class BCE(LossMethod):
    """Full-label binary cross-entropy: every label of every image is observed. The upper bound (EM Table 1)."""

    loss = staticmethod(losses.bce)
    observes = (-1, -1)


@register("an")
class AN(LossMethod):
    """Assume negative: unobserved labels are negatives. The lower bound (Cole Eq. 2)."""

    loss = staticmethod(losses.an)


@register("wan")
class WAN(LossMethod):
    """Weak assume negative: assumed negatives weighted by 1/(C - 1) (Cole Eq. 4)."""

    loss = staticmethod(losses.wan)


@register("em")
class EM(LossMethod):
    """Entropy maximisation on unobserved labels (EM Eq. 3)."""

    loss = staticmethod(losses.em)


@register("hill")
class Hill(LossMethod):
    """Hill loss on unobserved labels, Focal margin on observed positives (Zhang et al., 2021, Eq. 5, 11)."""

    loss = staticmethod(losses.hill)


@register("gr")
class GR(Method):
    """Generalized robust loss with linearly scheduled pseudo-label and weight (GR Eq. 4 to 14).

    `w, b, mu, sigma` are (start, end) pairs; a single number stands for a constant. The defaults are the published
    start values with the end values of VOC (GR Table 6); `spml_core.losses.gr` states the deviations of the loss.

    Args:
        schedule: "paper" moves all four by epoch / num_epochs (GR Eq. 9, 10, 12, 13). "code", the default because it
            made the published tables, moves w and b by (epoch - 1) / num_epochs, so that they never reach their end
            values, and mu and sigma by epoch / num_epochs.
    """

    def __init__(
        self,
        num_classes,
        num_examples=None,
        *,
        w: tuple[float, float] = (0.0, 2.0),
        b: tuple[float, float] = (-2.0, -2.0),
        mu: tuple[float, float] = (0.5, 0.8),
        sigma: tuple[float, float] = (2.0, 0.5),
        q1: float = 0.01,
        q2: float = 0.01,
        q3: float = 1.0,
        schedule: str = "code",
        log_floor: float = 0.0,
    ):
        if schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}: use one of {', '.join(SCHEDULES)}")
        pairs = {"w": w, "b": b, "mu": mu, "sigma": sigma}
        pairs = {k: _pair(k, v) for k, v in pairs.items()}
        if not min(pairs["sigma"]) > 0:
            raise ValueError(f"sigma must be > 0 at both ends of its schedule, got {pairs['sigma']}")
        super().__init__(
            num_classes, num_examples, **pairs, q1=q1, q2=q2, q3=q3, schedule=schedule, log_floor=log_floor
        )
        _probe(self)

    def at(self, step: Step) -> dict[str, float]:
        """w, b, mu, sigma at a step."""
        late = step.epoch / step.num_epochs
        early = late if self.hyperparameters["schedule"] == "paper" else (step.epoch - 1) / step.num_epochs
        moments = {"w": early, "b": early, "mu": late, "sigma": late}
        return {
            k: (1 - t) * self.hyperparameters[k][0] + t * self.hyperparameters[k][1]
            for k, t in moments.items()
        }

    def forward(self, logits, observed, step):
        constants = {k: self.hyperparameters[k] for k in ("q1", "q2", "q3", "log_floor")}
        return losses.gr(logits, observed, **self.at(step), **constants)


def _probe(method: Method, step: Step = Step(1, 1)) -> None:
    """Run a stateless method once on nothing, so that a hyperparameter out of range is an error before any work."""
    nothing = torch.zeros(1, method.num_classes)
    method(nothing, nothing, step)


def _keywords(function: Callable) -> dict:
    return {
        k: p.default for k, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY
    }


def _pair(name: str, value) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or not all(isinstance(v, Real) and math.isfinite(v) for v in pair):
        raise ValueError(
            f"{name} must be a (start, end) pair of finite numbers or one such number, got {value!r}"
        )
    return (float(pair[0]), float(pair[1]))
