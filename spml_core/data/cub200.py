"""`cub200`: the 312 binary attributes of CUB-200-2011 birds (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spml_core.data import DataError, Dataset, images
from spml_core.data.listing import Listing, assemble, check_choice, find_extra, finish, require_files
from spml_core.paths import locate

NUM_ATTRIBUTES = 312
NOT_VISIBLE = 1  # certainty: 1 not visible, 2 guessing, 3 probably, 4 definitely
POLICIES = ("negative", "unknown")
EXPECTED = (
    "Expected: CUB_200_2011 with images.txt, train_test_split.txt, attributes/image_attribute_labels.txt, images/, and "
    "attributes.txt inside, in attributes/, or beside it. See data/README.md."
)


def read(
    root: str | Path,
    *,
    not_visible: str = "negative",
    unlabeled: str = "error",
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
    check_choice("not_visible", not_visible, POLICIES)
    root = locate(root)
    base = root if (root / "images.txt").is_file() else root / "CUB_200_2011"
    places = [base / "attributes.txt", base / "attributes" / "attributes.txt", base.parent / "attributes.txt"]
    attributes = next((file for file in places if file.is_file()), places[0])
    answers = base / "attributes" / "image_attribute_labels.txt"
    require_files([base / "images.txt", base / "train_test_split.txt", attributes, answers], EXPECTED)

    names = _pairs(base / "images.txt")
    training = _pairs(base / "train_test_split.txt")
    classes = _pairs(attributes)
    if len(classes) != NUM_ATTRIBUTES:
        raise DataError(f"{attributes} names {len(classes)} attributes, CUB-200-2011 has {NUM_ATTRIBUTES}")
    if unsplit := [name for key, name in names.items() if training.get(key) not in ("0", "1")]:
        raise DataError(
            f"train_test_split.txt says neither 0 nor 1 for {len(unsplit)} images:{images.listing(unsplit)}"
        )
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
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing)


def load(
    root: str | Path,
    *,
    size: int = 448,
    backbone: str | None = None,
    cache_dir: str | Path = "runs/cache",
    not_visible: str = "negative",
    unlabeled: str = "error",
    allow_missing: bool = False,
) -> Dataset:
    """`read`, then `listing.assemble`."""
    listing = read(root, not_visible=not_visible, unlabeled=unlabeled, allow_missing=allow_missing)
    return assemble(listing, size=size, backbone=backbone, cache_dir=cache_dir)


def _pairs(file: Path) -> dict[int, str]:
    """Number -> text of a file with lines `number text`."""
    pairs = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split(maxsplit=1)
        if not fields:
            continue
        if len(fields) < 2 or not fields[0].isdigit() or int(fields[0]) in pairs:
            raise DataError(
                f"{file}, line {number}: {line!r} is not a number of its own and a text. {EXPECTED}"
            )
        pairs[int(fields[0])] = fields[1].strip()
    return pairs


def _answers(file: Path, image_numbers: list[int], attributes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(N, 312) present in {1, 0} and certainty in 1..4, int8."""
    import pandas as pd

    rows, columns = (
        {key: n for n, key in enumerate(image_numbers)},
        {key: n for n, key in enumerate(attributes)},
    )
    try:  # 13 fields at most: some rows are longer than described
        table = pd.read_csv(file, sep=r"\s+", header=None, names=range(13), usecols=range(4), dtype="float32")
        table = table.to_numpy()
    except ValueError as error:
        raise DataError(
            f"{file} cannot be read: {error}. A row is image, attribute, present, certainty, time."
        ) from None
    expected = len(rows) * len(columns)
    if len(table) != expected:
        raise DataError(
            f"{file} has {len(table):,} rows; {len(rows):,} images x {len(columns)} attributes are {expected:,}"
        )
    row = pd.Series(rows).reindex(table[:, 0]).to_numpy()
    column = pd.Series(columns).reindex(table[:, 1]).to_numpy()
    sound = (
        np.isfinite(row)
        & np.isfinite(column)
        & np.isin(table[:, 2], (0, 1))
        & np.isin(table[:, 3], (1, 2, 3, 4))
    )
    if not sound.all():
        wrong = [f"line {n + 1}: {table[n].tolist()}" for n in np.flatnonzero(~sound)]
        raise DataError(
            f"{file}: {len(wrong)} rows are not a listed image, a listed attribute, 0 or 1, and a certainty of 1 to 4:"
            f"{images.listing(wrong)}"
        )
    place = row.astype(np.int64) * len(columns) + column.astype(np.int64)
    if len(np.unique(place)) < expected:
        raise DataError(f"{file} holds some pairs of image and attribute twice, so that others are missing")
    present, certainty = np.empty(expected, np.int8), np.empty(expected, np.int8)
    present[place], certainty[place] = table[:, 2], table[:, 3]
    return present.reshape(len(rows), -1), certainty.reshape(len(rows), -1)
