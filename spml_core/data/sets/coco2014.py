"""`coco2014`: MS-COCO 2014 as 80-class multi-label data (Lin et al., ECCV 2014)."""

from pathlib import Path
from typing import Literal

import numpy as np
from tqdm.auto import tqdm

from spml_core.data.files import coco, table
from spml_core.data.files.layout import find, require_files
from spml_core.data.listing import Listing, check_classes, find_extra, finish

# In the order of the official category list (ids 1..90 with gaps).
NAMES = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag,
tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard,
tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot,
hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote,
keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush
"""
CLASSES = tuple(name.strip() for name in NAMES.split(","))
PHASES = {"train": "train", "val": "test"}  # of the files; of ours
SIZES = {"train": 82_783, "test": 40_504}  # images, as published,
ANNOTATED = {"train": 82_081, "test": 40_137}  # and those of them that have an annotation
EXPECTED = (
    "Expected: annotations/instances_train2014.json, annotations/instances_val2014.json, train2014/ and val2014/. "
    "See data/README.md."
)


def read(
    root: str | Path, *, unlabeled: Literal["error", "drop", "keep"] = "drop", allow_missing: bool = False
) -> Listing:
    """Read the instance annotations: train2014 is divided into train and val (80/20), val2014 is the test set.

    A class is present if the image has an object of it, crowds included. Category ids are mapped by name. Rows are
    sorted by image id *as text* (9 after 581921), the order of the published draws and splits. Of the 82,783 / 40,504
    images, 82,081 / 40,137 have an annotation; the papers use those.

    Args:
        root: the folder with annotations/, train2014/ and val2014/; a relative one starts at the project root.
        unlabeled: images without annotation: "drop" before the division (as published), "keep", or "error".
        allow_missing: leave out images whose file is missing.

    Raises:
        DataError: missing or unreadable files, other categories than the 80, annotations of images or categories that
            are not listed.
    """
    root = find(root, EXPECTED)
    files = {f: root / "annotations" / f"instances_{f}2014.json" for f in PHASES}
    require_files(root, list(files.values()), EXPECTED)
    paths, ids, splits, tables, counts = [], [], [], [], {}
    for phase, split in tqdm(PHASES.items(), "read annotations", unit=" files", leave=False, disable=None):
        names, full = _matrix(files[phase])
        counts[split] = f"{len(names)} images, {full.any(1).sum()} annotated"
        paths += [root / f"{phase}2014" / name for _, name in names]
        ids += [str(image) for image, _ in names]
        splits += [split] * len(names)
        tables.append(full)

    listing = Listing(
        name="coco2014",
        classes=CLASSES,
        paths=paths,
        ids=ids,
        splits=splits,
        full=np.concatenate(tables),
        notes={"annotations": counts},
        extra=find_extra([root / "train2014", root / "val2014"], paths),
    )
    if unlabeled == "drop":  # before the division
        listing = listing.select(np.flatnonzero(listing.full.any(1)))
    listing.notes["unannotated_dropped"] = len(ids) - len(listing)
    published = ANNOTATED if unlabeled == "drop" else SIZES
    return finish(listing, divide=True, unlabeled=unlabeled, allow_missing=allow_missing, published=published)


def _matrix(file: Path) -> tuple[list[tuple[int, str]], np.ndarray]:
    """Return (image id, file name) of every image in the file, sorted by id as text, and the (N, 80) int8 labels."""
    images, categories = coco.read(file, EXPECTED)
    check_classes(file, len(categories), len(CLASSES), "COCO", set(categories) ^ set(CLASSES))
    images.sort(key=lambda image: str(image[0]))
    full = table.indicator((labels for *_, labels in images), CLASSES)
    return [(image, name) for image, name, _ in images], full
