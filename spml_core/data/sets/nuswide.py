"""`nuswide`: NUS-WIDE, 81 concepts on Flickr photographs (Chua et al., CIVR 2009), in its various forms."""

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from spml_core import words
from spml_core.data import manifest
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
# Train and test images of each form.
VARIANTS = {"official": (150_000, 60_260), "homepage": (161_789, 107_859), "list119k": (119_103, 50_720)}
ARRAYS = [f"formatted_{phase}_{kind}.npy" for phase in ("train", "val") for kind in ("images", "labels")]
CSV_FILE = "nus_wid_data.csv"
EXPECTED = {
    "official": f"Expected of variant 'official': {', '.join(ARRAYS)} and Flickr/.",
    "homepage": "Expected of variant 'homepage': ImageList/{Train,Test}Imagelist.txt, "
    "Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt, ConceptsList/Concepts81.txt and Flickr/.",
    "list119k": f"Expected of variant 'list119k': {CSV_FILE} (filepath,label,split_name) and the images it names.",
}


def read(
    root: str | Path,
    *,
    variant: Literal["official", "homepage", "list119k"] = "official",
    unlabeled: Literal["error", "drop", "keep"] = "error",
    allow_missing: bool = False,
) -> Listing:
    """Read one form of the data set. The forms differ in images, division and labels: results are not comparable.

    - "official": the 150,000 / 60,260 division of the SPML papers: four published arrays
      `formatted_{train,val}_{images,labels}.npy`, rows in their order. Arrays of images that were downloaded from
      Flickr again are read too, with a note that their number differs from the published one;
    - "homepage": the label files of the data set's own page, 161,789 / 107,859, rows in the order of its lists;
    - "list119k": the 119,103 / 50,720 list of `nus_wid_data.csv`, rows in its order.

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
    parts = {"official": _arrays, "homepage": _homepage, "list119k": _list}[variant](root)
    names = [_name(text) for part in parts.values() for text in part[0]]
    sizes = {split: len(part[0]) for split, part in parts.items()}
    owner = next((name for name, own in VARIANTS.items() if own == tuple(sizes.values())), variant)
    if owner != variant:
        raise DataError(
            f"{sizes['train']:,} train and {sizes['test']:,} test images belong to the form {owner!r}, not "
            f"{variant!r}: the forms must not be mixed. Choose variant={owner!r} (spml train: -d variant {owner}), or "
            "the other files."
        )
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{words.count(len(twice), 'image')} listed more than once:{table.bullets(twice)}")
    paths = [(root if variant == "list119k" else root / "Flickr") / name for name in names]
    listing = Listing(
        name="nuswide",
        classes=CLASSES,
        paths=paths,
        ids=names,
        splits=[split for split, number in sizes.items() for _ in range(number)],
        full=np.concatenate([part[1] for part in parts.values()]),
        options={"variant": variant},
        notes={"variant": variant, "listed": sizes},
        extra=find_extra([root / ("images" if variant == "list119k" else "Flickr")], paths),
    )
    published = dict(zip(("train", "test"), VARIANTS[variant], strict=True))
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing, published=published)


def _require(root: Path, files: list[Path], variant: str) -> None:
    """Raise `DataError` if a label file is missing; it names the other forms whose files are there."""
    marks = {"official": ARRAYS[0], "homepage": "ImageList", "list119k": CSV_FILE}
    others = [repr(name) for name, mark in marks.items() if name != variant and (root / mark).exists()]
    hint = f" There are files of variant {' and '.join(others)}." if others else ""
    require_files(root, files, f"{EXPECTED[variant]}{hint} See data/README.md.")


def _arrays(root: Path) -> dict[str, tuple[list[str], np.ndarray]]:
    """Return for train and test the names of the images, and (N, 81) int8."""
    _require(root, [root / name for name in ARRAYS], "official")
    parts = {}
    for phase, split in (("train", "train"), ("val", "test")):
        names = manifest.read_images(root / f"formatted_{phase}_images.npy")
        file = root / f"formatted_{phase}_labels.npy"
        full, _ = manifest.read_matrix(file)
        check_classes(file, full.shape[1], len(CLASSES), "NUS-WIDE")
        if len(names) != len(full):
            raise DataError(f"{file} has {len(full)} rows for the {len(names)} images of its list")
        parts[split] = names, full
    return parts


def _homepage(root: Path) -> dict[str, tuple[list[str], np.ndarray]]:
    lists = {split: root / "ImageList" / f"{split.title()}Imagelist.txt" for split in ("train", "test")}
    concepts, folder = root / "ConceptsList" / "Concepts81.txt", root / "Groundtruth" / "TrainTestLabels"
    columns = {s: [folder / f"Labels_{name}_{s.title()}.txt" for name in CLASSES] for s in lists}
    _require(root, [*lists.values(), concepts], "homepage")
    found = concepts.read_text().split()
    check_classes(concepts, len(found), len(CLASSES), "NUS-WIDE", set(found) ^ set(CLASSES))
    _require(root, [*columns["train"], *columns["test"]], "homepage")
    parts, faults = {}, []
    for split, file in lists.items():
        names = [line for line in file.read_text().splitlines() if line.strip()]
        values = [column.read_text().split() for column in columns[split]]
        faults += [
            f"{column.name}: {len(own)} values, {len(names)} images; values are 0 or 1"
            for column, own in zip(columns[split], values, strict=True)
            if len(own) != len(names) or not set(own) <= {"0", "1"}
        ]
        if not faults:
            parts[split] = names, (np.array(values) == "1").T.astype(np.int8)
    if faults:
        raise DataError(
            f"{words.count(len(faults), 'label file')} not fitting the lists:{table.bullets(faults)}"
        )
    return parts


def _list(root: Path) -> dict[str, tuple[list[str], np.ndarray]]:
    file = root / CSV_FILE
    _require(root, [file], "list119k")
    rows = pd.concat(table.pieces(file, ["filepath", "label", "split_name"], EXPECTED["list119k"]))
    lines = [(n + 2, name) for n, name in rows.split_name.items() if name not in ("train", "val")]
    table.refuse(file, [(n, f"split_name {name!r}, expected train or val") for n, name in lines], len(rows))
    # A list as text: "['clouds', 'sky']".
    labels = rows.label.map(lambda text: set(re.findall(r"[^\s'\",\[\]]+", text)))
    seen = set().union(*labels)
    if strange := sorted(seen - set(CLASSES)):
        raise DataError(
            f"{file} has {len(seen)} classes, of which {len(strange)} are not among the {len(CLASSES)} of NUS-WIDE:  "
            f"{words.listed(strange, 10)}"
        )
    parts = {"train": rows.split_name == "train", "test": rows.split_name == "val"}
    return {
        split: (rows.filepath[own].tolist(), table.indicator(labels[own], CLASSES))
        for split, own in parts.items()
    }


def _name(text: str) -> str:
    """Return an image name with forward slashes, below the image folder: lists say actor\\0001_2124494179.jpg."""
    return re.sub(r"^(\./)?(Flickr/)?", "", text.strip().replace("\\", "/"))
