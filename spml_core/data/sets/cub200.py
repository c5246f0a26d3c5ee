"""`cub200`: the 312 binary attributes of CUB-200-2011 birds (Wah et al., 2011)."""

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table
from spml_core.data.files.layout import find, require_files
from spml_core.data.listing import Listing, check_classes, find_extra, finish

NUM_ATTRIBUTES = 312
NOT_VISIBLE = 1  # certainty: 1 not visible, 2 guessing, 3 probably, 4 definitely
SIZES = {"train": 5_994, "test": 5_794}  # images, as published
EXPECTED = (
    "Expected: CUB_200_2011 with images.txt, train_test_split.txt, attributes/image_attribute_labels.txt, images/, and "
    "attributes.txt inside, in attributes/, or beside it. See data/README.md."
)


def read(
    root: str | Path,
    *,
    not_visible: Literal["negative", "unknown"] = "negative",
    unlabeled: Literal["error", "drop", "keep"] = "error",
    allow_missing: bool = False,
) -> Listing:
    """Read the attribute labels: official train (5,994) is divided into 4,795 train and 1,199 val, 5,794 are test.

    Rows are in the order of images.txt, that of the published draws. Rows of the attribute file with extra fields
    are read like the others: image, attribute, present, certainty, whatever follows.

    Args:
        root: the folder CUB_200_2011 or the one above it; a relative one starts at the project root.
        not_visible: answers of certainty 1 ("not visible"): "negative" takes the answer as it is (as the papers do),
            "unknown" treats the truth as unknown.
        unlabeled: images without an attribute: "error", "drop" or "keep".
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: missing files, other than 312 attributes, or attribute rows that are not images x 312.
    """
    root = find(root, EXPECTED)
    base = root if (root / "images.txt").is_file() else root / "CUB_200_2011"
    places = [base / "attributes.txt", base / "attributes" / "attributes.txt", base.parent / "attributes.txt"]
    attributes = next((file for file in places if file.is_file()), places[0])
    answers = base / "attributes" / "image_attribute_labels.txt"
    require_files(root, [base / "images.txt", base / "train_test_split.txt", attributes, answers], EXPECTED)

    names = _pairs(base / "images.txt")
    training = _pairs(base / "train_test_split.txt")
    classes = _pairs(attributes)
    check_classes(attributes, len(classes), NUM_ATTRIBUTES, "CUB-200-2011")
    if unsplit := [name for key, name in names.items() if training.get(key) not in ("0", "1")]:
        number = words.count(len(unsplit), "image")
        raise DataError(f"train_test_split.txt says neither 0 nor 1 for {number}:{table.bullets(unsplit)}")
    present, certainty = _answers(answers, list(names), list(classes))
    known = None if not_visible == "negative" else certainty != NOT_VISIBLE
    full = present if known is None else present * known
    paths = [base / "images" / name for name in names.values()]
    listing = Listing(
        name="cub200",
        classes=tuple(classes.values()),
        paths=paths,
        ids=list(names.values()),
        splits=["train" if training[key] == "1" else "test" for key in names],
        full=full.astype(np.int8),
        known=known,
        options={"not_visible": not_visible},
        notes={"not_visible_labels": int((certainty == NOT_VISIBLE).sum())},
        extra=find_extra([base / "images"], paths),
    )
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing, published=SIZES)


def _pairs(file: Path) -> dict[int, str]:
    """Return number -> text of a file with lines `number text`."""
    pairs, faults = {}, []
    lines = table.words_of(file)
    for line, (number, *text) in lines:
        if number.isdigit() and text and int(number) not in pairs:
            pairs[int(number)] = " ".join(text)
        else:
            faults.append((line, f"{' '.join([number, *text])!r} is not a unique number followed by a text"))
    table.refuse(file, faults, len(lines))
    return pairs


def _answers(file: Path, images: list[int], attributes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, 312) present in {1, 0} and certainty in 1..4, int8."""
    try:
        found = np.loadtxt(file, np.int32, usecols=range(4), comments=None, ndmin=2)
    except ValueError as error:
        raise DataError(
            f"{file} is not rows of image, attribute, present, certainty, time: {error}"
        ) from None
    expected = len(images) * len(attributes)
    if len(found) != expected:
        raise DataError(
            f"{file} has {len(found):,} rows; {len(images):,} images x {len(attributes)} attributes are {expected:,}"
        )
    row, column = pd.Index(images).get_indexer(found[:, 0]), pd.Index(attributes).get_indexer(found[:, 1])
    sound = (row >= 0) & (column >= 0) & np.isin(found[:, 2], (0, 1)) & np.isin(found[:, 3], (1, 2, 3, 4))
    rule = "not of a listed image, a listed attribute, 0 or 1, and a certainty of 1 to 4"
    table.refuse(file, [(n + 1, f"{found[n].tolist()} is {rule}") for n in np.flatnonzero(~sound)], expected)
    place = row * len(attributes) + column
    if len(np.unique(place)) < expected:
        raise DataError(f"{file} holds some pairs of image and attribute twice, so that others are missing")
    answers = np.empty((expected, 2), np.int8)
    answers[place] = found[:, 2:]
    present, certainty = answers.T.reshape(2, len(images), -1)
    return present, certainty
