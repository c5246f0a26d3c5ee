"""Data sets: `load("digits")`, `load("coco2014", root=...)`; labels are drawn by `spml_core.data.labels`."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from spml_core import words

DATASETS = ("digits", "folder", "voc2012", "coco2014", "nuswide", "cub200", "openimages")


class DataError(ValueError):
    """What a user's data lacks, with the image, row or option concerned and the form expected."""


class OptionError(DataError):
    """A data set, option or folder that cannot be: the call is to be changed, not the data."""


@dataclass(frozen=True)
class Part:
    """One split of a data set.

    Attributes:
        inputs: (N, channels, H, W) uint8 images, or (N, D) float32 features; `loading.batches` reads them.
        full: (N, C) int8 in {1, 0}: the whole truth. It reaches metrics and analysis, never a loss.
        ids: N image ids, unique within the data set.
        known: (N, C) bool, where the truth is known; `full` is 0 elsewhere. None = everywhere.
        rows: (N,) row numbers in the one matrix that train and val were divided from: the published draws (protocol
            "cole2021") run through that matrix. None = the part is a matrix of its own.
    """

    inputs: torch.Tensor
    full: np.ndarray
    ids: tuple[str, ...]
    known: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory: `parts` maps "train", "val" and (if there is one) "test" to a `Part`.

    Attributes:
        notes: what a run records about the data, as JSON: images dropped, policies, counts.
        fingerprint: SHA-256 over everything that determines the content, not over where it lies.
    """

    name: str
    classes: tuple[str, ...]
    parts: dict[str, Part]
    fingerprint: str
    notes: dict = field(default_factory=dict)


def load(name: str, /, *, val_is_train: bool = False, **options) -> Dataset:
    """Load a data set by name; `options` are those of `data.<name>.load`.

    Args:
        val_is_train: see `with_train_as_val`.

    Raises:
        OptionError: unknown name (with the nearest ones) or unknown option.
    """
    check(name, options)
    dataset = _function(name, "load")(**options)
    return with_train_as_val(dataset) if val_is_train else dataset


def with_train_as_val(dataset: Dataset) -> Dataset:
    """The same with the training images in place of the validation images, to watch a training from inside.

    A run keeps the validation logits of each epoch: here they are those of the training images, with the labels that
    training observed. The training itself is the same to the last bit, but the best epoch is chosen on training
    images, so its mAP says nothing of unseen ones. Under protocol "cole2021" the draw runs through the training images
    alone, and is not the published one.
    """
    train = dataset.parts["train"]
    # Without `rows`, so that both are drawn for themselves, and hence alike.
    parts = dataset.parts | {"val": dataclasses.replace(train, rows=None)}
    fingerprint = hashlib.sha256(f"{dataset.fingerprint}, val is train".encode()).hexdigest()
    notes = dataset.notes | {"val_is_train": True}
    return dataclasses.replace(dataset, parts=parts, fingerprint=fingerprint, notes=notes)


def read(name: str, /, **options):
    """What the label files of a data set of images say, as a `listing.Listing`; `options` of `data.<name>.read`.

    Raises:
        OptionError: unknown name or option, or `digits` (which is made, not read).
        DataError: what is wrong with the label files.
    """
    check(name, options, "read")
    return _function(name, "read")(**options)


def check(name: str, options, function: str = "load") -> None:
    """Raise `OptionError` if there is no data set `name`, or `options` has one that it lacks, or lacks one it needs."""
    check_options(name, options, function)
    if required := required_options(name, options, function):
        how = f"spml train: --{required[0]} PATH; spml figures: -p {required[0]} PATH"
        raise OptionError(f"data set {name!r} needs {required[0]} ({how}).")


def required_options(name: str, options, function: str = "load") -> list[str]:
    """The options that data set `name` cannot do without and that `options` lacks."""
    from inspect import signature

    known = signature(_function(name, function)).parameters
    return [k for k, p in known.items() if p.default is p.empty and k not in options]


def check_options(name: str, options, function: str = "load") -> None:
    """Raise `OptionError` if `options` has one that the data set lacks, or of another type than declared."""
    check_name(name)
    from inspect import Parameter, signature
    from typing import get_type_hints

    known = dict(signature(_function(name, function)).parameters)
    hints = get_type_hints(_function(name, function))
    if function == "load":  # an option of `load` above, whatever the data set
        known |= {"val_is_train": Parameter("val_is_train", Parameter.KEYWORD_ONLY, annotation="bool")}
        hints |= {"val_is_train": bool}
    if unknown := sorted(set(options) - set(known)):
        hint = words.did_you_mean(unknown[0], known, 1, 0.6)
        raise OptionError(
            f"data set {name!r} has no option {', '.join(unknown)}. It has: {', '.join(known)}"
            f"{f'; {hint}' if hint else '.'}"
        )
    _check_types(name, {k: p.annotation for k, p in known.items()}, hints, options)


def _check_types(name: str, declared: dict, hints: dict, options) -> None:
    """Text is no number, and "no" is not false: an option of another type than declared is an error."""
    from pydantic import TypeAdapter, ValidationError

    for option, value in options.items():
        try:
            TypeAdapter(hints[option]).validate_python(value, strict=True)
        except ValidationError as error:
            raise OptionError(
                f"option {option} of data set {name!r} must be {declared[option]}, got {value!r}: "
                f"{error.errors()[0]['msg']} "
                f"(spml train: -d {option} VALUE, where a value is true, false, null, a number, [a, list] or a word)."
            ) from None


def loader(name: str):
    """The module of a data set, with `load` and, where there are label files, `read`."""
    from importlib import import_module

    check_name(name)
    return import_module(f"spml_core.data.sets.{name}")


def _function(name: str, function: str) -> Callable:
    found = getattr(loader(name), function, None)
    if found is None:
        raise OptionError(f"data set {name!r} is made when it is loaded: it has no files")
    return found


def draw_together(draw: Callable[[Part], np.ndarray], parts: dict[str, Part]) -> dict[str, np.ndarray]:
    """Observed labels of train and val, drawn in the one matrix they were divided from, as published (`Part.rows`).

    Args:
        draw: (N, C) observed labels of a part without inputs, such as `labels.observe` on its `full` and `ids`.
            Parts without `rows` are drawn each for itself.
    """
    if any(split not in parts or parts[split].rows is None for split in ("train", "val")):
        return {split: draw(parts[split]) for split in ("train", "val") if split in parts}
    train, val = parts["train"], parts["val"]
    order = np.argsort(np.concatenate([train.rows, val.rows]))

    def merged(first, second):
        return None if first is None else np.concatenate([first, second])[order]

    ids = tuple(merged(np.array(train.ids, object), np.array(val.ids, object)))
    whole = Part(None, merged(train.full, val.full), ids, merged(train.known, val.known))
    observed = np.empty(whole.full.shape, np.int8)
    observed[order] = draw(whole)
    return {"train": observed[: len(train)], "val": observed[len(train) :]}


def check_name(name: str) -> None:
    """Raise `OptionError` with the nearest names if there is no data set `name`."""
    if name not in DATASETS:
        hint = words.did_you_mean(name, DATASETS) or "there is no such name."
        raise OptionError(f"unknown data set {name!r}: {hint} Known: {', '.join(DATASETS)}.")
