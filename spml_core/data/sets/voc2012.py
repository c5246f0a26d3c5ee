"""`voc2012`: PASCAL VOC 2012 classification, 20 classes (Everingham et al., 2012)."""

from pathlib import Path
from typing import Literal

import numpy as np

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table
from spml_core.data.files.layout import contents, find, require_files
from spml_core.data.listing import Listing, find_extra, finish
from spml_core.paths import locate

NAMES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant "
    "sheep sofa train tvmonitor"
)
CLASSES = tuple(NAMES.split())
SIZES = {"train": 5_717, "test": 5_823}  # images, as published
EXPECTED = (
    "Expected: VOCdevkit/VOC2012 with ImageSets/Main/{train,val}.txt, ImageSets/Main/<class>_{train,val}.txt and "
    "JPEGImages/. See data/README.md."
)


def read(
    root: str | Path,
    *,
    difficult: Literal["negative", "ignore", "positive"] = "negative",
    unlabeled: Literal["error", "drop", "keep"] = "error",
    allow_missing: bool = False,
    download: bool = False,
) -> Listing:
    """Read the class files: official train (5,717) is divided into 4,574 train and 1,143 val, official val is test.

    Rows are sorted by image id. A class file holds 1 (present), -1 (absent) or 0 (only difficult objects).

    Args:
        root: VOCdevkit/VOC2012, or one of the two folders above it; a relative one starts at the project root.
        difficult: what 0 becomes: "negative" (as in the SPML papers), "ignore" (unknown, as in the official
            evaluation), or "positive".
        unlabeled: images without a positive label: "error", "drop" or "keep".
        allow_missing: leave out images whose file is missing.
        download: fetch the 2 GB archive with torchvision into `root` if it is not there.

    Raises:
        DataError: missing class files, or malformed rows, all listed together.
    """
    if download:
        _download(locate(root))
    root = find(root, EXPECTED)
    base = _base(root)
    lists = base / "ImageSets" / "Main"
    phases = {"train": "train", "val": "test"}
    prefixes = ["", *(f"{name}_" for name in CLASSES)]
    require_files(base, [lists / f"{prefix}{phase}.txt" for phase in phases for prefix in prefixes], EXPECTED)
    ids, splits, values, faults = [], [], [], []
    for phase, split in phases.items():
        own = sorted(fields[0] for _, fields in table.words_of(lists / f"{phase}.txt"))
        columns = [_column(lists / f"{name}_{phase}.txt", own, faults) for name in CLASSES]
        values.append(np.stack(columns, 1))
        ids += own
        splits += [split] * len(own)
    if faults:
        raise DataError(
            f"{words.count(len(faults), 'fault')} in the class files below {lists}:{table.bullets(faults)}"
        )

    present = np.concatenate(values)  # (N, 20) in {1, 0, -1}
    unsure = present == 0
    full = ((present == 1) | (unsure & (difficult == "positive"))).astype(np.int8)
    only = [ids[n] for n in np.flatnonzero(unsure.any(1) & ~(present == 1).any(1))]
    paths = [base / "JPEGImages" / f"{name}.jpg" for name in ids]
    listing = Listing(
        name="voc2012",
        classes=CLASSES,
        paths=paths,
        ids=ids,
        splits=splits,
        full=full,
        known=~unsure if difficult == "ignore" else None,
        options={"difficult": difficult},
        notes={
            "difficult_labels": int(unsure.sum()),
            "only_difficult": {"count": len(only), "first": only[: table.SHOWN]},
        },
        extra=find_extra([base / "JPEGImages"], paths),
    )
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing, published=SIZES)


def _base(root: Path) -> Path:
    for base in (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012"):
        if (base / "ImageSets" / "Main").is_dir():
            return base
    raise DataError(
        f"no VOC2012 in {root}: there is no ImageSets/Main. {EXPECTED}\n"
        f"{contents(root, root / 'ImageSets' / 'Main' / 'train.txt')}"
    )


def _column(file: Path, ids: list[str], faults: list[str]) -> np.ndarray:
    """Return the values of one class in the order of `ids`; errors are added to `faults`."""
    found: dict[str, int] = {}
    for number, fields in table.words_of(file):
        place = f"{file.name}, line {number}"
        if len(fields) != 2 or fields[1] not in ("1", "0", "-1"):
            faults.append(f"{place}: {' '.join(fields)!r} is not an image id and 1, 0 or -1")
        elif fields[0] in found:
            faults.append(f"{place}: image {fields[0]} is listed twice")
        else:
            found[fields[0]] = int(fields[1])
    listed = file.name.rpartition("_")[2]
    absent, strange = set(ids) - set(found), set(found) - set(ids)
    for names, text in ((absent, "no row for {} of"), (strange, "rows for {} not in")):
        if names:
            counted = text.format(words.count(len(names), "image"))
            faults.append(f"{file.name}: {counted} {listed}, such as {min(names)}")
    return np.array([found.get(name, -1) for name in ids], np.int8)


def _download(root: Path) -> None:
    from torchvision.datasets import VOCDetection

    try:
        VOCDetection(str(root), year="2012", image_set="trainval", download=True)
    except Exception as error:  # network, disk and archive errors come as many types
        raise DataError(
            f"VOC 2012 could not be downloaded into {root} ({type(error).__name__}: {error}). Fetch "
            "VOCtrainval_11-May-2012.tar from the VOC 2012 home page by other means, unpack it there, and leave "
            "download out."
        ) from error
