"""Load a data set's photographs for people to look at, even where models see features or squares."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps
from tqdm.auto import tqdm

from spml_core import data
from spml_core.data.dataset import DataError


def pictures(ids: Sequence[str], name: str, longest: int = 160, **options) -> list[np.ndarray]:
    """Return images (height, width) or (height, width, 3) uint8, in the order of their ids.

    Of a data set of files, only the label files and these images are read. Of a generated one, the inputs are returned.

    Args:
        name, options: of the data set, as in `data.load`.
        longest: side of a photograph, pixels; the aspect ratio is kept.

    Raises:
        DataError: an image that the label files no longer name.
    """
    if not data.has_files(name):
        parts = data.load(name, **options).parts.values()
        inputs = {image: x for part in parts for image, x in zip(part.ids, part.inputs, strict=True)}
        return [np.squeeze(inputs[image].numpy().transpose(1, 2, 0)) for image in ids]
    listing = data.read(name, **options)
    paths = dict(zip(listing.ids, listing.paths, strict=True))
    found = []
    for image in tqdm(ids, "pictures", leave=False, disable=None, delay=1):  # shown if it takes longer
        if image not in paths:
            raise DataError(
                f"image {image!r} is no longer in the label files of {name!r}: load the data again"
            )
        with Image.open(paths[image]) as opened:
            opened.draft("RGB", (longest, longest))
            photograph = ImageOps.exif_transpose(opened).convert("RGB")
            photograph.thumbnail((longest, longest))
            found.append(np.asarray(photograph))
    return found
