"""`openimages`: image-level labels of Open Images (Kuznetsova et al., IJCV 2020), verified by people."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import NonNegativeInt

from spml_core import words
from spml_core.data.dataset import SPLITS, DataError
from spml_core.data.files import table
from spml_core.data.files.layout import contents, find
from spml_core.data.listing import Listing, find_extra, finish

FOLDERS = ("train", "validation", "test")  # of `SPLITS`
COLUMNS = {"ImageID": "image", "LabelName": "label", "Confidence": "value"}
DENSE = 16 * 2**30  # bytes of the label matrices at most
EXPECTED = (
    "Expected: {train,validation,test}-annotations-human-imagelabels.csv (ImageID,Source,LabelName,Confidence), "
    "class-descriptions.csv (LabelName,DisplayName), each with any prefix or suffix, and the folders train/, "
    "validation/ and test/ of images. See data/README.md."
)


def read(
    root: str | Path,
    *,
    classes: Sequence[str] | None = None,
    min_images: NonNegativeInt = 1,
    machine_threshold: float | None = None,
    conflicts: Literal["error", "unknown"] = "error",
    unlabeled: Literal["error", "drop", "keep"] = "drop",
    allow_missing: bool = False,
) -> Listing:
    """Read the label files: confidence 1 is a positive, 0 a verified negative, everything else is unknown.

    The images are those with a label of the chosen classes, sorted by id within train, validation (val) and test;
    without a validation file 20 % of train become val. Missing images are common: see `allow_missing`.

    Memory: label files are read in pieces of a million rows. Each label of the chosen classes takes about 130 bytes
    while labels are merged. Each image takes an id and a path (about 1 kB), and one byte per class in each of the two
    dense matrices, `full` and `known`. No float matrix is made. A million images with 5,000 classes take 10 GB, and
    twice that while `allow_missing` selects from them. Above 16 GiB the loader stops before it allocates the matrices,
    and asks for fewer classes.

    Args:
        root: the folder; a relative one starts at the project root.
        classes: display names or label names (/m/...) to keep. None = all that are verified on some image.
        min_images: keep classes with this many positive training images.
        machine_threshold: count a machine label of at least this confidence as positive if no person has verified it.
            None = machine labels stay unknown, and their files are not read.
        conflicts: labels of an image that are verified both as present and as absent: "error" (a problem raised by
            `assemble`; the label is unknown until then), or "unknown".
        unlabeled: images without a positive: "drop", "keep" or "error".
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: missing or ambiguous label files, unknown classes, other columns, too many classes for memory.
    """
    root = find(root, EXPECTED)
    display = _descriptions(_find(root, "class-descriptions", required=True))
    wanted = None if classes is None else _choose(display, classes)
    found = [_find(root, f"{name}-annotations-human-imagelabels", name == "train") for name in FOLDERS]
    read = {n: _rows(file, wanted) for n, file in enumerate(found) if file is not None}
    votes = pd.concat({n: rows for n, (rows, _) in read.items()}, names=["split", None])
    votes = votes.groupby(["split", "image", "label"]).value.agg(["min", "max"]).reset_index()
    clashes = votes[votes["min"] != votes["max"]]
    if machine_threshold is not None:  # for labels that no person verified, on images with verified ones
        for n in read:
            file = _find(root, f"{FOLDERS[n]}-annotations-machine-imagelabels", required=True)
            rows, _ = _rows(file, wanted, machine_threshold)
            rows = rows[rows.image.isin(votes.image[votes.split == n])]
            votes = pd.concat([votes, rows.assign(split=n, min=1, max=1)])
        votes = votes.drop_duplicates(["split", "image", "label"])
    sure = votes[votes["min"] == votes["max"]]
    positive = sure[sure["max"] == 1]
    counts = positive.label[positive.split == 0].value_counts()
    counts = counts.reindex(sorted(votes.label.unique()), fill_value=0)
    kept = [*counts.index[counts >= min_images]]
    if not kept:
        most = max(counts, default=0)
        raise DataError(f"no class has min_images={min_images} positive training images; most: {most}")
    images = votes[["split", "image"]].drop_duplicates()
    number = len(images)
    if unlabeled == "drop":  # before there is a matrix
        images = positive.loc[positive.label.isin(kept), ["split", "image"]].drop_duplicates()
    images = images.sort_values(["split", "image"])
    if (size := 2 * len(images) * len(kept)) > DENSE:
        raise DataError(
            f"{len(images):,} images x {len(kept):,} classes need {size / 2**30:.0f} GiB, more than "
            f"{DENSE / 2**30:.0f}: choose fewer classes, or a higher min_images"
        )
    rows = pd.MultiIndex.from_frame(images).get_indexer(pd.MultiIndex.from_frame(sure[["split", "image"]]))
    columns = pd.Index(kept).get_indexer(sure.label)
    chosen = (rows >= 0) & (columns >= 0)
    full, known = np.zeros((len(images), len(kept)), np.int8), np.zeros((len(images), len(kept)), bool)
    full[rows[chosen], columns[chosen]] = sure["max"].to_numpy()[chosen]
    known[rows[chosen], columns[chosen]] = True
    paths = [root / FOLDERS[n] / f"{image}.jpg" for n, image in zip(images.split, images.image, strict=True)]
    listing = Listing(
        name="openimages",
        classes=_shown(kept, display),
        paths=paths,
        ids=images.image.tolist(),
        splits=[SPLITS[n] for n in images.split],
        full=full,
        known=known,
        options={
            "classes": classes if classes is None else sorted(classes),
            "min_images": min_images,
            "machine_threshold": machine_threshold,
            "conflicts": conflicts,
        },
        notes={
            "conflicts": len(clashes),
            "neither_0_nor_1": sum(rejected for _, rejected in read.values()),
            "classes_dropped": len(counts) - len(kept),
            "unlabeled_dropped": number - len(images),
        },
        extra=find_extra([root / FOLDERS[n] for n in read], paths),
    )
    if len(clashes) and conflicts == "error":
        pairs = zip(clashes.image, clashes.label, strict=True)
        named = [f"{image}: {display.get(c, c)}" for image, c in pairs]
        listing.problems.append(
            f"{words.count(len(clashes), 'label')} verified both as present and as absent:{table.bullets(named)}\n"
            "conflicts='unknown' treats them as unknown (spml train: -d conflicts unknown)."
        )
    return finish(listing, divide=1 not in read, unlabeled=unlabeled, allow_missing=allow_missing)


def _find(root: Path, part: str, required: bool) -> Path | None:
    """Return the one CSV file whose name contains `part`, in `root` or one folder below it."""
    found = sorted({*root.glob(f"*{part}*.csv"), *root.glob(f"*/*{part}*.csv")})
    if len(found) > 1:
        raise DataError(
            f"{len(found)} files match {part}:{table.bullets([str(file) for file in found])}\nKeep only the one to "
            f"read."
        )
    if not found and required:
        raise DataError(f"there is no *{part}*.csv in {root}. {EXPECTED}\n{contents(root)}")
    return found[0] if found else None


def _descriptions(file: Path) -> dict[str, str]:
    rows = table.rows(file, EXPECTED)
    wrong = [(n, "expected two columns, LabelName,DisplayName") for n, row in rows if len(row) != 2]
    table.refuse(file, wrong, len(rows))
    return {label: shown for _, (label, shown) in rows if label != "LabelName"}


def _choose(display: dict[str, str], classes: Sequence[str]) -> set[str]:
    """Return the label names of the requested classes, which may be given by either name."""
    meant = {name: [label for label, shown in display.items() if name in (label, shown)] for name in classes}
    strange = [f"{k!r} is the name of {len(own)} classes" for k, own in meant.items() if len(own) != 1]
    if strange:
        raise DataError(
            f"{len(strange)} of the requested classes do not name one class:{table.bullets(strange)}"
        )
    return {labels[0] for labels in meant.values()}


def _rows(file: Path, wanted: set[str] | None, threshold: float | None = None) -> tuple[pd.DataFrame, int]:
    """Return image, label and value of the rows that are used, and the number of rows that are neither 0 nor 1.

    Values are 1 or 0; with a threshold they are 1, and rows below it are not used.
    """
    parts, rejected = [], 0
    for piece in table.pieces(file, COLUMNS, EXPECTED):
        if wanted is not None:
            piece = piece[piece.LabelName.isin(wanted)]
        confidence = pd.to_numeric(piece.Confidence, errors="coerce")
        sure = confidence.isin((0, 1)) if threshold is None else confidence >= threshold
        if threshold is None and "Source" in piece:
            sure &= piece.Source != "machine"
        rejected += int((~sure).sum())
        part = piece.loc[sure, [*COLUMNS]].rename(columns=COLUMNS)
        parts.append(part.assign(value=(confidence[sure] > 0).astype(np.int8)))
    return pd.concat(parts), rejected


def _shown(labels: Sequence[str], display: dict[str, str]) -> tuple[str, ...]:
    """Return display names, with the label name added where several classes share one."""
    names = [display.get(label, label) for label in labels]
    times = Counter(names)
    pairs = zip(names, labels, strict=True)
    return tuple(name if times[name] == 1 else f"{name} ({label})" for name, label in pairs)
