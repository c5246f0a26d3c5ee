"""Published hyperparameters, by method and data set; the numbers stand in the classes of the methods."""

from __future__ import annotations

from dataclasses import dataclass

from spml_core.methods.registry import get, names

DATASETS = ("voc2012", "coco2014", "nuswide", "cub200")


@dataclass(frozen=True)
class Published:
    """The values a paper gives for a method: `params` by data set, with the `source` they are from.

    `training` holds, by data set, what the same source says of epochs, batch size and learning rate.
    """

    source: str
    params: dict[str, dict]
    training: dict[str, dict]


def published(source: str, training: dict | None = None, **params) -> Published:
    """Return the published values of a method.

    Args:
        source: paper and table.
        training: epochs, batch size, learning rate; ten epochs, as EM, LASD and Cole et al. train, if not given.
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


def preset(method: str, dataset: str) -> dict:
    """Return published hyperparameters of a method on a data set, by our names: `build(method, ..., **preset(...))`.

    Args:
        method: a registered name.
        dataset: one of `DATASETS`.

    Raises:
        ValueError: there is none for this pair; lists what there is.
    """
    return dict(_published(method, dataset).params[dataset])


def preset_source(method: str, dataset: str) -> str:
    """Return where `preset(method, dataset)` is from. Raises ValueError like `preset`."""
    return _published(method, dataset).source


def preset_training(method: str, dataset: str) -> dict:
    """Return epochs, batch size and learning rate of the same source, as far as it gives them. Raises likewise."""
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
