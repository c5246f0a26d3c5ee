"""`nuswide`: NUS-WIDE, 81 concepts on Flickr photographs (Chua et al., CIVR 2009), in the forms that are about."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table
from spml_core.data.files.layout import find, require_files
from spml_core.data.listing import Listing, check_classes, find_extra, finish

NAMES = """
airport animal beach bear birds boats book bridge buildings cars castle cat cityscape clouds computer coral cow dancing
dog earthquake elk fire fish flags flowers food fox frost garden glacier grass harbor horses house lake leaf map
military moon mountain nighttime ocean person plane plants police protest railroad rainbow reflection road rocks running
sand sign sky snow soccer sports statue street sun sunset surf swimmers tattoo temple tiger tower town toy train tree
valley vehicle water waterfall wedding whales window zebra
"""
CLASSES = tuple(NAMES.split())  # Concepts81.txt, in its order
# Train and test images when complete; None: as many as could be fetched again.
VARIANTS = {
    "official": (150_000, 60_260),
    "homepage": (161_789, 107_859),
    "list119k": (119_103, 50_720),
    "recrawled": None,
}
ARRAYS = [f"formatted_{phase}_{kind}.npy" for phase in ("train", "val") for kind in ("images", "labels")]
CSV_FILE = "nus_wid_data.csv"
EXPECTED = {
    "official": f"Expected of variant 'official': {', '.join(ARRAYS)} and Flickr/.",
    "homepage": "Expected of variant 'homepage': ImageList/{Train,Test}Imagelist.txt, "
    "Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt, ConceptsList/Concepts81.txt and Flickr/.",
    "list119k": f"Expected of variant 'list119k': {CSV_FILE} (filepath,label,split_name) and the images it names.",
    "recrawled": f"Expected of variant 'recrawled': {', '.join(ARRAYS)} and images/ or Flickr/.",
}


def read(
    root: str | Path,
    *,
    variant: Literal["official", "homepage", "list119k", "recrawled"] = "official",
    unlabeled: Literal["error", "drop", "keep"] = "error",
    allow_missing: bool = False,
) -> Listing:
    """Read one form of the data set. The forms differ in images, division and labels: results are not comparable.

    - "official": the 150,000 / 60,260 division of the SPML papers, on the official images: four published arrays
      `formatted_{train,val}_{images,labels}.npy`, rows in their order;
    - "homepage": the label files of the data set's own page, 161,789 / 107,859, rows in the order of its lists;
    - "list119k": the 119,103 / 50,720 list of `nus_wid_data.csv`, rows in its order;
    - "recrawled": arrays as for "official", of images fetched from Flickr again, however many there are.

    Args:
        root: the folder; a relative one starts at the project root.
        variant: the form.
        unlabeled: images without a concept, 22 % of the official ones: "error", "drop" or "keep".
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: missing label files, a number of classes other than 81, a size that belongs to another form,
            label files that do not fit each other.
    """
    root = find(root, EXPECTED[variant])
    reader = {"homepage": _homepage, "list119k": _list}.get(variant, _arrays)
    names, splits, full = reader(root, variant)
    _check_sizes(variant, splits)
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{words.count(len(twice), 'image')} listed more than once:{table.bullets(twice)}")
    base, folders = _images(root, variant)
    paths = [base / name for name in names]
    sizes = {split: splits.count(split) for split in ("train", "test")}
    listing = Listing(
        name="nuswide",
        classes=CLASSES,
        paths=paths,
        ids=names,
        splits=splits,
        full=full,
        options={"variant": variant},
        notes={"variant": variant, "listed": sizes, "complete": tuple(sizes.values()) == VARIANTS[variant]},
        extra=find_extra(folders, paths),
    )
    published = VARIANTS[variant] and dict(zip(("train", "test"), VARIANTS[variant], strict=True))
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing, published=published)


def _check_sizes(variant: str, splits: list[str]) -> None:
    sizes = (splits.count("train"), splits.count("test"))
    owner = next((name for name, own in VARIANTS.items() if own == sizes), variant)
    if owner != variant and variant != "recrawled":
        raise DataError(
            f"{sizes[0]:,} train and {sizes[1]:,} test images are the form {owner!r}, not {variant!r}: the forms are "
            f"not to be mixed. Choose variant={owner!r} (spml train: -d variant {owner}), or the other files."
        )


def _images(root: Path, variant: str) -> tuple[Path, list[Path]]:
    """Return the folder that image names start from, and those to look through for images that no row names."""
    if variant == "list119k":
        return root, [root / "images"]
    base = root / "images" if variant == "recrawled" and (root / "images").is_dir() else root / "Flickr"
    return base, [base]


def _absent(root: Path, variant: str) -> str:
    """Return what to say beside missing files: which other form lies there."""
    found = {
        "official": (root / ARRAYS[0]).is_file(),
        "homepage": (root / "ImageList").is_dir(),
        "list119k": (root / CSV_FILE).is_file(),
    }
    others = [name for name, there in found.items() if there and name != variant]
    hint = f" There are files of variant {' and '.join(map(repr, others))}." if others else ""
    return f"{EXPECTED[variant]}{hint} See data/README.md."


def _arrays(root: Path, variant: str) -> tuple[list[str], list[str], np.ndarray]:
    require_files(root, [root / name for name in ARRAYS], _absent(root, variant))
    names, splits, parts = [], [], []
    for phase, split in (("train", "train"), ("val", "test")):
        own = np.load(root / f"formatted_{phase}_images.npy", allow_pickle=False)
        file = root / f"formatted_{phase}_labels.npy"
        full = np.load(file, allow_pickle=False)
        check_classes(file, full.shape[1] if full.ndim == 2 else 0, len(CLASSES), "NUS-WIDE")
        if len(own) != len(full):
            raise DataError(f"{file} has {len(full)} rows for the {len(own)} images of its list")
        if not np.isin(full, (0, 1)).all():
            raise DataError(f"{file} holds other values than 1 (present) and 0 (absent)")
        names += [_name(text) for text in own.tolist()]
        splits += [split] * len(own)
        parts.append(full.astype(np.int8))
    return names, splits, np.concatenate(parts)


def _homepage(root: Path, variant: str) -> tuple[list[str], list[str], np.ndarray]:
    lists = {split: root / "ImageList" / f"{split.title()}Imagelist.txt" for split in ("train", "test")}
    concepts = root / "ConceptsList" / "Concepts81.txt"
    concepts = concepts if concepts.is_file() else root / "Concepts81.txt"
    require_files(root, [*lists.values(), concepts], _absent(root, variant))
    found = concepts.read_text().split()
    check_classes(concepts, len(found), len(CLASSES), "NUS-WIDE", set(found) ^ set(CLASSES))
    folder = root / "Groundtruth" / "TrainTestLabels"
    files = {s: [folder / f"Labels_{name}_{s.title()}.txt" for name in CLASSES] for s in lists}
    require_files(root, [*files["train"], *files["test"]], _absent(root, variant))
    names, splits, parts, faults = [], [], [], []
    for split, file in lists.items():
        own = [_name(line) for line in file.read_text().splitlines() if line.strip()]
        columns = [column.read_text().split() for column in files[split]]
        faults += [
            f"{column.name}: {len(values)} values, {len(own)} images; values are 0 or 1"
            for column, values in zip(files[split], columns, strict=True)
            if len(values) != len(own) or not set(values) <= {"0", "1"}
        ]
        names += own
        splits += [split] * len(own)
        if not faults:
            parts.append((np.array(columns) == "1").T.astype(np.int8))
    if faults:
        raise DataError(
            f"{words.count(len(faults), 'label file')} not fitting the lists:{table.bullets(faults)}"
        )
    return names, splits, np.concatenate(parts)


def _list(root: Path, variant: str) -> tuple[list[str], list[str], np.ndarray]:
    file = root / CSV_FILE
    require_files(root, [file], _absent(root, variant))
    (_, header), *rows = table.rows(file, EXPECTED[variant])
    columns = ("filepath", "label", "split_name")
    if missing := sorted(set(columns) - set(header)):
        raise DataError(f"{file} has no column {' and '.join(missing)}. {EXPECTED[variant]}")
    names, splits, labels, faults = [], [], [], []
    for line, row in rows:
        if len(row) != len(header):
            faults.append((line, "not as many fields as the header has"))
            continue
        record = dict(zip(header, row, strict=True))
        # "['clouds', 'sky']", a list as text
        labels.append(
            {name for part in record["label"].strip("[] ").split(",") if (name := part.strip(" '\""))}
        )
        if record["split_name"] not in ("train", "val"):
            faults.append((line, f"split_name {record['split_name']!r}, expected train or val"))
        names.append(_name(record["filepath"]))
        splits.append("train" if record["split_name"] == "train" else "test")
    seen = set().union(*labels)
    if strange := sorted(seen - set(CLASSES)):
        raise DataError(
            f"{file} has {len(seen)} classes, of which {len(strange)} are none of the {len(CLASSES)} of NUS-WIDE: "
            f"{words.listed(strange, 10)}"
        )
    table.refuse(file, faults, len(rows))
    return names, splits, table.indicator(labels, CLASSES)


def _name(text: str) -> str:
    """Return an image name with forward slashes, below the image folder: lists say actor\\0001_2124494179.jpg."""
    return re.sub(r"^(\./)?(Flickr/)?", "", text.strip().replace("\\", "/"))
