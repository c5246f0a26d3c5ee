"""Pictures of a data set for the eye: photographs as they are, though models may see features or squares."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import numpy as np
from PIL import Image, ImageOps

from spml_core import data
from spml_core.data import DataError, Dataset


def pictures(
    dataset: Dataset, split: str, rows: Sequence[int], name: str, size: int = 160, **options
) -> list[np.ndarray]:
    """Images (height, width) or (height, width, 3) uint8 of some rows of a split.

    Args:
        dataset: as it was loaded; its images are looked up by id.
        name, options: of the data set as in `data.load`. A data set that is made when it is loaded shows its inputs.
        size: longest side of a photograph, pixels; the aspect ratio is kept.

    Raises:
        DataError: an image that the label files do not name any more.
    """
    part, loader = dataset.parts[split], data.loader(name)
    if not hasattr(loader, "read"):
        return [np.squeeze(part.inputs[int(n)].numpy().transpose(1, 2, 0)) for n in rows]
    known = signature(loader.read).parameters
    listing = data.read(name, **{k: v for k, v in options.items() if k in known})
    paths = dict(zip(listing.ids, listing.paths, strict=True))
    found = []
    for n in rows:
        if part.ids[n] not in paths:
            raise DataError(
                f"image {part.ids[n]!r} is not in the label files of {name!r}: load the data anew"
            )
        with Image.open(paths[part.ids[n]]) as image:
            image.draft("RGB", (size, size))
            photograph = ImageOps.exif_transpose(image).convert("RGB")
            photograph.thumbnail((size, size))
            found.append(np.asarray(photograph))
    return found
