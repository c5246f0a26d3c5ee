"""Check an experiment's choice of observed labels, `Experiment.observe`, and draw them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from spml_core import data, words
from spml_core.data import labels, manifest, scores
from spml_core.data.dataset import DataError, Part
from spml_core.data.files import table

FORM = (
    "observe is (num_pos, num_neg), each >= 0 or -1 for all; or {'drop': ratio}; or {'manifest': path}; or "
    "one or more of {'weights': 'inverse_frequency', 'annotators': [['cat', 'dog'], ['car']], 'wrong': 0.05}, with "
    "'temperature' and 'num_pos' if needed"
)
NAMES = TypeAdapter(Annotated[list[Annotated[list[str], Field(min_length=1)]], Field(min_length=1)])
SALIENCE = "salience"  # the weights that a data set itself may have, `Part.salience`


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
    elif isinstance(observe, Mapping) and "manifest" in observe:
        if set(observe) <= {"manifest", "sha256", "wrong"}:
            return _of_file(observe, "manifest", manifest.identify) | _wrong(observe)
    elif isinstance(observe, Mapping) and set(observe) & {"weights", "annotators", "wrong"}:
        if set(observe) <= {"num_pos", "weights", "sha256", "temperature", "annotators", "wrong"}:
            return _biased(observe)
    raise ValueError(f"{FORM}; got {observe!r}")


def _biased(observe: Mapping) -> dict:
    """Return a biased draw in normal form, without what has its default, or raise ValueError."""
    num_pos, temperature = observe.get("num_pos", 1), observe.get("temperature", 1)
    weights, annotators = observe.get("weights"), observe.get("annotators")
    if not isinstance(num_pos, int) or not isinstance(temperature, int | float):
        raise ValueError(f"{FORM}; got {observe!r}")
    plain, numbers = {"num_pos": num_pos}, [1.0]
    if isinstance(weights, str | Path) and str(weights).endswith(".csv"):
        plain |= _of_file(observe, "weights", manifest.digest)
    elif isinstance(weights, str):
        if weights != SALIENCE:
            labels.class_weights(np.zeros((0, 1)), weights)  # raises if there is no such preset
        plain["weights"] = weights
    elif weights is not None:
        plain["weights"] = numbers = np.array(weights, float).reshape(-1).tolist()
    # Raises if one is invalid.
    labels.biased(np.zeros((0, len(numbers))), numbers, num_pos, temperature=temperature)
    if annotators is not None:
        try:
            plain["annotators"] = NAMES.validate_python(annotators)
        except ValidationError:
            form = "a list with the names of the classes that each one knows"
            raise ValueError(f"annotators={annotators!r}: {form}") from None
    return plain | ({} if temperature == 1 else {"temperature": float(temperature)}) | _wrong(observe)


def _wrong(observe: Mapping) -> dict:
    """Return the checked share of wrong labels; nothing if it is 0."""
    share = observe.get("wrong", 0)
    if not isinstance(share, int | float):
        raise ValueError(f"{FORM}; got {observe!r}")
    labels.wrong(np.zeros((0, 1)), np.zeros((0, 1)), share)
    return {"wrong": float(share)} if share else {}


def _of_file(observe: Mapping, key: str, identify: Callable) -> dict:
    """Return the path of a file and its SHA-256, or raise DataError if that is not the one given."""
    path = observe[key]
    found = identify(path)
    if observe.get("sha256", found) != found:
        raise DataError(f"{path} has changed: its SHA-256 is {found}, not {observe['sha256']}")
    return {key: str(path), "sha256": found}


def identity(observe) -> tuple | dict:
    """Return a checked `observe` with the content of a file, its SHA-256, in place of its path."""
    if "sha256" not in observe:
        return observe
    key = "manifest" if "manifest" in observe else "weights"
    return {name: value for name, value in observe.items() if name != "sha256"} | {key: observe["sha256"]}


def truth(name: str, /, **options) -> tuple[tuple[str, ...], dict[str, Part]]:
    """Return the classes and the truth of a data set; if it is stored in files, only the label files are read.

    Args:
        name, options: as for `data.read`; for a generated data set, as for `data.load`.

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
        DataError: a manifest or scores that do not fit the data set, a manifest that contradicts its truth, annotators
            of other classes, or salience of a data set without it.
    """
    wanted = {split: parts[split] for split in ("train", "val") if split in parts}
    if isinstance(observe, dict) and "manifest" in observe:
        read = manifest.read(observe["manifest"], classes)
        return {
            split: require_agreement(read.rows(part.ids, split), part, classes, observe.get("wrong", 0))
            for split, part in wanted.items()
        }
    if isinstance(observe, dict) and "num_pos" in observe:
        return draw_together(lambda part: _draw_biased(observe, part, parts["train"], classes, seed), wanted)
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
    return labels.drop(part.full, observe["drop"], protocol=protocol, **images)


def _draw_biased(observe: dict, part: Part, train: Part, classes: Sequence[str], seed: int) -> np.ndarray:
    images = {"seed": seed, "ids": part.ids}
    weights = _weights(observe, part, train, classes)
    if "annotators" in observe:
        knows = _knowledge(observe["annotators"], classes)
        weights = weights * labels.annotators(part.full, knows, **images)
    more = {"known": part.known, "temperature": observe.get("temperature", 1)}
    observed = labels.biased(part.full, weights, observe["num_pos"], **images, **more)
    if "wrong" in observe and part.known is not None and not (part.known & (part.full == 0)).any():
        raise DataError(
            f"wrong={observe['wrong']}: no label is known to be absent, so none can be shown by mistake"
        )
    return labels.wrong(observed, part.full, observe.get("wrong", 0), known=part.known, **images)


def _weights(observe: dict, part: Part, train: Part, classes: Sequence[str]) -> np.ndarray:
    """Return the weights of a part's labels: (C,), or (N, C). Presets are counted on the training images."""
    weights = observe.get("weights")
    if "sha256" in observe:
        return scores.read(weights, part.ids, classes)
    if weights == SALIENCE:
        if part.salience is None:
            raise DataError(
                "weights 'salience' needs a data set that knows how large each object is, such as digits: for others, "
                "write a score for each label to a file, {'weights': 'scores.csv'} (spml_core.data.scores.write)"
            )
        return part.salience
    if isinstance(weights, str):
        return labels.class_weights(train.full, weights)
    weights = np.ones(len(classes)) if weights is None else np.array(weights)
    if len(weights) != len(classes):
        raise DataError(f"weights are {len(weights)} numbers, and the data set has {len(classes)} classes")
    return weights


def _knowledge(groups: Sequence[Sequence[str]], classes: Sequence[str]) -> np.ndarray:
    """Return (A, C) bool: which classes each annotator knows."""
    known = [name for group in groups for name in group]
    if strange := [name for name in known if name not in classes]:
        hint = words.did_you_mean(strange[0], classes) or f"it has {words.listed(classes)}"
        raise DataError(f"annotators: {strange[0]!r} is not a class of the data set; {hint}")
    if nobody := [name for name in classes if name not in known]:
        raise DataError(f"annotators: nobody knows {words.listed(nobody)}; each class needs one who does")
    return np.array([[name in group for name in classes] for group in groups])


def require_agreement(
    observed: np.ndarray, part: Part, classes: Sequence[str], allowed: float = 0.0
) -> np.ndarray:
    """Return `observed` unchanged if these labels, drawn elsewhere, agree with the truth where it is known.

    Args:
        allowed: share of the observed labels that may contradict it.

    Raises:
        DataError: more of them do; lists them.
    """
    wrong = (observed != 0) & ((observed == 1) != (part.full == 1))
    if part.known is not None:
        wrong &= part.known
    if wrong.sum() > allowed * (observed != 0).sum():
        said = {1: "positive, but absent", -1: "negative, but present"}
        lines = [
            f"image {part.ids[row]}: class {classes[column]!r} is observed as {said[int(observed[row, column])]}"
            for row, column in np.argwhere(wrong)
        ]
        counted = words.some(len(lines), int((observed != 0).sum()), "observed label")
        raise DataError(
            f"{counted} in conflict with the data set:{table.bullets(lines)}\n"
            "If the data set does not list all labels, say so in the column unknown of its labels.csv "
            "(data/README.md). To train with a share of wrong labels: "
            """-o observe '{"manifest": "FILE", "wrong": 0.05}'"""
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
