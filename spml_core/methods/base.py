"""The registry, the clock and the base classes of all methods."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from spml_core import losses, words


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
        views: how many views of each image the method compares; above 1, logits are (views, N, C), the original first.
        hyperparameters: the effective values of the keyword arguments, as JSON.

    The hooks below `forward` are what a trainer has to ask; each does nothing by default.
    """

    observes = (1, 0)
    views = 1

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__()
        if not num_classes >= 1:
            raise ValueError(f"num_classes must be >= 1, got {num_classes}")
        self.num_classes, self.num_examples = num_classes, num_examples
        self.hyperparameters = hyperparameters

    @classmethod
    def defaults(cls) -> dict:
        return keywords(cls.__init__)

    def forward(self, logits: Tensor, observed: Tensor, step: Step) -> Tensor:
        raise NotImplementedError

    def check(self, num_epochs: int) -> None:
        """Raise ValueError if the method cannot do its work in this many epochs; called before any work."""

    def start(self, model: nn.Module, observed: Tensor) -> None:
        """See the model and the observed labels (num_examples, C) once, before the first step of a new training."""

    def param_groups(self, lr: float) -> list[dict]:
        """The method's parameters for the model's optimizer, whose learning rate is `lr`."""
        parameters = list(self.parameters())
        return [{"params": parameters}] if parameters else []

    def own_optimizer(self, lr: float) -> torch.optim.Optimizer | None:
        """An optimizer of its own, for parameters that `param_groups` does not name."""

    def restart_epoch(self, num_epochs: int) -> int:
        """The epoch before which the model goes back to its initial weights, 0 = never; the best is no earlier one."""
        return 0


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
        hint = words.did_you_mean(name, names())
        raise ValueError(f"unknown method {name!r}: {hint}{' ' * bool(hint)}Known: {', '.join(names())}.")
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
        hint = words.did_you_mean(unknown[0], known, 1, 0.6)
        raise ValueError(
            f"method {name!r} has no parameter {', '.join(unknown)}. "
            f"It has: {', '.join(f'{k}={v!r}' for k, v in known.items()) or 'none'}"
            f"{f'; {hint}' if hint else '.'}"
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
        seen[key], names = _code(item)
        # Both, since a name may be a function in the one and a module in the other, like `fused`.
        scopes = (vars(inspect.getmodule(item)), vars(losses))
        queue += [
            f
            for name in names
            for scope in scopes
            if inspect.isfunction(f := scope.get(name)) and f.__module__.startswith(losses.__name__)
        ]
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _full_name(item) -> str:
    return f"{item.__module__}.{item.__qualname__}"


@cache  # a function that was changed is another one
def _code(item) -> tuple[str, frozenset[str]]:
    """Of a class or function: its code without comments and docstrings, and the names in it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    code = ast.unparse(tree)
    nodes = list(ast.walk(ast.parse(code)))
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return code, frozenset(plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)})


class LossMethod(Method):
    """A method that is nothing but a loss; the loss's keyword arguments are its hyperparameters."""

    loss: Callable[..., Tensor]

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__(num_classes, num_examples, **{**self.defaults(), **hyperparameters})
        probe(self)

    @classmethod
    def defaults(cls) -> dict:
        return {k: v for k, v in keywords(cls.loss).items() if k != "reduction"}

    def forward(self, logits, observed, step):
        return self.loss(logits, observed, **self.hyperparameters)


def probe(method: Method, step: Step = Step(1, 1)) -> None:
    """Run a stateless method once on nothing, so that a hyperparameter out of range is an error before any work."""
    nothing = torch.zeros(1, method.num_classes)
    method(nothing, nothing, step)


def keywords(function: Callable) -> dict:
    return {
        k: p.default for k, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY
    }
