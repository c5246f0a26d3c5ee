"""Check an experiment's choice of observed labels, `Experiment.observe`, and draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from spml_core import data, words
from spml_core.data import labels, manifest
from spml_core.data.dataset import DataError, Part

FORM = (
    "observe is (num_pos, num_neg), each >= 0 or -1 for all; or {'drop': ratio}; or {'num_pos': 1, 'weights': "
    "'inverse_frequency'}, a preset or a number per class; or {'manifest': path}"
)


def check(observe) -> tuple[int, int] | dict:
    """Return `observe` in normal form: a tuple of counts, or a dictionary. A manifest is read once for its SHA-256.

    Raises:
        ValueError: not one of the forms, or a value out of range; a manifest that is missing, or whose SHA-256 differs
            from the one given.
    """
    if isinstance(observe, Sequence) and not isinstance(observe, str) and len(observe) == 2:
        if all(isinstance(n, int | np.integer) and n >= -1 for n in observe):
            return tuple(map(int, observe))
    elif isinstance(observe, Mapping) and set(observe) == {"drop"}:
        labels.num_kept([], observe["drop"])
        return dict(observe)
    elif isinstance(observe, Mapping) and "weights" in observe and set(observe) <= {"num_pos", "weights"}:
        weights, num_pos = observe["weights"], observe.get("num_pos", 1)
        plain = weights if isinstance(weights, str) else np.array(weights, float).reshape(-1).tolist()
        if isinstance(num_pos, int):
            classes = 1 if plain is weights else len(plain)
            labels.biased(np.zeros((0, classes)), plain, num_pos)  # raises if they are invalid
            return {"num_pos": num_pos, "weights": plain}
    elif isinstance(observe, Mapping) and "manifest" in observe and set(observe) <= {"manifest", "sha256"}:
        found = manifest.identify(observe["manifest"])
        if observe.get("sha256", found) != found:
            raise DataError(
                f"{observe['manifest']} has changed: its SHA-256 is {found}, not {observe['sha256']}"
            )
        return {"manifest": str(observe["manifest"]), "sha256": found}
    raise ValueError(f"{FORM}; got {observe!r}")


def truth(name: str, /, **options) -> tuple[tuple[str, ...], dict[str, Part]]:
    """Return the classes and the truth of a data set; if it is stored in files, only the label files are read.

    Args:
        name, options: as for `data.read` or, for a generated data set, `data.load`.

    Returns:
        The classes, and for each split a `Part` whose inputs are None.

    Raises:
        DataError: as `data.load`.
    """
    if not data.has_files(name):
        found = data.load(name, **options)
        return found.classes, {k: replace(part, inputs=None) for k, part in found.parts.items()}
    listing = data.read(name, **options)
    if listing.problems:
        raise DataError("\n".join(listing.problems))
    return tuple(listing.classes), {split: listing.part(split) for split in listing.members()}


def draw(
    observe, parts: Mapping[str, Part], classes: Sequence[str], seed: int, protocol: str
) -> dict[str, np.ndarray]:
    """Return the observed labels of "train" and, if there is one, "val", for a checked `observe`.

    Args:
        seed, protocol: of the draw, see `labels.observe`; a biased draw is always per image, and labels of a manifest
            are not drawn. Presets of weights are counted on the training images.

    Returns:
        For each of these splits (N, C) int8 in {1, 0, -1}.

    Raises:
        ValueError: as the functions of `labels`.
        DataError: a manifest that does not fit the data set, or contradicts its truth.
    """
    wanted = {split: parts[split] for split in ("train", "val") if split in parts}
    if isinstance(observe, dict) and "manifest" in observe:
        read = manifest.read(observe["manifest"], classes)
        return {
            split: require_agreement(read.rows(part.ids, split), part, classes)
            for split, part in wanted.items()
        }
    if isinstance(observe, dict) and isinstance(observe.get("weights"), str):
        observe = observe | {"weights": labels.class_weights(parts["train"].full, observe["weights"])}
    return draw_together(lambda part: _draw(observe, part, seed, protocol), wanted)


def draw_together(draw: Callable[[Part], np.ndarray], parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
    """Draw the observed labels of train and val in the one matrix they were divided from, as published (`Part.rows`).

    Args:
        draw: (N, C) observed labels of a part without inputs, such as `labels.observe` on its `full` and `ids`.
            Parts without `rows` are drawn separately.
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


def _draw(observe, part: Part, seed: int, protocol: str) -> np.ndarray:
    images = {"ids": part.ids, "known": part.known, "seed": seed}
    if isinstance(observe, tuple):
        return labels.observe(part.full, *observe, protocol=protocol, **images)
    if "drop" in observe:
        return labels.drop(part.full, observe["drop"], protocol=protocol, **images)
    return labels.biased(part.full, observe["weights"], observe["num_pos"], **images)


def require_agreement(observed: np.ndarray, part: Part, classes: Sequence[str]) -> np.ndarray:
    """Return `observed` unchanged if these labels, drawn elsewhere, agree with the truth where it is known.

    Raises:
        DataError: they do not; the first image and class are named.
    """
    wrong = (observed != 0) & ((observed == 1) != (part.full == 1))
    if part.known is not None:
        wrong &= part.known
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        said, truth = ("positive", "absent") if observed[row, column] == 1 else ("negative", "present")
        raise DataError(
            f"{words.count(int(wrong.sum()), 'observed label')} in conflict with the data set, the first at image "
            f"{part.ids[row]}: class {classes[column]!r} is {said} in the manifest and {truth} in the truth"
        )
    return observed


def write_manifest(path, parts: Mapping[str, Part], observed: Mapping[str, np.ndarray], classes) -> str:
    """Write the manifest of all parts, in order, and return its SHA-256. Parts not in `observed` get no labels.

    Where training images stand in for validation images (`Dataset.with_train_as_val`), they are written once.
    """
    if "val" in parts and parts["val"].ids == parts["train"].ids:
        parts = {split: part for split, part in parts.items() if split != "val"}
    rows = [observed.get(split, np.zeros(part.full.shape, np.int8)) for split, part in parts.items()]
    ids = [image for part in parts.values() for image in part.ids]
    splits = [split for split, part in parts.items() for _ in part.ids]
    return manifest.write(path, ids, splits, np.concatenate(rows), classes)
