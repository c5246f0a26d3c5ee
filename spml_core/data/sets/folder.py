"""`folder`: any folder of images with a `labels.csv` is a data set."""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spml_core import words
from spml_core.data import DataError, Dataset, OptionError, labels
from spml_core.data.files import images, table
from spml_core.data.files.place import contents, find
from spml_core.data.listing import (
    POLICIES,
    SPLIT_SEED,
    VAL_FRACTION,
    Listing,
    apply_policy,
    assemble,
    check_choice,
    drop_missing,
    find_extra,
)


def read(
    root: str | Path,
    *,
    min_images: int = 1,
    fractions: Sequence[float] | None = None,
    unlabeled: str = "error",
    zero: str | None = None,
    allow_missing: bool = False,
) -> Listing:
    """Read `root/labels.csv`, in one of two forms, and `root/classes.txt` if it is there.

    Joined labels: columns `image` (path below `root`), `split`, `labels` (joined by `;`, empty for none) and perhaps
    `unknown` (labels whose truth is not known, joined likewise; `*` for all that `labels` does not name). Other
    columns are ignored, labels not named are absent.

    A column for each class: `image`, `split`, and every other column a class, or only those in classes.txt. Values:
    1 present, 0 absent, -1 verified absent (which the truth does not tell from 0), empty or ? unknown. A table with
    both 0 and -1 is ambiguous, since elsewhere 0 then means unknown: `zero` says what it means.

    Without a `split` column all images are training images. Where no row says `val`, 20 % of the training images
    become validation (`labels.split`, seed 1200). classes.txt, one class a line, fixes the classes and their order;
    without it they are sorted by name. Rows are sorted by image name, so their order in the file means nothing. The
    split is made before `min_images`, `unlabeled` and `allow_missing` take anything away.

    Args:
        root: the folder. A relative one starts at the project root, as `cache_dir` does; outside the project, for an
            installed `spml`, that is the working directory.
        min_images: keep classes with at least this many images, all splits together (0: even those with none).
        fractions: (train, val, test), summing to 1: ignore the `split` column, divide all images at random.
        unlabeled: images without a label (that is left): "error", "drop", or "keep" as all negative.
        zero: "absent" or "unknown", in a table that also holds -1.
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: wrong options, or all that is wrong with labels.csv and classes.txt. Images without a label are a
            problem that `assemble` raises.
    """
    root = find(root, table.FORM)
    _check_options(min_images, fractions)
    check_choice("unlabeled", unlabeled, POLICIES)
    check_choice("zero", zero, (None, *table.ZERO))
    if not (root / "labels.csv").is_file():
        raise DataError(
            f"there is no {root / 'labels.csv'}. {table.FORM}\n{contents(root, root / 'labels.csv')}"
        )
    named = _read_classes(root / "classes.txt")
    content = table.read(root / "labels.csv", named, zero, any_split=fractions is not None)
    rows = content.rows
    division = _divide(rows, fractions, content.has_split)
    counts = Counter(label for row in rows for label in row.labels)
    unsure = set().union(*(row.unknown for row in rows)) - {"*"}
    names = sorted({*counts, *unsure, *content.columns}) if named is None else named
    classes = [name for name in names if counts[name] >= min_images]
    if not classes:
        top = counts.most_common(1)
        most = f"the largest, {top[0][0]!r}, has {top[0][1]}" if top else "no row has a label"
        raise DataError(f"no class has min_images={min_images} images in labels.csv: {most}")

    place = {name: c for c, name in enumerate(classes)}
    full = np.zeros((len(rows), len(classes)), np.int8)
    known = np.ones(full.shape, bool)
    for n, row in enumerate(rows):
        full[n, [place[name] for name in row.labels if name in place]] = 1
        known[n, [place[name] for name in row.unknown if name in place]] = False
        if "*" in row.unknown:
            known[n] = full[n] == 1
    dropped = len(names) - len(classes)
    options = {"min_images": min_images, "fractions": fractions and list(fractions), "unlabeled": unlabeled}
    listing = Listing(
        name=root.resolve().name,
        classes=tuple(classes),
        paths=[root / row.image for row in rows],
        ids=[row.image for row in rows],
        splits=[row.split for row in rows],
        full=full,
        known=None if known.all() else known,
        options=options | ({} if zero is None else {"zero": zero}),
        notes={"division": division, "classes_dropped": dropped},
        lines=[row.line for row in rows],
        divided=division.endswith(f"seed {SPLIT_SEED}") and fractions is None,
    )
    listing.extra = find_extra([root], listing.paths)
    _look_at_classes(listing)
    cause = f" once min_images={min_images} has taken {words.count(dropped, 'class')} away" if dropped else ""
    listing = apply_policy(listing, unlabeled, cause)
    if allow_missing:
        listing.options["allow_missing"] = True
        listing = drop_missing(listing)
    return listing


def load(
    root: str | Path,
    *,
    size: int = 224,
    min_images: int = 1,
    fractions: Sequence[float] | None = None,
    unlabeled: str = "error",
    zero: str | None = None,
    allow_missing: bool = False,
    backbone: str | None = None,
    cache_dir: str | Path = "runs/cache",
) -> Dataset:
    """`read`, then `listing.assemble`: a data set named after the folder."""
    if size < 1:
        raise OptionError(f"size={size}: the side of the images in pixels, at least 1")
    listing = read(
        root,
        min_images=min_images,
        fractions=fractions,
        unlabeled=unlabeled,
        zero=zero,
        allow_missing=allow_missing,
    )
    for text in listing.odd:
        warnings.warn(text, stacklevel=2)
    return assemble(listing, size=size, backbone=backbone, cache_dir=cache_dir)


def _check_options(min_images, fractions) -> None:
    if min_images < 0:
        raise OptionError(f"min_images={min_images}: expected a number of images, >= 0")
    if fractions is None:
        return
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise OptionError(f"fractions={fractions}: expected (train, val, test), each >= 0, summing to 1")


def _read_classes(file: Path) -> list[str] | None:
    if not file.is_file():
        return None
    try:
        names = [name for line in file.read_text("utf-8-sig").splitlines() if (name := table.normal(line))]
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text ({error})") from None
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{file} names {', '.join(map(repr, twice))} more than once")
    return names


def _divide(rows: list[table.Row], fractions, has_split: bool) -> str:
    """Set every row's split; returns how that was done, in words."""
    if fractions is not None:
        order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))  # same in every numpy
        num_val, num_test = (int(len(rows) * fraction + 1e-9) for fraction in fractions[1:])
        for place, n in enumerate(order):
            rows[n].split = "val" if place < num_val else "test" if place < num_val + num_test else "train"
        return f"fractions {'/'.join(map(str, fractions))}, seed {SPLIT_SEED}"
    source = "split column" if has_split else "no split column"
    train = [row for row in rows if row.split == "train"]
    if len(train) < 2 or any(row.split == "val" for row in rows):
        return source
    for n in labels.split(len(train), VAL_FRACTION, SPLIT_SEED)[1]:
        train[n].split = "val"
    return f"{source}, {VAL_FRACTION:.0%} of train as validation, seed {SPLIT_SEED}"


def _look_at_classes(listing: Listing) -> None:
    """Name classes that are probably one, and a data set of a single class."""
    alike: dict[str, list[str]] = {}
    for name in listing.classes:
        alike.setdefault(_plain(name), []).append(name)
    for name in list(alike):  # dog and dogs
        if (one := next((one for one in _singulars(name) if one in alike and one != name), None)) is not None:
            alike[one] += alike.pop(name)
    if groups := [sorted(names) for names in alike.values() if len(names) > 1]:
        listing.notes["similar_classes"] = groups
        shown = words.listed([" / ".join(map(repr, names)) for names in groups], images.SHOWN)
        differ = "group of classes differs" if len(groups) == 1 else "groups of classes differ"
        listing.odd.append(
            f"{len(groups)} {differ} in case, blanks, hyphens, accents or a plural ending only: {shown}. Where they "
            "are one class, give them one name in labels.csv."
        )
    if len(listing.classes) == 1:
        listing.odd.append(
            f"only one class is left, {listing.classes[0]!r}: multi-label methods compare several (min_images="
            f"{listing.options['min_images']})"
        )


def _plain(name: str) -> str:
    """A class name without what is easily typed in two ways."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join("".join(letters).casefold().replace("-", " ").replace("_", " ").split())


def _singulars(name: str) -> list[str]:
    """What the name would be a plural of, in English."""
    if len(name) < 4 or name.endswith("ss") or not name.endswith("s"):
        return []
    found = [name[:-1]]
    if name.endswith(("ches", "shes", "ses", "xes", "oes")):
        found.append(name[:-2])
    if name.endswith("ies"):
        found.append(f"{name[:-3]}y")
    return found
