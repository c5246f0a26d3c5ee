"""Turn a `Listing` into a `Dataset`: check its files, and add pixels or features to its rows."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
from pydantic import PositiveInt

from spml_core.data.dataset import DataError, Dataset
from spml_core.data.files import decoding, features, loading, pixels, table
from spml_core.data.files.digests import digests
from spml_core.data.listing import Listing
from spml_core.paths import locate

CHECKED = 10_000  # maximum number of files that are decoded to complete a report of other faults


def assemble(
    listing: Listing,
    *,
    size: PositiveInt | None = None,
    backbone: str | None = None,
    cache_dir: str | Path = "runs/cache",
) -> Dataset:
    """Return a listing as a `Dataset`, with pixels or features as its inputs.

    Inputs are the first of these that applies: frozen features, if `backbone` is given; the prepared pixels of these
    files, if `spml data prepare` made them; else the decoded files, in memory if they take at most 2 GiB, otherwise
    batch by batch.

    Args:
        size: side of the square images, pixels; see `decoding.decode`. Default: 224 for a folder, else 448.
        backbone: a timm model for frozen features (`features.extract`), None for images.
        cache_dir: folder for features, prepared pixels and the digests of files.

    Returns:
        Dataset with a part for each split that has images: uint8 inputs (N, 3, size, size), or (N, D) float32. The
        fingerprint covers options, labels and the content of every file used, but not their location.

    Raises:
        DataError: the listing's problems, no train or val images, missing, empty and unreadable files, in one report.
    """
    size = listing.size if size is None else size
    cache_dir = locate(cache_dir)
    _check(listing)
    members = listing.members()
    order = np.concatenate([*members.values()])
    paths = listing.files()
    hashes = digests(paths, cache_dir)
    if backbone is None:
        weights = None
        inputs, origin = _pixels(paths, hashes, size, cache_dir)
    else:
        weights = features.weights_id(backbone)
        inputs = features.extract(paths, backbone=backbone, size=size, cache_dir=cache_dir, hashes=hashes)
        if 4 * math.prod(inputs.shape) <= loading.IN_MEMORY:
            inputs = inputs.index_select(0, torch.arange(len(inputs)))
        origin = f"features of {backbone} at {size} pixels (cached)"

    parts, start = {}, 0
    for split, rows in members.items():
        parts[split] = listing.part(split, inputs[start : start + len(rows)])
        start += len(rows)
    options = {"size": size} | listing.options | {"backbone": backbone}
    notes = options | {"images": {split: len(rows) for split, rows in members.items()}} | listing.notes
    notes |= {"inputs": origin, "duplicate_images": len(paths) - len(set(hashes))}
    fingerprint = _fingerprint(listing, order, [options, weights, decoding.RULE], hashes)
    return Dataset(listing.name, listing.classes, parts, fingerprint, notes)


def _pixels(paths: list[Path], hashes: list[str], size: int, cache_dir: Path):
    """Return the pixels and a description of where they come from."""
    prepared, file = pixels.find(hashes, size, cache_dir)
    if prepared is not None:
        return prepared, f"pixels prepared at {size} ({file.name})"
    if 3 * size**2 * len(paths) > loading.IN_MEMORY:
        return decoding.Files(paths, size), f"decoded from files at {size} pixels, batch by batch"
    return decoding.read(paths, size), f"decoded from files at {size} pixels, into memory"


def _check(listing: Listing) -> None:
    """Raise one `DataError` that reports everything wrong."""
    problems = list(listing.problems)
    for split in ("train", "val"):
        if split not in listing.splits:
            division = listing.notes.get("division", "as the data set divides them")
            problems.append(f"no {split} images ({division}): add rows, or change the division.")
    of_files, sound = listing.file_problems()
    problems += of_files
    if not problems:
        return
    if len(sound) <= CHECKED:
        try:
            decoding.check(sound)
        except DataError as error:
            problems.append(str(error))
    raise DataError("\n".join(problems))


def _fingerprint(listing: Listing, order: np.ndarray, head: list, hashes: list[str]) -> str:
    """Return the SHA-256 of the content as JSON, which is never held in memory as a whole."""
    content = hashlib.sha256()
    content.update(json.dumps([*head, list(listing.classes)])[:-1].encode() + b", [")
    for place, (n, file) in enumerate(zip(order, hashes, strict=True)):
        row = [listing.ids[n], listing.splits[n], sorted(table.names(listing.full[n], listing.classes)), file]
        if listing.known is not None:
            row.append(sorted(table.names(~listing.known[n], listing.classes)))
        content.update(b", " * (place > 0) + json.dumps(row).encode())
    content.update(b"]]")
    return content.hexdigest()
