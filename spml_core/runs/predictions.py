"""Predict image files with a run's network, into a CSV file of any length; `Run.predict` does so in memory."""

import csv
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core import metrics, words
from spml_core.data import OptionError
from spml_core.data.files import table
from spml_core.data.files.digests import digest
from spml_core.data.listing import SUFFIXES, images_below
from spml_core.paths import project_root, write_whole
from spml_core.train.predict import predict_files

SAVED = 5  # seconds between two points from which a killed process can resume


def images(sources: Sequence[str | Path]) -> list[str]:
    """Return image files: those named, those below a folder (sorted), and those in a `.txt` list, one path a line.

    Relative paths start at the project folder, also in a list. Files are not opened here.

    Raises:
        OptionError: a file or folder does not exist, or there is no image.
        DataError: a list cannot be read.
    """
    root, found = project_root(), []
    if absent := [str(source) for source in sources if not (root / Path(source).expanduser()).exists()]:
        raise OptionError(f"no file or folder {words.listed(absent)} (relative paths start at {root})")
    for source in map(str, sources):
        path = root / Path(source).expanduser()
        if path.is_dir():
            below = (os.path.relpath(image, path) for image in images_below(path))
            found += [os.path.normpath(os.path.join(source, image)) for image in below]
        elif path.suffix == ".txt":
            found += [line.strip() for line in table.text(path).splitlines() if line.strip()]
        else:
            found.append(source)
    if not found:
        known = ", ".join(sorted(SUFFIXES))
        raise OptionError(
            f"there are no images in {words.listed([*map(str, sources)])} (files that end in {known})"
        )
    return found


def choosing_labels(val_labels: str, observed, full, known) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the labels (N, C) in {1, 0} that choose the epoch, and where they are known; None = everywhere.

    If `val_labels` is "observed", every label that is not an observed positive counts as a negative.
    """
    if val_labels == "observed":
        return (observed == 1).astype(np.int8), None
    return full, known


def thresholds(run) -> np.ndarray:
    """Return the threshold (C,) of each class that maximises its F1 on the validation labels that chose the epoch.

    It is 0.5 for a class without a positive in validation. See `metrics.fit_thresholds`.
    """
    labels = run.labels("val")
    full, known = choosing_labels(run.config["val_labels"], labels.observed, labels.full, labels.known)
    return metrics.fit_thresholds(labels.probs, full, evaluated=known).values


def write(
    run,
    names: Sequence[str],
    file: Path,
    *,
    top: int | None = None,
    threshold: float | Sequence[float] | None = None,
    jobs: int | None = None,
) -> list[tuple[str, str]]:
    """Write one row per readable image to a CSV file, in order, and return (image, reason) for all other images.

    These are also written beside it, to `<name>.errors.csv`. Columns are `image` and the probability of each class, in
    6 significant digits. Memory does not grow with the number of images, apart from their names. Until all are done,
    rows are in the folder `<file>.partial`, from which the same call resumes after an interruption; on the same device
    the file is the same to the last byte.

    Args:
        names: from `images`.
        top: write the `top` most probable classes instead: columns label_1, probability_1, label_2, ...
        threshold: write the labels whose probability is above it instead, joined by ";"; one for all classes, or (C,).
        jobs: see `Run.predict`.

    Raises:
        ValueError: there are fewer than `top` classes, or a threshold is outside [0, 1].
    """
    header, fields = _columns(run.classes, top, threshold)
    draft, log = file.with_name(f"{file.name}.partial"), file.with_suffix(".errors.csv")
    limits = None if threshold is None else np.asarray(threshold).tolist()
    asked = [digest(run.path / "model.safetensors"), header, limits, *names]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    if not (draft / key).exists():
        shutil.rmtree(draft, ignore_errors=True)
        write_whole(draft / key, "")

    # Each part holds rows and errors, and is named after the number of images that are done with it.
    done = max((int(part.stem) for part in draft.glob("*.json")), default=0)
    rows, errors, saved = [], [], time.monotonic()
    for probs, unreadable in predict_files(run.model(), names, run.image_shape, jobs, done):
        there = np.isfinite(probs).all(1)
        own = zip(np.array(names[done : done + len(probs)], object)[there], fields(probs[there]), strict=True)
        rows += [[name, *values] for name, values in own]
        errors += unreadable
        done += len(probs)
        if time.monotonic() - saved >= SAVED or done == len(names):
            write_whole(draft / f"{done:012d}.json", json.dumps([rows, errors]))
            rows, errors, saved = [], [], time.monotonic()

    faults = []
    with open(draft / "predictions.csv", "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        for part in sorted(draft.glob("*.json")):
            rows, errors = json.loads(part.read_text())
            writer.writerows(rows)
            faults += map(tuple, errors)
    log.unlink(missing_ok=True)
    if faults:
        pd.DataFrame(faults, columns=["image", "error"]).to_csv(log, index=False, lineterminator="\n")
    (draft / "predictions.csv").replace(file)
    shutil.rmtree(draft)
    return faults


def _columns(classes: list[str], top: int | None, threshold) -> tuple[list[str], Callable]:
    """Return the header, and a function from probabilities (B, C) to the fields of each row after the image."""
    names = np.array(classes, object)
    if top is not None:
        if not 1 <= top <= len(names):
            raise ValueError(f"top={top}: the run has {words.count(len(names), 'class')}")

        def highest(probs):
            order = np.argsort(-probs, axis=1, kind="stable")[:, :top]
            for own, chosen in zip(probs, order, strict=True):
                yield [field for c in chosen for field in (names[c], f"{own[c]:.6g}")]

        columns = [f"{what}_{k}" for k in range(1, top + 1) for what in ("label", "probability")]
        return ["image", *columns], highest
    if threshold is not None:
        if not ((np.asarray(threshold) >= 0) & (np.asarray(threshold) <= 1)).all():
            raise ValueError(f"a threshold on probabilities is in [0, 1], not {threshold}")
        return ["image", "labels"], lambda probs: ([";".join(names[own])] for own in probs > threshold)
    return ["image", *classes], lambda probs: ([f"{p:.6g}" for p in own] for own in probs)
