"""`cub200`: the 312 binary attributes of CUB-200-2011 birds (Wah et al., 2011)."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm.auto import tqdm

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
            "unknown" takes the truth as not known.
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
            faults.append(
                (line, f"{' '.join([number, *text])!r} is not a number of its own and a text. {EXPECTED}")
            )
    table.refuse(file, faults, len(lines))
    return pairs


def _answers(file: Path, image_numbers: list[int], attributes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, 312) present in {1, 0} and certainty in 1..4, int8."""
    rows = {key: n for n, key in enumerate(image_numbers)}
    columns = {key: n for n, key in enumerate(attributes)}
    fields = array("i")
    with open(file, encoding="utf-8") as text:
        for number, line in enumerate(tqdm(text, file.name, unit=" rows", leave=False, disable=None), 1):
            try:
                image, attribute, present, certainty = map(int, line.split(None, 4)[:4])
            except ValueError:
                raise DataError(
                    f"{file}, line {number}: {line!r} is not image, attribute, present, certainty, time"
                ) from None
            fields.extend((image, attribute, present, certainty))
    found = np.frombuffer(fields, np.int32).reshape(-1, 4)
    expected = len(rows) * len(columns)
    if len(found) != expected:
        raise DataError(
            f"{file} has {len(found):,} rows; {len(rows):,} images x {len(columns)} attributes are {expected:,}"
        )
    row = np.array([rows.get(key, -1) for key in found[:, 0].tolist()])
    column = np.array([columns.get(key, -1) for key in found[:, 1].tolist()])
    sound = (row >= 0) & (column >= 0) & np.isin(found[:, 2], (0, 1)) & np.isin(found[:, 3], (1, 2, 3, 4))
    if not sound.all():
        wrong = [f"line {n + 1}: {found[n].tolist()}" for n in np.flatnonzero(~sound)]
        raise DataError(
            f"{file}: {words.count(len(wrong), 'row')} not of a listed image, a listed attribute, 0 or 1, and a "
            f"certainty of 1 to 4:{table.bullets(wrong)}"
        )
    place = row * len(columns) + column
    if len(np.unique(place)) < expected:
        raise DataError(f"{file} holds some pairs of image and attribute twice, so that others are missing")
    present, certainty = np.empty(expected, np.int8), np.empty(expected, np.int8)
    present[place], certainty[place] = found[:, 2], found[:, 3]
    return present.reshape(len(rows), -1), certainty.reshape(len(rows), -1)
