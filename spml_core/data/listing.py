"""`Listing`: the content of a data set's label files, before any pixel is read; see `assemble.assemble`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from spml_core import words
from spml_core.data import labels
from spml_core.data.dataset import SPLITS, DataError, Part
from spml_core.data.files import decoding, table

# The published protocol draws validation from the official train images.
SPLIT_SEED, VAL_FRACTION = 1200, 0.2
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm"}


@dataclass
class Listing:
    """The images of a data set and their labels, one row per image, in the order of the published protocol.

    Attributes:
        name: of the data set.
        classes: C class names.
        paths: N image files. They need not exist: `assemble` and `spml data check` test that.
        ids: N image ids, unique; label draws depend on them.
        splits: N of "train", "val", "test".
        full: (N, C) int8 in {1, 0}: the truth, 0 where it is not known.
        known: (N, C) bool, where the truth is known. None = everywhere.
        options: the loader's options that choose labels and images, as JSON; part of the fingerprint.
        notes: what a run records about the data, as JSON: counts and policies.
        extra: image files in the data set's folders that no row names.
        divided: val was drawn from the official train images (`Part.rows`).
        problems: sentences about what makes training on these labels wrong; `assemble` raises them together with what
            is wrong with the files.
        odd: sentences about what is worth knowing before training.
        lines: N line numbers in `table`. None = the rows are not the lines of one file.
        table: name of the label file that has one line per image.
        published: split, as the data set is published, -> {"expected": images of it, "here": images listed here}.
        size: default side of the square images, pixels.
    """

    name: str
    classes: tuple[str, ...]
    paths: list[Path]
    ids: list[str]
    splits: list[str]
    full: np.ndarray
    known: np.ndarray | None = None
    options: dict = field(default_factory=dict)
    notes: dict = field(default_factory=dict)
    extra: list[Path] = field(default_factory=list)
    divided: bool = False
    problems: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    lines: list[int] | None = None
    table: str = "labels.csv"
    published: dict[str, dict[str, int]] = field(default_factory=dict)
    size: int = 448

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int]) -> Listing:
        """Return a listing with only these rows, in this order."""
        rows = np.asarray(rows, np.int64)
        if len(rows) == len(self) and (np.diff(rows) == 1).all():
            return replace(self)  # labels may take gigabytes: no copy
        chosen = {name: [getattr(self, name)[n] for n in rows] for name in ("paths", "ids", "splits")}
        known = None if self.known is None else self.known[rows]
        lines = None if self.lines is None else [self.lines[n] for n in rows]
        return replace(self, **chosen, full=self.full[rows], known=known, lines=lines)

    def members(self) -> dict[str, np.ndarray]:
        """Return the rows of each split that has images."""
        splits = np.array(self.splits)
        found = {split: np.flatnonzero(splits == split) for split in SPLITS}
        return {split: rows for split, rows in found.items() if len(rows)}

    def part(self, split: str, inputs=None) -> Part:
        """Return the labels of a split with its inputs."""
        rows = self.members()[split]
        known = None if self.known is None else self.known[rows]
        source = rows if self.divided and split != "test" else None
        return Part(inputs, self.full[rows], tuple(self.ids[n] for n in rows), known, source)

    def files(self) -> list[Path]:
        """Return the image files by split."""
        return [self.paths[n] for rows in self.members().values() for n in rows]

    def where(self, row: int) -> str:
        """Return a name of a row by which it can be found in the label files."""
        image = self.ids[row]
        return image if self.lines is None else f"{self.table} line {self.lines[row]} ({image})"

    def missing(self) -> list[int]:
        """Return the rows whose file does not exist; lists each folder once instead of testing every file."""
        folders = {path.parent for path in self.paths}
        names = {folder: set(os.listdir(folder)) if folder.is_dir() else set() for folder in folders}
        return [n for n, path in enumerate(self.paths) if path.name not in names[path.parent]]

    def file_problems(self) -> tuple[list[str], list[Path]]:
        """Return messages about missing and empty files, and the paths of all other files."""
        missing = [self.paths[n] for n in self.missing()]
        gone = set(missing)
        there = [path for path in self.paths if path not in gone]
        empty = [path for path in there if not path.stat().st_size]
        problems = []
        if missing:
            counted = words.some(len(missing), len(self), "image")
            problems.append(f"{counted} missing:{table.bullets(missing)}")
        if empty:
            counted = words.some(len(empty), len(self), "image", "is an empty file", "are empty files")
            problems.append(f"{counted} (0 bytes):{table.bullets(empty)}")
        if problems:
            problems.append(f"{decoding.REMEDY} {decoding.ALLOW_MISSING}" if missing else decoding.REMEDY)
        gone.update(empty)
        return problems, [path for path in there if path not in gone]


def finish(
    listing: Listing,
    *,
    divide: bool,
    unlabeled: str,
    allow_missing: bool = False,
    published: Mapping[str, int] | None = None,
    cause: str = "",
) -> Listing:
    """Return the finished listing: compare sizes, draw the validation images, apply the policies, note the counts.

    Args:
        divide: draw 20 % of the train images as validation (`labels.split`, seed 1200), as published, before the
            policies remove any image.
        unlabeled: images without a positive label: "error" (a problem, raised by `assemble`), "drop", or "keep".
        allow_missing: leave out the images whose file is missing, instead of raising an error.
        published: split ("train" before validation is drawn from it) -> number of images in the published data set.
        cause: why there may be more images without a label than expected.
    """
    _compare(listing, published or {})
    train = [n for n, split in enumerate(listing.splits) if split == "train"]
    if divide and len(train) > 2:
        for n in labels.split(len(train), VAL_FRACTION, SPLIT_SEED)[1]:
            listing.splits[train[n]] = "val"
        listing.divided = True
        division = f"{VAL_FRACTION:.0%} of train as validation, seed {SPLIT_SEED}"
        listing.notes["division"] = ", ".join(filter(None, (listing.notes.get("division"), division)))
    listing = _apply_policy(listing, unlabeled, cause)
    listing.options |= {"allow_missing": allow_missing}
    return _drop_missing(listing) if allow_missing else listing


def _compare(listing: Listing, published: Mapping[str, int]) -> None:
    here = {split: listing.splits.count(split) for split in published}
    listing.published = {k: {"expected": whole, "here": here[k]} for k, whole in published.items()}
    if other := [split for split, whole in published.items() if here[split] != whole]:
        found = "; ".join(f"{published[k]:,} {k} expected, {here[k]:,} here" for k in other)
        of = f"the published {listing.name}"
        listing.odd.append(f"not {of}: {found}. Results on it are not comparable with published ones.")
        listing.notes["not_as_published"] = found


def _apply_policy(listing: Listing, unlabeled: str, cause: str) -> Listing:
    labeled = listing.full.any(1)
    empty = np.flatnonzero(~labeled)
    counts = {split: sum(listing.splits[n] == split for n in empty) for split in SPLITS}
    listing.options |= {"unlabeled": unlabeled}
    listing.notes |= {"unlabeled": unlabeled, "images_without_label": counts}
    if unlabeled == "error" and len(empty):
        counted = words.some(len(empty), len(listing), "image", "has", "have")
        shown = empty if listing.lines is None else sorted(empty, key=listing.lines.__getitem__)
        listing.problems.append(
            f"{counted} no label{cause}:{table.bullets(map(listing.where, shown))}\n"
            "Choose the option `unlabeled`: drop leaves them out, keep takes them as all negative, error stops here "
            "(spml train: -d unlabeled drop)."
        )
    if unlabeled == "drop":
        listing = listing.select(np.flatnonzero(labeled))
    return listing


def _drop_missing(listing: Listing) -> Listing:
    missing = listing.missing()
    ids = [listing.ids[n] for n in missing]
    listing.notes["missing_images"] = {"count": len(ids), "of": len(listing), "first": ids[: table.SHOWN]}
    return listing.select(sorted(set(range(len(listing))) - set(missing)))


def find_extra(folders: Sequence[Path], named: Sequence[Path]) -> list[Path]:
    """Return the image files below `folders` that are not among `named`, sorted."""
    known = {str(path) for path in named}
    found = (image for folder in folders for image in images_below(folder))
    return sorted(Path(image) for image in found if image not in known)


def images_below(folder: Path) -> Iterator[str]:
    """Yield the image files below a folder: those in it, by name, then those of each folder in it."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        names = sorted(name for name in files if os.path.splitext(name)[1].lower() in SUFFIXES)
        yield from (os.path.join(parent, name) for name in names)


def check_classes(
    where: Path, found: int, expected: int, data_set: str, strange: Collection[str] = ()
) -> None:
    """Raise `DataError` if a file has other classes than the published data set.

    Args:
        found, expected: numbers of classes.
        data_set: its name in the literature.
        strange: names that only one of the two has.
    """
    if found != expected or strange:
        only = f", and these are in only one of them: {words.listed(sorted(strange), 10)}" if strange else ""
        raise DataError(
            f"{where} has {words.count(found, 'class')}, {data_set} has {expected}{only}. This is another version of "
            f"the data set."
        )
