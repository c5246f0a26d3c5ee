"""`folder`: any folder of images with a `labels.csv`, Hugging Face `metadata` files or a COCO file is a data set."""

from __future__ import annotations

import itertools
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from spml_core import words
from spml_core.data.dataset import SPLITS, DataError, OptionError
from spml_core.data.files import label_files, table
from spml_core.data.files.label_files import LabelFile
from spml_core.data.files.layout import DEEP, find, require_files
from spml_core.data.listing import SPLIT_SEED, Listing, find_extra, finish

FORM = (
    "Expected: labels.csv with columns image,split,labels; or metadata.csv or metadata.jsonl with file_name and a list "
    "of labels; or file=annotations.json in COCO's format. See data/README.md."
)
SPLIT_WORDS = dict.fromkeys(("val", "valid", "validation", "dev"), "val")
SPLIT_WORDS |= {"train": "train", "training": "train", "test": "test", "testing": "test"}
WRONG_SEPARATORS = ("|", ",", "/", " ")


@dataclass
class Row:
    source: LabelFile
    line: int  # the header of a table is line 1
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
    file: str | Sequence[str] | None = None,
    images: str | Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Listing:
    """Read `root/labels.csv`, or label files in another format, and `root/classes.txt` if it is there.

    data/README.md describes the formats, and how they give splits and unknown labels. If no row says `val`, 20 % of the
    training images become validation (`labels.split`, seed 1200). classes.txt fixes the classes and their order;
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
        file: label files, paths below `root`: a table (.csv, .tsv), JSON Lines (.jsonl) or COCO's format (.json).
            Default: labels.csv, or else the metadata files.
        images: folder below `root` that image names are relative to, one for all label files or one for each.
            Default: the label file's own folder.
        image_column: default `image` or `file_name`.
        label_column: column of joined labels or lists. Default: `labels`, or without it one column per class.

    Raises:
        DataError: invalid options, or everything that is wrong with a label file and classes.txt. Images without a
            label are a problem that `assemble` raises.
    """
    root = find(root, FORM)
    named = _read_classes(root / "classes.txt")
    files = _label_files(root, file, images)
    sources = [label_files.read(*each, image_column, label_column, named) for each in files]
    rows, division = _read_rows(root, sources, zero)
    _note_faults(rows, named, any_split=fractions is not None)
    for source in sources:
        table.refuse(source.file, sorted(source.faults), source.total, source.place)
    columns = {table.normal(name) for source in sources for name in source.columns}
    counts = Counter(label for row in rows for label in row.labels)
    unsure = set().union(*(row.unknown for row in rows)) - {"*"}
    names = sorted({*counts, *unsure, *columns}) if named is None else named
    classes = [name for name in names if counts[name] >= min_images]
    if not classes:
        top = counts.most_common(1)
        most = f"the largest, {top[0][0]!r}, has {top[0][1]}" if top else "no row has a label"
        raise DataError(f"no class has min_images={min_images} images in {sources[0].file.name}: {most}")
    dropped = len(names) - len(classes)

    kept = set(classes)
    full = table.indicator((row.labels & kept for row in rows), classes)
    known = table.indicator((row.unknown & kept for row in rows), classes) == 0
    whole = [n for n, row in enumerate(rows) if "*" in row.unknown]
    known[whole] = full[whole] == 1
    if fractions is not None:
        division = _divide(rows, fractions)
    paths = [root / row.image for row in rows]
    by_line = len(sources) == 1 and sources[0].place == "line"
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
        lines=[row.line for row in rows] if by_line else None,
        table=sources[0].file.name,
        size=224,
    )
    # With labels.csv, label files may be read where the images are not, as `spml data labels` does.
    if images is None and listing.table != "labels.csv" and not any(path.exists() for path in paths):
        listing.problems.append(
            "none of the images exists. If they are in another folder, name it with the option images (spml train: -d "
            "images FOLDER)."
        )
    _look_at_classes(listing)
    if named is None and (stray := sorted(unsure - {*counts, *columns})):
        n = next(n for n, row in enumerate(rows) if stray[0] in row.unknown)
        listing.odd.append(
            f"{words.count(len(stray), 'label')} unknown for some image and positive for none: {words.listed(stray)} "
            f"({listing.where(n).split(' (')[0]}). {words.did_you_mean(stray[0], counts)}".rstrip()
        )
    cause = f" after min_images={min_images} removed {words.count(dropped, 'class')}" if dropped else ""
    divide = fractions is None and "val" not in listing.splits
    listing = finish(listing, divide=divide, unlabeled=unlabeled, allow_missing=allow_missing, cause=cause)
    _note_untrained(listing)
    _note_single(listing)
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


def _label_files(
    root: Path, file: str | Sequence[str] | None, images: str | Sequence[str] | None
) -> list[tuple[Path, str]]:
    """Return the label files, and the folder below `root` of the images of each; see `read` for the options.

    Raises:
        OptionError: a path that is not below the folder, or another number of image folders than of label files.
        DataError: no such file.
    """
    names, folders = ([each] if isinstance(each, str) else each for each in (file, images))
    for option, each in (("file", names), ("images", folders)):
        if outside := [name for name in each or () if not _path(name)]:
            raise OptionError(f"{option}={outside[0]!r} is not a path below {root}")
    if names is not None:
        files = [root / name for name in names]
    elif (root / "labels.csv").is_file():
        files = [root / "labels.csv"]
    else:
        below = (root.glob(f"{'*/' * depth}metadata.*") for depth in range(DEEP + 1))
        files = sorted(path for path in itertools.chain(*below) if path.suffix in (".csv", ".jsonl"))
    require_files(root, files or [root / "labels.csv"], FORM)
    if folders is None:
        folders = [path.parent.relative_to(root).as_posix() for path in files]
    elif len(folders) == 1:
        folders = [*folders] * len(files)
    if len(folders) != len(files):
        raise OptionError(
            f"images={images} names {len(folders)} folders, file={file} {len(files)} label files"
        )
    return [*zip(files, folders, strict=True)]


def _read_rows(root: Path, sources: Sequence[LabelFile], zero: str | None) -> tuple[list[Row], str]:
    """Return the rows of the label files, sorted by image, and what divides them into splits; note faulty ones."""
    rows, first = [], {}
    for source in sources:
        values = {label_files.value(record[name]) for _, record in source.records for name in source.columns}
        if zero is None and {"0", "-1"} <= values:
            raise DataError(
                f"{source.file} holds both 0 and -1. Beside -1 for absent, 0 may mean absent or unknown: choose "
                "zero='absent' or zero='unknown' (spml train: -d zero unknown)."
            )
        of_file = _split_in(source.file.relative_to(root).as_posix())
        for line, record in source.records:
            labels, unknown, faults = label_files.labels_of(source, record, zero)
            cell = str(record[source.image])
            row = Row(source, line, _path(cell, source.folder), "train", labels, unknown)
            if "split" in source.header:
                row.split = str(record["split"]).strip()
            elif not source.plain:
                row.split = of_file or _split_in(posixpath.dirname(row.image))
            if not row.image:
                faults.append(f"image {cell.strip()!r} is not a path below the folder, such as images/1.jpg")
            elif (other := first.setdefault(row.image, row)) is not row:
                same = other.source is source
                place = f"{'' if same else f'{other.source.file} '}{other.source.place} {other.line}"
                todo = "use one row per image" if same else "if it is another image, set the option images"
                faults.append(f"image {row.image!r} is already in {place}: {todo}")
            source.faults += [(line, fault) for fault in faults]
            rows.append(row)
    division = "split column" if any("split" in source.header for source in sources) else "no split column"
    if not any(row.split for row in rows):
        for row in rows:
            row.split = "train"
    elif division == "no split column" and not all(source.plain for source in sources):
        division = "folders and files named like splits"
    return sorted(rows, key=lambda row: row.image), division


def _note_faults(rows: Sequence[Row], classes: Collection[str] | None, any_split: bool) -> None:
    """Note unknown splits, and labels that are not classes of classes.txt, or several labels in one."""
    every = set().union(*(row.labels | row.unknown for row in rows)) - {"*"}
    joined = _joined(every | set(classes or ()))
    for row in rows:
        faults, names = [], sorted((row.labels | row.unknown) - {"*"})
        if not any_split and row.split not in SPLITS:
            hint = words.did_you_mean(row.split, SPLITS)
            faults.append(f"unknown split {row.split!r} of {row.image}; {hint} Known: {', '.join(SPLITS)}.")
        for name in names if classes is None else sorted({*names} - {*classes}):
            if name in joined:
                mark, meant = joined[name]
                how = "join them by ';'" if row.source.plain else "join them by ';' or write a list"
                faults.append(
                    f"label {name!r} looks like {' and '.join(map(repr, meant))}, joined by {mark!r}: {how}. If it is "
                    "a class of its own, list all classes in classes.txt"
                )
            elif classes is not None:
                hint = words.did_you_mean(name, classes)
                faults.append(
                    f"label {name!r} is not one of the {len(classes)} classes in classes.txt; {hint}"
                )
        row.source.faults += [(row.line, fault) for fault in faults]


def _joined(names: Set[str]) -> dict[str, tuple[str, list[str]]]:
    """Return the names that are other names joined by a wrong separator -> (separator, the names meant).

    Each part of such a name is a name itself, as in "dog|cat" beside "dog" and "cat". With | and , it is enough that
    each part occurs in another joined name. A name that merely contains a separator, as "polar bear", is none.
    """
    found = {}
    for mark in WRONG_SEPARATORS:
        parts = {name: [*filter(None, map(table.normal, name.split(mark)))] for name in names if mark in name}
        times = Counter(part for each in parts.values() for part in set(each))
        for name, each in parts.items():
            if each and all(part in names or (mark in "|," and times[part] > 1) for part in each):
                found.setdefault(name, (mark, each))
    return found


def _path(cell: str, folder: str = "") -> str:
    """Return a path, relative to `folder`, as one below the data set's folder: an image's id. "" if it is elsewhere."""
    name = cell.strip().replace("\\", "/")
    path = posixpath.normpath(posixpath.join(folder, name))
    outside = name[1:2] == ":" or path in (".", "..") or path.startswith(("/", "../"))
    return "" if not name or outside else path


def _split_in(path: str) -> str:
    """Return the split that a path names, as train2017/ does, or "" if it names none or several."""
    found = {SPLIT_WORDS[word] for word in re.findall("[a-z]+", path.lower()) if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 else ""


def _divide(rows: list[Row], fractions: Sequence[float]) -> str:
    """Divide all images at random and return a description of the division."""
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise OptionError(f"fractions={fractions}: expected (train, val, test), each >= 0, summing to 1")
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
            f"the same class, give them one name."
        )
    if len(listing.classes) == 1:
        listing.odd.append(
            f"only one class is left, {listing.classes[0]!r}: multi-label methods compare several (min_images="
            f"{listing.options['min_images']})"
        )


def _note_untrained(listing: Listing) -> None:
    """Note the classes that have no positive in train but some in val or test, with the numbers of positives."""
    counts = {split: listing.full[rows].sum(0, dtype=int) for split, rows in listing.members().items()}
    lost = np.flatnonzero((counts.get("train", 1) == 0) & listing.full.any(0))
    if len(lost):
        found = {listing.classes[c]: {split: int(each[c]) for split, each in counts.items()} for c in lost}
        listing.notes["classes_without_train_positive"] = found
        where = ", ".join(
            f"{name} ({words.listed([f'{n} {k}' for k, n in each.items()])})" for name, each in found.items()
        )
        listing.odd.append(
            f"{words.count(len(lost), 'class')} without a positive in train, which is thus not learnt, though its AP "
            f"counts in the mAP: {where}"
        )


def _note_single(listing: Listing) -> None:
    """Note training images with one label each, where val and test have more: their other labels may be unknown."""
    number = {split: listing.full[rows].sum(1) for split, rows in listing.members().items()}
    train, rest = number.pop("train", np.zeros(1)), np.concatenate([*number.values(), np.ones(1)])
    if listing.known is None and (train == 1).all() and rest.mean() > 1:
        listing.odd.append(
            f"each training image has one label, but {' and '.join(number)} images may have several. Labels that are "
            "not listed count as absent; if those of training images are unknown, write * in the column 'unknown' of "
            "labels.csv (data/README.md)"
        )


def _plain(name: str) -> str:
    """Return a class name without differences that are easily introduced by typing."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join("".join(letters).casefold().replace("-", " ").replace("_", " ").split())
