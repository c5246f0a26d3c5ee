"""`folder`: any folder of images with a `labels.csv` is a data set."""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spml_core.data import DataError, Dataset, Part, images, labels
from spml_core.paths import locate

SPLITS = ("train", "val", "test")
POLICIES = ("error", "drop", "keep")
SPLIT_SEED = 1200  # as in the published train/validation split
VAL_FRACTION = 0.2  # of train, where labels.csv names no validation images
FORM = "Expected: columns image,split,labels (split may be absent), labels joined by ';', in UTF-8."


@dataclass
class _Row:
    line: int  # in labels.csv, whose header is line 1
    image: str  # path below the folder, with forward slashes: the image's id
    split: str
    labels: set[str]


def load(
    root: str | Path,
    *,
    size: int = 224,
    min_images: int = 1,
    fractions: Sequence[float] | None = None,
    unlabeled: str = "error",
    backbone: str | None = None,
    cache_dir: str | Path = "runs/cache",
) -> Dataset:
    """Load `root/labels.csv` and the images it names.

    `labels.csv` has the columns `image` (path below `root`), `split` and `labels` (joined by `;`, empty for
    none); other columns are ignored. Without a `split` column all images are training images. Where no row says
    `val`, 20 % of the training images become validation (`labels.split`, seed 1200). `root/classes.txt`, one
    class a line, fixes the classes and their order; without it they are sorted by name. Rows are sorted by image
    name, so their order in the file means nothing. The split is made before `min_images` and `unlabeled` take
    anything away.

    Args:
        root: the folder; a relative one starts at the project root, as `cache_dir` does.
        size: side of the square images, pixels; see `images.decode` for colour modes and resizing.
        min_images: keep classes with at least this many images, all splits together (0: even those with none).
        fractions: (train, val, test), summing to 1: ignore the `split` column, divide all images at random.
        unlabeled: images without a label (that is left): "error", "drop", or "keep" as all negative.
        backbone: None for images, held in memory at 3 * size**2 bytes each; a timm model for frozen features.
        cache_dir: where features are kept, of all images, whatever the other options choose among them.

    Returns:
        Dataset named after the folder, inputs (N, 3, size, size) uint8, or (N, D) float32 with `backbone`. It has
        a "test" part only if there are test images. The fingerprint covers options, labels and the content of
        every file used, not where the folder lies.

    Raises:
        DataError: anything wrong with the options, labels.csv, classes.txt, or the image files.
    """
    _check_options(size, min_images, fractions, unlabeled)
    root = locate(root)
    rows, has_split = _read_rows(root / "labels.csv")
    division = _divide(rows, fractions, has_split)
    classes, dropped = _choose_classes(root / "classes.txt", rows, min_images)
    for row in rows:
        row.labels &= set(classes)
    empty = [row for row in rows if not row.labels]
    if empty and unlabeled == "error":
        cause = f" once min_images={min_images} has taken {dropped} classes away" if dropped else ""
        raise DataError(
            f"{len(empty)} of {len(rows)} images have no label{cause}:"
            f"{images.listing([row.image for row in empty])}\n"
            "Choose the option `unlabeled`: drop leaves them out, keep takes them as all negative, error stops here "
            "(spml train: -d unlabeled drop)."
        )
    chosen = [row for row in rows if row.labels or unlabeled == "keep"]
    members = {split: [row for row in chosen if row.split == split] for split in SPLITS}
    for split in ("train", "val"):
        if not members[split]:
            raise DataError(
                f"no {split} images in {root / 'labels.csv'} ({division}): add rows or use fractions."
            )
    members = {split: part for split, part in members.items() if part}
    kept = [row for part in members.values() for row in part]

    images.require(root, [row.image for row in rows])
    digests = {row.image: images.digest(root / row.image) for row in rows}
    weights = None
    if backbone is None:
        inputs = images.read([root / row.image for row in kept], size)
    else:
        from spml_core.data import features

        weights = features.weights_id(backbone)
        computed = features.extract(
            [root / row.image for row in rows],
            backbone=backbone,
            size=size,
            cache_dir=locate(cache_dir),
            digests=list(digests.values()),
        )
        place = {row.image: n for n, row in enumerate(rows)}
        inputs = computed[[place[row.image] for row in kept]]

    full = np.array([[name in row.labels for name in classes] for row in kept], np.int8)
    sizes = [len(part) for part in members.values()]
    pieces = zip(members.items(), inputs.split(sizes), np.split(full, np.cumsum(sizes)[:-1]), strict=True)
    parts = {split: Part(x, y, tuple(row.image for row in part)) for (split, part), x, y in pieces}
    options = {
        "size": size,
        "min_images": min_images,
        "fractions": fractions and list(fractions),
        "unlabeled": unlabeled,
        "backbone": backbone,
    }
    notes = options | {
        "division": division,
        "images": {split: len(part) for split, part in members.items()},
        "images_without_label": {split: sum(row.split == split for row in empty) for split in SPLITS},
        "classes_dropped": dropped,
        "duplicate_images": len(kept) - len({digests[row.image] for row in kept}),
    }
    table = [[row.image, row.split, sorted(row.labels), digests[row.image]] for row in kept]
    content = json.dumps([options, weights, images.RULE, classes, table])
    fingerprint = hashlib.sha256(content.encode()).hexdigest()
    return Dataset(root.resolve().name, tuple(classes), parts, fingerprint, notes)


def _check_options(size, min_images, fractions, unlabeled) -> None:
    if size < 1 or min_images < 0:
        raise DataError(f"size={size}, min_images={min_images}: size is in pixels, >= 1; min_images is >= 0")
    if unlabeled not in POLICIES:
        raise DataError(f"unknown policy unlabeled={unlabeled!r}: use one of {', '.join(POLICIES)}")
    if fractions is None:
        return
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise DataError(f"fractions={fractions}: expected (train, val, test), each >= 0, summing to 1")


def _read_rows(file: Path) -> tuple[list[_Row], bool]:
    """Rows sorted by image, and whether there is a split column."""
    if not file.is_file():
        raise DataError(f"there is no {file}. {FORM}")
    rows, lines = [], {}
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text)
            header = reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
            if missing := [name for name in ("image", "labels") if name not in header]:
                found = f"its header is {','.join(header)}" if header else "it is empty"
                raise DataError(f"{file} has no column {' and '.join(missing)}: {found}. {FORM}")
            for record in reader:
                row = _read_row(record, reader.line_num, f"{file}, line {reader.line_num}")
                if row.image in lines:
                    raise DataError(
                        f"{file}, line {row.line}: image {row.image!r} is already in line {lines[row.image]}: "
                        "one row an image, with all its labels"
                    )
                lines[row.image] = row.line
                rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as a table ({error}). {FORM}") from None
    if not rows:
        raise DataError(f"{file} has a header but no rows. {FORM}")
    return sorted(rows, key=lambda row: row.image), "split" in header


def _read_row(record: dict, line: int, where: str) -> _Row:
    if None in record or None in record.values():  # what csv makes of too many and of too few fields
        raise DataError(
            f"{where}: not as many fields as the header has. Labels are joined by ';', not by ','."
        )
    image = record["image"].strip().replace("\\", "/")
    if not image or image.startswith("/") or image[1:2] == ":":
        raise DataError(f"{where}: image {image!r} is not a path below the folder, such as images/1.jpg")
    found = {_normal(label) for label in record["labels"].split(";")} - {""}
    return _Row(line, posixpath.normpath(image), record.get("split", "train").strip(), found)


def _normal(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip())  # an accent typed in two ways is one class


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _divide(rows: list[_Row], fractions, has_split: bool) -> str:
    """Set every row's split; returns how that was done, in words."""
    if fractions is not None:
        order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))  # same in every numpy
        num_val, num_test = (int(len(rows) * fraction + 1e-9) for fraction in fractions[1:])
        for place, n in enumerate(order):
            rows[n].split = "val" if place < num_val else "test" if place < num_val + num_test else "train"
        return f"fractions {'/'.join(map(str, fractions))}, seed {SPLIT_SEED}"
    for row in sorted(rows, key=lambda row: row.line):
        if row.split not in SPLITS:
            raise DataError(
                f"labels.csv, line {row.line}: unknown split {row.split!r} of {row.image}."
                f"{_near(row.split, SPLITS)} Known: {', '.join(SPLITS)}."
            )
    source = "split column" if has_split else "no split column"
    train = [row for row in rows if row.split == "train"]
    if len(train) < 2 or any(row.split == "val" for row in rows):
        return source
    for n in labels.split(len(train), VAL_FRACTION, SPLIT_SEED)[1]:
        train[n].split = "val"
    return f"{source}, {VAL_FRACTION:.0%} of train as validation, seed {SPLIT_SEED}"


def _choose_classes(file: Path, rows: list[_Row], min_images: int) -> tuple[list[str], int]:
    """The classes in order, and how many fell short of `min_images`."""
    counts = Counter(label for row in rows for label in row.labels)
    names = sorted(counts)
    if file.is_file():
        try:
            names = [name for line in file.read_text("utf-8-sig").splitlines() if (name := _normal(line))]
        except UnicodeDecodeError as error:
            raise DataError(f"{file} is not UTF-8 text ({error})") from None
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise DataError(f"{file} names {', '.join(map(repr, twice))} more than once")
        for row in sorted(rows, key=lambda row: row.line):
            if unknown := sorted(row.labels - set(names)):
                raise DataError(
                    f"labels.csv, line {row.line}: label {unknown[0]!r} is none of the {len(names)} classes "
                    f"in {file}.{_near(unknown[0], names)}"
                )
    kept = [name for name in names if counts[name] >= min_images]
    if not kept:
        top = counts.most_common(1)
        most = f"the largest, {top[0][0]!r}, has {top[0][1]}" if top else "no row has a label"
        raise DataError(f"no class has min_images={min_images} images in labels.csv: {most}")
    return kept, len(names) - len(kept)
