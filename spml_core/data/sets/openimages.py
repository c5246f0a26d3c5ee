"""`openimages`: image-level labels of Open Images (Kuznetsova et al., IJCV 2020), verified by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm.auto import tqdm

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table
from spml_core.data.files.layout import contents, find
from spml_core.data.listing import Listing, find_extra, finish

FOLDERS = {"train": "train", "validation": "val", "test": "test"}
COLUMNS = ["ImageID", "LabelName", "Confidence"]
CHUNK = 1_000_000  # rows of a label file in memory as text
DENSE = 16 * 2**30  # bytes of the label matrices at most
# Images as published. Those with a label that people verified are fewer, so a quarter of them passes as all.
SIZES = {"train": 9_011_219, "val": 41_620, "test": 125_436}
EXPECTED = (
    "Expected: {train,validation,test}-annotations-human-imagelabels.csv (ImageID,Source,LabelName,Confidence), "
    "class-descriptions.csv (LabelName,DisplayName), each with any prefix or suffix, and the folders train/, "
    "validation/ and test/ of images. See data/README.md."
)


@dataclass
class _Merged:
    images: np.ndarray  # ids of the images with a verified label, sorted, as bytes
    image: np.ndarray  # of each label: number of its image,
    label: np.ndarray  # number of its class,
    value: np.ndarray  # 1 or 0
    clashes: list[tuple[bytes, int]]  # (image id, class) verified both ways


def read(
    root: str | Path,
    *,
    classes: Sequence[str] | None = None,
    min_images: int = 1,
    machine_threshold: float | None = None,
    conflicts: Literal["error", "unknown"] = "error",
    unlabeled: Literal["error", "drop", "keep"] = "drop",
    allow_missing: bool = False,
) -> Listing:
    """Read the label files: confidence 1 is a positive, 0 a verified negative, everything else is not known.

    The images are those with a label of the chosen classes, sorted by id within train, validation (val) and test;
    without a validation file 20 % of train become val. Missing images are common: see `allow_missing`.

    Memory: label files are read in pieces of a million rows. Kept are about 130 bytes for each label of the chosen
    classes while they are merged, an id and a path (about 1 kB) for each image, and two dense matrices of one
    byte an image and class, `full` and `known`. No float matrix is made. A million images with 5,000 classes take
    10 GB, twice that while `allow_missing` selects from them; above 16 GiB the loader stops before it allocates them
    and asks for fewer classes.

    Args:
        root: the folder; a relative one starts at the project root.
        classes: display names or label names (/m/...) to keep. None = all that are verified on some image.
        min_images: keep classes with this many positive training images.
        machine_threshold: count a machine label of at least this confidence as positive where no person looked.
            None = machine labels stay unknown, their files are not read.
        conflicts: the same image and label verified as present and as absent: "error" (a problem raised by
            `assemble`, the label is unknown until then), or "unknown".
        unlabeled: images without a positive: "drop", "keep" or "error".
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: missing or ambiguous label files, unknown classes, other columns, too many classes for memory.
    """
    root = find(root, EXPECTED)
    display = _descriptions(_find(root, "class-descriptions", required=True))
    wanted = None if classes is None else _choose(display, classes)
    files = {
        split: _find(root, f"{split}-annotations-human-imagelabels", split == "train") for split in FOLDERS
    }
    tables, unsure = {}, 0  # of each split: people's labels, and the machine's if they count
    for split, file in files.items():
        if file is None:
            continue
        human, rejected = _rows(file, wanted, None)
        machine = None
        if machine_threshold is not None:
            found = _find(root, f"{split}-annotations-machine-imagelabels", required=True)
            machine, _ = _rows(found, wanted, machine_threshold)
        tables[split] = (human, machine)
        unsure += rejected
    names = np.unique(
        np.concatenate([part[1] for pair in tables.values() for part in pair if part is not None])
    )
    merged = {split: _merge(*pair, names) for split, pair in tables.items()}
    del tables

    train = merged["train"]
    counts = np.bincount(train.label[train.value == 1], minlength=len(names))
    kept = np.flatnonzero(counts >= min_images)
    if not len(kept):
        raise DataError(
            f"no class has min_images={min_images} positive training images; most: {counts.max(initial=0)}"
        )
    column = np.full(len(names), -1)
    column[kept] = np.arange(len(kept))
    dropped = sum(_drop_unlabeled(part, column) for part in merged.values()) if unlabeled == "drop" else 0
    rows = sum(len(part.images) for part in merged.values())
    if (size := 2 * rows * len(kept)) > DENSE:
        raise DataError(
            f"{rows:,} images x {len(kept):,} classes need {size / 2**30:.0f} GiB, more than {DENSE / 2**30:.0f}: "
            "choose classes, or a higher min_images"
        )
    full, known = np.zeros((rows, len(kept)), np.int8), np.zeros((rows, len(kept)), bool)
    labels = [name.decode() for name in names]
    ids, splits, paths, clashes = [], [], [], []
    for split, part in merged.items():
        place, own = part.image + len(ids), column[part.label]
        chosen = own >= 0
        full[place[chosen], own[chosen]] = part.value[chosen]
        known[place[chosen], own[chosen]] = True
        texts = [image.decode() for image in part.images]
        clashes += [f"{image.decode()}: {display.get(labels[c], labels[c])}" for image, c in part.clashes]
        ids += texts
        splits += [FOLDERS[split]] * len(texts)
        paths += [root / split / f"{text}.jpg" for text in texts]
    listing = Listing(
        name="openimages",
        classes=_shown([labels[c] for c in kept], display),
        paths=paths,
        ids=ids,
        splits=splits,
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
            "neither_0_nor_1": unsure,
            "classes_dropped": len(names) - len(kept),
            "unlabeled_dropped": dropped,
        },
        extra=find_extra([root / split for split in merged], paths),
    )
    if clashes and conflicts == "error":
        listing.problems.append(
            f"{words.count(len(clashes), 'label')} verified both as present and as absent:{table.bullets(clashes)}\n"
            "conflicts='unknown' takes them as not known (spml train: -d conflicts unknown)."
        )
    # Where options choose classes, a part is what was asked for.
    whole = (
        {split: n for split, n in SIZES.items() if split in splits}
        if classes is None and min_images == 1
        else None
    )
    return finish(
        listing,
        divide="val" not in splits,
        unlabeled=unlabeled,
        allow_missing=allow_missing,
        published=whole,
        least=0.25,
    )


def _find(root: Path, part: str, required: bool) -> Path | None:
    """Return the one CSV file whose name contains `part`, in `root` or one folder below it."""
    found = sorted({*root.glob(f"*{part}*.csv"), *root.glob(f"*/*{part}*.csv")})
    if len(found) > 1:
        raise DataError(
            f"{len(found)} files are {part}:{table.bullets([str(file) for file in found])}\nKeep the one to be read."
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
    """Return the label names of the classes asked for by either name."""
    if isinstance(classes, str):
        raise DataError(f"classes={classes!r}: expected a list of names")
    by_name: dict[str, list[str]] = {}
    for label, shown in display.items():
        by_name.setdefault(shown, []).append(label)
    chosen, strange = set(), []
    for name in classes:
        labels = [name] if name in display else by_name.get(name, [])
        chosen.update(labels)
        if len(labels) != 1:
            strange.append(f"{name!r} is the name of {len(labels)} classes")
    if strange:
        raise DataError(f"{len(strange)} of the classes asked for are not one class:{table.bullets(strange)}")
    return chosen


def _rows(file: Path, wanted: set[str] | None, threshold: float | None):
    """Return (image ids, label names, values) of the rows that say something, and how many say neither 0 nor 1.

    Ids and names as arrays of bytes, values int8: 1 or 0; with a threshold: 1 where the confidence reaches it.
    """
    import pandas as pd

    pieces, rejected = [], 0
    try:
        chunks = pd.read_csv(file, chunksize=CHUNK, dtype={"ImageID": str, "LabelName": str})
        for chunk in tqdm(chunks, file.name, unit=" M rows", leave=False, disable=None):
            if missing := [name for name in COLUMNS if name not in chunk]:
                raise DataError(f"{file} has no column {' and '.join(missing)}. {EXPECTED}")
            if wanted is not None:
                chunk = chunk[chunk["LabelName"].isin(wanted)]
            confidence = chunk["Confidence"].to_numpy(np.float32)
            sure = np.isin(confidence, (0, 1)) if threshold is None else confidence >= threshold
            if threshold is None and "Source" in chunk:
                sure &= ~chunk["Source"].eq("machine").to_numpy()
            rejected += int((~sure).sum())
            text = [chunk[name][sure].to_numpy().astype("S") for name in COLUMNS[:2]]
            pieces.append((*text, (confidence[sure] > 0).astype(np.int8)))
    except DataError:
        raise
    except ValueError as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{file} cannot be read as a table ({error}). {EXPECTED}") from None
    return tuple(np.concatenate([piece[k] for piece in pieces]) for k in range(3)), rejected


def _merge(human, machine, names: np.ndarray) -> _Merged:
    """Keep one value for each (image, label): people's, else the machine's; none where people disagree."""
    pictures, number = np.unique(human[0], return_inverse=True)
    key = number * len(names) + np.searchsorted(names, human[1])
    pairs, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    value = human[2][first]
    positive = np.bincount(inverse, human[2], len(pairs))
    clash = (positive > 0) & (positive < np.bincount(inverse, minlength=len(pairs)))
    clashes = [(pictures[n], c) for n, c in zip(*np.divmod(pairs[clash], len(names)), strict=True)]
    verified, pairs, value = pairs, pairs[~clash], value[~clash]
    if machine is not None:
        listed = np.isin(machine[0], pictures)
        key = np.searchsorted(pictures, machine[0][listed]) * len(names)
        more = np.setdiff1d(key + np.searchsorted(names, machine[1][listed]), verified)
        pairs, value = np.append(pairs, more), np.append(value, np.ones(len(more), np.int8))
    image, label = np.divmod(pairs, len(names))
    return _Merged(pictures, image, label, value, clashes)


def _drop_unlabeled(part: _Merged, column: np.ndarray) -> int:
    """Take away the images without a positive of the kept classes, before there is a matrix; returns how many."""
    kept = np.zeros(len(part.images), bool)
    kept[part.image[(part.value == 1) & (column[part.label] >= 0)]] = True
    chosen = kept[part.image]
    part.image = (np.cumsum(kept) - 1)[part.image[chosen]]
    part.label, part.value, part.images = part.label[chosen], part.value[chosen], part.images[kept]
    return int((~kept).sum())


def _shown(labels: Sequence[str], display: dict[str, str]) -> tuple[str, ...]:
    """Return display names; where several classes share one, with the label name."""
    names = [display.get(label, label) for label in labels]
    times = Counter(names)
    return tuple(
        name if times[name] == 1 else f"{name} ({label})" for name, label in zip(names, labels, strict=True)
    )
