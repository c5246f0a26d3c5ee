"""Load a data set's photographs for people to look at, even where models see features or squares."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import numpy as np
from PIL import Image, ImageOps
from tqdm.auto import tqdm

from spml_core import data
from spml_core.data.assemble import assemble
from spml_core.data.dataset import DataError, Dataset


def pictures(
    dataset: Dataset, split: str, rows: Sequence[int], name: str, size: int = 160, **options
) -> list[np.ndarray]:
    """Return images (height, width) or (height, width, 3) uint8 of some rows of a split.

    Args:
        dataset: the loaded data set; images are looked up by id.
        name, options: of the data set, as in `data.load`. For a generated data set, the inputs are returned.
        size: longest side of a photograph, pixels; the aspect ratio is kept.

    Raises:
        DataError: an image that the label files no longer name.
    """
    part = dataset.parts[split]
    if not data.has_files(name):
        return [np.squeeze(part.inputs[int(n)].numpy().transpose(1, 2, 0)) for n in rows]
    listing = data.read(name, **{k: v for k, v in options.items() if k not in signature(assemble).parameters})
    paths = dict(zip(listing.ids, listing.paths, strict=True))
    found = []
    hidden = True if len(rows) < 200 else None  # None: shown in a terminal
    for image in tqdm([part.ids[n] for n in rows], "pictures", leave=False, disable=hidden):
        if image not in paths:
            raise DataError(
                f"image {image!r} is no longer in the label files of {name!r}: load the data again"
            )
        with Image.open(paths[image]) as opened:
            opened.draft("RGB", (size, size))
            photograph = ImageOps.exif_transpose(opened).convert("RGB")
            photograph.thumbnail((size, size))
            found.append(np.asarray(photograph))
    return found
