"""The registry of methods: `register` a class, `build` a method, look up published hyperparameters (`preset`)."""

import inspect
from collections.abc import Callable

import torch

from spml_core import words
from spml_core.methods.base import Method, Step
from spml_core.methods.display import Published, free_look

_REGISTRY: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: make a `Method` available to `build` under `name`.

    How a method is shown is not inherited, since a variant is another method. Unless its class says otherwise, it has
    its name as label, a colour and line that no other method has, no equation and no published values.
    """

    def add(cls: type[Method]) -> type[Method]:
        known = _REGISTRY.get(name)
        # The same class comes again when a notebook cell runs twice or a module is reloaded.
        if known is not None and _full_name(known) != _full_name(cls):
            raise ValueError(f"method name {name!r} is taken by {_full_name(known)}: choose another")
        taken = [(other.color, other.line) for key, other in _REGISTRY.items() if key != name]
        plain = {"label": name, "whole": True, "presets": None, "equation": Method.equation}
        plain["color"], plain["line"] = free_look(name, taken)
        plain["no_curve"] = "" if cls.has_label_loss() else "it has no `label_loss(step)`"
        for attribute, value in plain.items():
            if attribute not in vars(cls):
                setattr(cls, attribute, value)
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Return the registered names, sorted."""
    return sorted(_REGISTRY)


def available() -> dict[str, str]:
    """Return the registered names with the first sentence of each docstring."""
    return {name: inspect.getdoc(cls).split("\n")[0] for name, cls in sorted(_REGISTRY.items())}


def get(name: str) -> type[Method]:
    """Return the class registered as `name`.

    Raises:
        ValueError: unknown name, with the nearest ones.
    """
    words.check_name("method", name, names())
    return _REGISTRY[name]


def build(name: str, num_classes: int, num_examples: int | None = None, **params) -> Method:
    """Return a method, after trying its loss on dummy labels: a hyperparameter out of range is an error at once.

    Args:
        name: a registered name, e.g. "gr".
        num_classes: C.
        num_examples: size of the training set, for methods that keep state for each example.
        params: hyperparameters by keyword.

    Raises:
        ValueError: unknown name (with the nearest ones), unknown hyperparameter (with the known ones), value out of
            range.
    """
    cls = get(name)
    known = defaults(name)
    if unknown := sorted(set(params) - set(known)):
        hint = words.did_you_mean(unknown[0], known, 1, 0.6)
        raise ValueError(
            f"method {name!r} has no hyperparameter {', '.join(unknown)}. "
            f"It has: {', '.join(f'{k}={v!r}' for k, v in known.items()) or 'none'}"
            f"{f'; {hint}' if hint else '.'}"
        )
    for parameter, default in known.items():
        value = params.get(parameter, default)
        if isinstance(default, bool | str) and not isinstance(value, type(default)):
            wanted = "True or False" if isinstance(default, bool) else "text"
            raise ValueError(f"{parameter} of method {name!r} must be {wanted}, got {value!r}")
        if isinstance(value, bool) and default is not None and not isinstance(default, bool):
            raise ValueError(
                f"{parameter} of method {name!r} must not be True or False: its default is {default!r}"
            )
    method = cls(num_classes, num_examples, **params)
    if cls.has_label_loss():
        nothing = torch.zeros(1, num_classes)
        method.label_loss(Step(1, 1, torch.zeros(1, dtype=torch.long)))(nothing, nothing)
    return method


def defaults(name: str) -> dict:
    """Return the hyperparameters of a method with their default values."""
    return get(name).defaults()


def preset(method: str, dataset: str) -> dict:
    """Return the published hyperparameters of a method on a data set, for `build(method, ..., **preset(...))`.

    Args:
        method: a registered name.
        dataset: one of `DATASETS`.

    Raises:
        ValueError: none are published for this pair; lists those that are.
    """
    return dict(_published(method, dataset).params[dataset])


def preset_source(method: str, dataset: str) -> str:
    """Return the source of `preset(method, dataset)`. Raises ValueError like `preset`."""
    return _published(method, dataset).source


def preset_training(method: str, dataset: str) -> dict:
    """Return epochs, batch size and learning rate as far as the same source gives them. Raises like `preset`."""
    return dict(_published(method, dataset).training[dataset])


def _published(method: str, dataset: str) -> Published:
    found = get(method).presets
    if found is None:
        having = ", ".join(name for name in names() if get(name).presets)
        raise ValueError(f"no published hyperparameters for method {method!r}; there are some for {having}")
    if dataset not in found.params:
        raise ValueError(
            f"no published hyperparameters for method {method!r} on {dataset!r}; there are some on "
            f"{', '.join(found.params)}"
        )
    return found


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
