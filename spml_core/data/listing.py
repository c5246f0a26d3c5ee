"""`Listing`: what a data set's label files say, before any pixel is read; `assemble` makes it a `Dataset`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from spml_core import words
from spml_core.data import DataError, Dataset, OptionError, Part, labels
from spml_core.data.files import images, loading
from spml_core.paths import locate

SPLITS = ("train", "val", "test")
IN_MEMORY = 2 * 2**30  # bytes of decoded images held at most; above it they are decoded batch by batch
CHECKED = 10_000  # files decoded to complete a report of other faults
# Of the published protocol: validation drawn from the official train images.
SPLIT_SEED, VAL_FRACTION = 1200, 0.2
POLICIES = ("error", "drop", "keep")
SETTLED = 2 * 10**9  # nanoseconds after which a later edit shows in a file's times, on every file system
WORTH = 100 * 2**20  # bytes of files whose digests are kept; fewer are read in a moment
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm"}


@dataclass
class Listing:
    """The images of a data set and their labels, one row an image, in the order of the published protocol.

    Attributes:
        name: of the data set.
        classes: C class names.
        paths: N image files. They need not exist: `assemble`, and `spml data check`, look.
        ids: N image ids, unique; label draws depend on them.
        splits: N of "train", "val", "test".
        full: (N, C) int8 in {1, 0}: the truth, 0 where it is not known.
        known: (N, C) bool, where the truth is known. None = everywhere.
        options: of the loader, those that choose labels and images; part of the fingerprint, as JSON.
        notes: what a run records about the data, as JSON: counts and policies.
        extra: image files in the data set's folders that no row names.
        left_out: image files of rows that the options took away; features are computed for them too, so that other
            options reuse them.
        divided: val was drawn from the official train images (`Part.rows`).
        problems: what makes training on these labels wrong, a text each; `assemble` raises them together with what
            is wrong with the files.
        odd: what is worth knowing before training, a text each.
        lines: N lines of labels.csv, where the rows are from one. None = the label files have no line an image.
        published: split, as the data set is published, -> (images listed here, images of the whole data set).
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
    left_out: list[Path] = field(default_factory=list)
    divided: bool = False
    problems: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    lines: list[int] | None = None
    published: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int], **changes) -> Listing:
        """The same with these rows only, in this order; `changes` replace other fields."""
        rows = np.asarray(rows, np.int64)
        if len(rows) == len(self) and (np.diff(rows) == 1).all():
            return replace(self, **changes)  # labels may take gigabytes: no copy
        chosen = {name: [getattr(self, name)[n] for n in rows] for name in ("paths", "ids", "splits")}
        known = None if self.known is None else self.known[rows]
        lines = None if self.lines is None else [self.lines[n] for n in rows]
        return replace(self, **chosen, full=self.full[rows], known=known, lines=lines, **changes)

    def where(self, row: int) -> str:
        """A row in words, so that it is found in the label files."""
        return self.ids[row] if self.lines is None else f"labels.csv line {self.lines[row]} ({self.ids[row]})"

    def missing(self) -> list[int]:
        """Rows whose file does not exist; one look into each folder, not at each file."""
        names: dict[Path, set[str]] = {}
        for folder in {path.parent for path in self.paths}:
            names[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
        return [n for n, path in enumerate(self.paths) if path.name not in names[path.parent]]


def finish(listing: Listing, *, divide: bool, unlabeled: str, allow_missing: bool = False) -> Listing:
    """What every loader does last: draw the validation images, then apply the policies, and note the counts.

    Args:
        divide: draw 20 % of the train images as validation (`labels.split`, seed 1200), as published, before the
            policies take any image away.
        unlabeled: images without a positive label: "error" (a problem, raised by `assemble`), "drop", or "keep".
        allow_missing: leave out the images whose file is missing, in place of an error.
    """
    check_choice("unlabeled", unlabeled, POLICIES)
    train = [n for n, split in enumerate(listing.splits) if split == "train"]
    if divide and len(train) > 2:
        for n in labels.split(len(train), VAL_FRACTION, SPLIT_SEED)[1]:
            listing.splits[train[n]] = "val"
        listing.divided = True
        division = f"{VAL_FRACTION:.0%} of train as validation, seed {SPLIT_SEED}"
        listing.notes["division"] = ", ".join(filter(None, (listing.notes.get("division"), division)))
    listing = apply_policy(listing, unlabeled)
    listing.options |= {"allow_missing": allow_missing}
    return drop_missing(listing) if allow_missing else listing


def apply_policy(listing: Listing, unlabeled: str, cause: str = "") -> Listing:
    """Report, drop or keep the images without a positive label; `cause` says why there may be more than expected."""
    labeled = listing.full.any(1)
    empty = np.flatnonzero(~labeled)
    counts = {split: sum(listing.splits[n] == split for n in empty) for split in SPLITS}
    listing.options |= {"unlabeled": unlabeled}
    listing.notes |= {"unlabeled": unlabeled, "images_without_label": counts}
    if unlabeled == "error" and len(empty):
        counted = words.some(len(empty), len(listing), "image", "has", "have")
        shown = empty if listing.lines is None else sorted(empty, key=listing.lines.__getitem__)
        listing.problems.append(
            f"{counted} no label{cause}:{images.listing([listing.where(n) for n in shown])}\n"
            "Choose the option `unlabeled`: drop leaves them out, keep takes them as all negative, error stops here "
            "(spml train: -d unlabeled drop)."
        )
    if unlabeled == "drop":
        listing.left_out += [listing.paths[n] for n in empty]
        listing = listing.select(np.flatnonzero(labeled))
    return listing


def complete(listing: Listing, *, least: float = 1.0, **sizes: int) -> Listing:
    """Compare the images listed, before any policy, with the size of the published data set.

    Args:
        least: share of the published number that is still called complete, where options choose images.
        sizes: split ("train" before validation is drawn from it) -> images of the whole data set.
    """
    listing.published = {split: (listing.splits.count(split), whole) for split, whole in sizes.items()}
    other = {k: (n, whole) for k, (n, whole) in listing.published.items() if n > whole or n < least * whole}
    if other:
        found = "; ".join(f"{whole:,} {split} expected, {n:,} here" for split, (n, whole) in other.items())
        of = f"the published {listing.name}"
        listing.odd.append(f"not {of}: {found}. Results on it are not comparable with published ones.")
        listing.notes["not_as_published"] = found
    return listing


def drop_missing(listing: Listing) -> Listing:
    """The rows whose file exists; notes say how many were left out, and which first."""
    missing = listing.missing()
    ids = [listing.ids[n] for n in missing]
    left_out = [path for path in listing.left_out if path.is_file()]
    listing.notes["missing_images"] = {"count": len(ids), "of": len(listing), "first": ids[: images.SHOWN]}
    return listing.select(sorted(set(range(len(listing))) - set(missing)), left_out=left_out)


def find_extra(folders: Sequence[Path], named: Sequence[Path]) -> list[Path]:
    """Image files below `folders` that are not among `named`, sorted."""
    known = {str(path) for path in named}
    found = []
    for folder in folders:
        for parent, _, files in os.walk(folder):
            found += [path for name in files if (path := os.path.join(parent, name)) not in known]
    return sorted(Path(path) for path in found if os.path.splitext(path)[1].lower() in SUFFIXES)


def check_choice(option: str, value, allowed: Sequence[str]) -> None:
    """Raise `OptionError` if an option has a value it cannot have."""
    if value not in allowed:
        hint = words.did_you_mean(value, filter(None, allowed), 1, 0.6) if isinstance(value, str) else ""
        raise OptionError(
            f"unknown value {option}={value!r}: use one of {', '.join(map(str, allowed))}{f'; {hint}' if hint else ''}"
        )


def assemble(
    listing: Listing,
    *,
    size: int,
    backbone: str | None = None,
    cache_dir: str | Path = "runs/cache",
    prepared: bool = True,
) -> Dataset:
    """Give the rows of a listing their inputs.

    Inputs are, in this order: frozen features, if `backbone` is given; the prepared pixels of these files, if
    `spml data prepare` made them; else the files, decoded into memory if they take at most 2 GiB there, and batch by
    batch if not.

    Args:
        size: side of the square images, pixels; see `images.decode`.
        backbone: a timm model for frozen features (`features.extract`), None for images.
        cache_dir: where features, prepared pixels and the digests of files are kept.
        prepared: False ignores prepared pixels.

    Returns:
        Dataset with a part for each split that has images: uint8 inputs (N, 3, size, size), or (N, D) float32. The
        fingerprint covers options, labels and the content of every file used, not where they lie.

    Raises:
        DataError: the listing's problems, no train or val images, missing, empty and unreadable files, in one report.
    """
    if size < 1:
        raise OptionError(f"size={size}: the side of the images in pixels, at least 1")
    cache_dir = locate(cache_dir)
    _check(listing)
    members = {split: [n for n, own in enumerate(listing.splits) if own == split] for split in SPLITS}
    members = {split: rows for split, rows in members.items() if rows}
    order = [n for rows in members.values() for n in rows]
    paths = [listing.paths[n] for n in order]
    digests = digest(paths, cache_dir)

    weights = None
    if backbone is None:
        inputs, origin = _pixels(paths, list(digests.values()), size, cache_dir, prepared)
    else:
        from spml_core.data.files import features

        weights = features.weights_id(backbone)
        spare = [path for path in listing.left_out if path.is_file()]
        everything = sorted([*paths, *spare], key=Path.as_posix)
        digests = digest(everything, cache_dir)
        computed = features.extract(
            everything,
            backbone=backbone,
            size=size,
            cache_dir=cache_dir,
            digests=[digests[path] for path in everything],
        )
        place = {path: n for n, path in enumerate(everything)}
        chosen = torch.tensor([place[path] for path in paths])
        large = computed.nbytes > IN_MEMORY
        inputs = loading.Rows(computed, chosen) if large else computed.index_select(0, chosen)
        origin = f"features of {backbone} at {size} pixels (cached)"

    parts, start = {}, 0
    for split, rows in members.items():
        known = None if listing.known is None else listing.known[rows]
        ids = tuple(listing.ids[n] for n in rows)
        piece = inputs[start : start + len(rows)]
        source = np.array(rows) if listing.divided and split != "test" else None
        parts[split] = Part(piece, listing.full[rows], ids, known, source)
        start += len(rows)
    options = {"size": size} | listing.options | {"backbone": backbone}
    notes = options | {"images": {split: len(rows) for split, rows in members.items()}} | listing.notes
    notes["inputs"] = origin
    notes["duplicate_images"] = len(paths) - len({digests[path] for path in paths})
    fingerprint = _fingerprint(listing, order, [options, weights, images.RULE], [digests[p] for p in paths])
    return Dataset(listing.name, listing.classes, parts, fingerprint, notes)


def digest(paths: Sequence[Path], cache_dir: Path) -> dict[Path, str]:
    """SHA-256 of each file's content (`images.digest`), kept in `cache_dir` so that a large data set is read once.

    A file is read again when its size or one of its times differs, or was so young when it was read that an edit
    could have left both as they were.
    """
    if not paths:
        return {}
    root = os.path.commonpath([path.parent for path in paths])
    file = cache_dir / f"digests-{hashlib.sha256(root.encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):  # none yet, or not whole: it is made again
        kept = {}
    now, states = time.time_ns(), {}
    for path in paths:
        found = path.stat()
        states[path] = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    todo = [path for path in paths if kept.get(str(path), [None])[:-1] != states[path]]
    bar = {"desc": "read images", "total": len(todo), "unit": " images", "leave": False, "disable": None}
    with ThreadPool() as pool:
        fresh = dict(zip(todo, tqdm(pool.imap(images.digest, todo), **bar), strict=True))
    settled = [path for path in todo if now - max(states[path][1:]) > SETTLED]
    if sum(states[path][0] for path in settled) > WORTH:
        kept |= {str(path): [*states[path], fresh[path]] for path in settled}
        cache_dir.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(kept))
        os.replace(draft, file)
    return {path: fresh[path] if path in fresh else kept[str(path)][-1] for path in paths}


def _pixels(paths, digests, size: int, cache_dir: Path, prepared: bool):
    """The pixels, and where they are from, in words."""
    if prepared:
        from spml_core.data.files import pixels

        found = pixels.find_file(digests, size, cache_dir)
        if found is not None:
            return found[1], f"pixels prepared at {size} ({found[0].name})"
    if 3 * size**2 * len(paths) > IN_MEMORY:
        return images.Files(paths, size), f"decoded from files at {size} pixels, batch by batch"
    return images.read(paths, size), f"decoded from files at {size} pixels, into memory"


def _check(listing: Listing) -> None:
    """Raise all that is wrong in one report."""
    problems = list(listing.problems)
    for split in ("train", "val"):
        if split not in listing.splits:
            division = listing.notes.get("division", "as the data set divides them")
            problems.append(f"no {split} images ({division}): add rows, or divide otherwise.")
    missing = set(listing.missing())
    there = [path for n, path in enumerate(listing.paths) if n not in missing]
    empty = [str(path) for path in there if not path.stat().st_size]
    if missing:
        names = [str(listing.paths[n]) for n in sorted(missing)]
        counted = words.some(len(missing), len(listing), "image")
        problems.append(f"{counted} missing:{images.listing(names)}")
    if empty:
        counted = words.some(len(empty), len(listing), "image", "is an empty file", "are empty files")
        problems.append(f"{counted} (0 bytes):{images.listing(empty)}")
    if missing or empty:
        problems.append(images.REMEDY)
    if not problems:
        return
    if len(there) <= CHECKED:
        try:
            images.check([path for path in there if path.stat().st_size])
        except DataError as error:
            problems.append(str(error))
    raise DataError("\n".join(problems))


def _fingerprint(listing: Listing, order: list[int], head: list, digests: list[str]) -> str:
    """SHA-256 over JSON that is never whole in memory."""
    content = hashlib.sha256()
    content.update(json.dumps([*head, list(listing.classes)])[:-1].encode() + b", [")
    for place, (n, file) in enumerate(zip(order, digests, strict=True)):
        row = [listing.ids[n], listing.splits[n], _names(listing, listing.full[n]), file]
        if listing.known is not None:
            row.append(_names(listing, ~listing.known[n]))
        content.update(b", " * (place > 0) + json.dumps(row).encode())
    content.update(b"]]")
    return content.hexdigest()


def _names(listing: Listing, row: np.ndarray) -> list[str]:
    return sorted(listing.classes[c] for c in np.flatnonzero(row))
