"""`folder`: any folder of images with a `labels.csv` is a data set."""

from __future__ import annotations

import posixpath
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from spml_core import words
from spml_core.data.dataset import SPLITS, DataError, OptionError
from spml_core.data.files import table
from spml_core.data.files.layout import find, require_files
from spml_core.data.listing import SPLIT_SEED, Listing, find_extra, finish

DELIMITERS = (",", ";", "\t")  # spreadsheets write the second where the comma is the decimal sign
FORM = (
    "Expected: columns image,split,labels (split may be absent), labels joined by ';', in UTF-8; or image,split and a "
    "column for each class with 1, 0, or empty for unknown."
)
FIELDS = (
    "not as many fields as the header has. Labels are joined by ';', not by ','; where ';' separates the columns, "
    'joined labels are in quotes: "sky;sea".'
)


@dataclass
class Row:
    line: int  # in labels.csv, whose header is line 1
    image: str  # path below the folder, with forward slashes: the image's id
    split: str
    labels: set[str]
    unknown: set[str]  # "*": all that `labels` does not name


def read(
    root: str | Path,
    *,
    min_images: NonNegativeInt = 1,
    fractions: Sequence[float] | None = None,
    unlabeled: Literal["error", "drop", "keep"] = "error",
    zero: Literal["absent", "unknown"] | None = None,
    allow_missing: bool = False,
) -> Listing:
    """Read `root/labels.csv`, in one of two forms, and `root/classes.txt` if it is there.

    Joined labels: columns `image` (path below `root`), `split`, `labels` (joined by `;`, empty for none) and perhaps
    `unknown` (labels whose truth is not known, joined likewise; `*` for all that `labels` does not name). Other
    columns are ignored, labels not named are absent.

    One column per class: `image`, `split`, and every other column is a class (or only those in classes.txt). Values: 1
    present, 0 absent, -1 verified absent (the same as 0 in the truth), empty or ? unknown. A table with both 0 and -1
    is ambiguous, since 0 often means unknown in such tables: `zero` says what it means.

    Without a `split` column all images are training images. If no row says `val`, 20 % of the training images become
    validation (`labels.split`, seed 1200). classes.txt, with one class per line, fixes the classes and their order;
    without it they are sorted by name. Rows are sorted by image name, so their order in the file does not matter. The
    split is made before `min_images`, `unlabeled` and `allow_missing` remove anything.

    Args:
        root: the folder. A relative one starts at the project root, as `cache_dir` does; outside the project, for an
            installed `spml`, that is the working directory.
        min_images: keep classes with at least this many images, all splits together (0: even those with none).
        fractions: (train, val, test), summing to 1: ignore the `split` column, divide all images at random.
        unlabeled: images without a label, or with none left: "error", "drop", or "keep" as all negative.
        zero: "absent" or "unknown", in a table that also holds -1.
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: invalid options, or everything that is wrong with labels.csv and classes.txt. Images without a label
            are a problem that `assemble` raises.
    """
    root = find(root, FORM)
    if fractions is not None and (
        len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6
    ):
        raise OptionError(f"fractions={fractions}: expected (train, val, test), each >= 0, summing to 1")
    file = root / "labels.csv"
    require_files(root, [file], FORM)
    named = _read_classes(root / "classes.txt")
    rows, header, columns = _read_rows(file, named, zero, any_split=fractions is not None)
    counts = Counter(label for row in rows for label in row.labels)
    unsure = set().union(*(row.unknown for row in rows)) - {"*"}
    names = sorted({*counts, *unsure, *columns}) if named is None else named
    classes = [name for name in names if counts[name] >= min_images]
    if not classes:
        top = counts.most_common(1)
        most = f"the largest, {top[0][0]!r}, has {top[0][1]}" if top else "no row has a label"
        raise DataError(f"no class has min_images={min_images} images in labels.csv: {most}")
    dropped = len(names) - len(classes)

    kept = set(classes)
    full = table.indicator((row.labels & kept for row in rows), classes)
    known = table.indicator((row.unknown & kept for row in rows), classes) == 0
    whole = [n for n, row in enumerate(rows) if "*" in row.unknown]
    known[whole] = full[whole] == 1
    division = "split column" if "split" in header else "no split column"
    if fractions is not None:
        division = _divide(rows, fractions)
    paths = [root / row.image for row in rows]
    options = {"min_images": min_images, "fractions": fractions and list(fractions), "unlabeled": unlabeled}
    listing = Listing(
        name=root.resolve().name,
        classes=tuple(classes),
        paths=paths,
        ids=[row.image for row in rows],
        splits=[row.split for row in rows],
        full=full,
        known=None if known.all() else known,
        options=options | ({} if zero is None else {"zero": zero}),
        notes={"division": division, "classes_dropped": dropped},
        extra=find_extra([root], paths),
        lines=[row.line for row in rows],
        size=224,
    )
    _look_at_classes(listing)
    if named is None and (stray := sorted(unsure - {*counts, *columns})):
        line = next(row.line for row in rows if stray[0] in row.unknown)
        listing.odd.append(
            f"{words.count(len(stray), 'label')} unknown for some image and positive for none: {words.listed(stray)} "
            f"(labels.csv line {line}). {words.did_you_mean(stray[0], counts)}".rstrip()
        )
    cause = f" after min_images={min_images} removed {words.count(dropped, 'class')}" if dropped else ""
    divide = fractions is None and "val" not in listing.splits
    listing = finish(listing, divide=divide, unlabeled=unlabeled, allow_missing=allow_missing, cause=cause)
    if not allow_missing:
        del listing.options["allow_missing"]  # the fingerprint of a folder names it only where it is set
    return listing


def _read_classes(file: Path) -> list[str] | None:
    if not file.is_file():
        return None
    names = [name for line in table.text(file).splitlines() if (name := table.normal(line))]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{file} names {', '.join(map(repr, twice))} more than once")
    return names


def _read_rows(
    file: Path, classes: Collection[str] | None, zero: str | None, any_split: bool
) -> tuple[list[Row], list[str], list[str]]:
    """Read labels.csv; see `read` for its forms.

    Args:
        classes: those of classes.txt; labels outside it are faults, columns outside it are not read.
        any_split: ignore the splits.

    Returns:
        The rows sorted by image, the header, and the columns that are classes.

    Raises:
        DataError: not a table of either form, or all faulty rows together.
    """
    content = table.rows(file, FORM, DELIMITERS, column="image")
    header = [name.strip() for name in content[0][1]] if content else []
    columns = _class_columns(file, header, classes)
    content = content[1:]
    if not content:
        raise DataError(f"{file} has a header but no rows. {FORM}")
    faults = [(line, FIELDS) for line, fields in content if len(fields) != len(header)]
    records = {line: dict(zip(header, row, strict=True)) for line, row in content if len(row) == len(header)}
    values = {_value(record[name]) for record in records.values() for name in columns}
    if zero is None and {"0", "-1"} <= values:
        raise DataError(
            f"{file} holds both 0 and -1. Beside -1 for absent, 0 may mean absent or unknown: choose zero='absent' or "
            "zero='unknown' (spml train: -d zero unknown)."
        )
    rows, lines, listed = [], {}, file.with_name("classes.txt")
    for line, record in records.items():
        labels, unknown, found = _labels(record, columns, zero)
        row = Row(line, _image(record["image"]), record.get("split", "train").strip(), labels, unknown)
        if not row.image:
            cell = record["image"].strip()
            found.append(f"image {cell!r} is not a path below the folder, such as images/1.jpg")
        elif row.image in lines:
            found.append(f"image {row.image!r} is already in line {lines[row.image]}: use one row per image")
        lines.setdefault(row.image, line)
        if not any_split and row.split not in SPLITS:
            hint = words.did_you_mean(row.split, SPLITS)
            found.append(f"unknown split {row.split!r} of {row.image}; {hint} Known: {', '.join(SPLITS)}.")
        if classes is not None and (strange := sorted((labels | unknown) - {*classes, "*"})):
            hint = words.did_you_mean(strange[0], classes)
            found.append(f"label {strange[0]!r} is not one of the {len(classes)} classes in {listed}; {hint}")
        faults += [(line, fault) for fault in found]
        rows.append(row)
    table.refuse(file, sorted(faults), len(content))
    return sorted(rows, key=lambda row: row.image), header, columns


def _class_columns(file: Path, header: list[str], classes: Collection[str] | None) -> list[str]:
    """Return the columns that are classes: none where labels are joined."""
    found = f"its header is {','.join(header)}" if header else "it is empty"
    if "image" not in header:
        other = [name for name in header if name.lower() == "image"]
        raise DataError(
            f"{file} has no column image{f', only {other[0]!r}' if other else ''}: {found}. {FORM}"
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{file} has the column {twice[0]!r} more than once")
    if "labels" in header:
        return []
    columns = [name for name in header if name not in ("image", "split")]
    if classes is not None:
        columns = [name for name in columns if table.normal(name) in set(classes)]
    if not columns:
        raise DataError(f"{file} has no column labels, and none for a class: {found}. {FORM}")
    if absent := sorted(set(classes or ()) - set(map(table.normal, columns))):
        raise DataError(
            f"{file} has no column for {words.count(len(absent), 'class')} of classes.txt:{table.bullets(absent)}"
        )
    return columns


def _image(cell: str) -> str:
    """Return the image's id, or nothing if it is not a path below the folder."""
    image = cell.strip().replace("\\", "/")
    outside = image.startswith("/") or image[1:2] == ":" or posixpath.normpath(image).startswith("../")
    return posixpath.normpath(image) if image and not outside else ""


def _value(cell: str) -> str:
    """Return the value of a class column's cell; 1 may also appear as 1.0 (beside empty cells) or TRUE."""
    text = cell.strip().removesuffix(".0")
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def _labels(record: dict, columns: list[str], zero: str | None) -> tuple[set[str], set[str], list[str]]:
    """Return the labels of a row, those whose truth is unknown, and what is wrong with them."""
    if not columns:
        labels, unknown = (
            {table.normal(label) for label in record.get(name, "").split(";")} - {""}
            for name in ("labels", "unknown")
        )
        both = sorted(labels & unknown)[:1]
        return labels, unknown, [f"label {label!r} is both in labels and in unknown" for label in both]
    cells = {name: _value(record[name]) for name in columns}
    unsure = ("", "?", "0") if zero == "unknown" else ("", "?")
    faults = [
        f"{value!r} in column {name!r} is not 1, 0, -1, ? or empty. To skip a column, name the classes in classes.txt."
        for name, value in cells.items()
        if value not in ("1", "0", "-1", *unsure)
    ]
    labels = {table.normal(name) for name, value in cells.items() if value == "1"}
    return labels, {table.normal(name) for name, value in cells.items() if value in unsure}, faults


def _divide(rows: list[Row], fractions: Sequence[float]) -> str:
    """Divide all images at random and return a description of the division."""
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))  # same in every numpy
    num_val, num_test = (int(len(rows) * fraction + 1e-9) for fraction in fractions[1:])
    for place, n in enumerate(order):
        rows[n].split = "val" if place < num_val else "test" if place < num_val + num_test else "train"
    return f"fractions {'/'.join(map(str, fractions))}, seed {SPLIT_SEED}"


def _look_at_classes(listing: Listing) -> None:
    """Note class names that probably mean the same class, and a data set with a single class."""
    alike: dict[str, list[str]] = {}
    for name in listing.classes:
        alike.setdefault(_plain(name), []).append(name)
    for one in list(alike):  # dog and dogs, potato and potatoes
        for many in {words.plural(one), f"{one}es"} & set(alike):
            if one in alike and len(many) > 3:
                alike[one] += alike.pop(many)
    if groups := [sorted(names) for names in alike.values() if len(names) > 1]:
        listing.notes["similar_classes"] = groups
        shown = words.listed([" / ".join(map(repr, names)) for names in groups], table.SHOWN)
        differ = "group of classes differs" if len(groups) == 1 else "groups of classes differ"
        listing.odd.append(
            f"{len(groups)} {differ} in case, blanks, hyphens, accents or a plural ending only: {shown}. If they mean "
            f"the same class, give them one name in labels.csv."
        )
    if len(listing.classes) == 1:
        listing.odd.append(
            f"only one class is left, {listing.classes[0]!r}: multi-label methods compare several (min_images="
            f"{listing.options['min_images']})"
        )


def _plain(name: str) -> str:
    """Return a class name without differences that are easily introduced by typing."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join("".join(letters).casefold().replace("-", " ").replace("_", " ").split())
