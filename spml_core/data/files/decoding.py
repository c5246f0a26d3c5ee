"""Decode image files into arrays: one rule for everything that reads images, one report of unreadable files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from tqdm.contrib.concurrent import thread_map

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table

RULE = "whole image to a square, bicubic, JPEG draft at twice the size, transparency on white"
REMEDY = "Restore these files. To train without them, delete the rows of a labels.csv that name them."
ALLOW_MISSING = (
    "To train without missing files, set the option allow_missing (spml train: -d allow_missing true)."
)


def decode(path: str | Path, size: int, channels: int = 3) -> np.ndarray:
    """Decode one image file to RGB and resize the whole image to a square, as the papers do (at 448).

    The aspect ratio is not kept and nothing is cropped: a crop could remove the labelled object. To RGB:

    - L, LA, 1 (grey, bilevel): the value in all three channels;
    - P (palette): its colours;
    - RGBA, LA, PA, palettes with a transparent colour: composited over white;
    - CMYK: Pillow's conversion, without colour profile;
    - I;16 (16-bit grey), and I where it holds 0..65535: scaled to 8 bits, 65535 becoming 255;
    - the EXIF orientation is applied; of an animation or a multi-page file the first frame is read.

    Args:
        path: image file.
        size: side of the square, pixels.
        channels: 3, or 1 for grey levels (Pillow's luma) of the RGB image, as networks for `digits` take.

    Returns:
        (channels, size, size) uint8.

    Raises:
        OSError, ValueError or another error of the decoder: unreadable or truncated file, or pixels without a
            fixed range (floats, 32-bit integers). `read` and `check` collect them in one DataError.
    """
    with Image.open(path) as image:
        image.draft(None, (2 * size, 2 * size))  # large JPEGs: decode at a fraction, not below this
        square = rgb(image).resize((size, size), Image.Resampling.BICUBIC)
        pixels = np.asarray(square if channels == 3 else square.convert("L"))
        return pixels.reshape(size, size, -1).transpose(2, 0, 1)


class Files:
    """Image files in place of the tensor that they would decode to: (N, 3, size, size) uint8.

    Has shape, ndim, dtype and len of that tensor; a slice or index gives `Files` again. `loading.batches` reads them.

    Args:
        paths: N image files.
        size: side of the square images, pixels; see `decode`.
    """

    dtype, ndim = torch.uint8, 4

    def __init__(self, paths: Sequence[str | Path], size: int):
        self.paths, self.size = np.array(paths, object), size
        self.shape = torch.Size((len(paths), 3, size, size))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: slice | Sequence[int] | torch.Tensor) -> Files:
        # numpy takes a tensor of one number for a number, not for an array.
        return Files(self.paths[rows if isinstance(rows, slice) else np.asarray(rows)], self.size)

    def index_select(self, _dim: int, rows: torch.Tensor) -> torch.Tensor:
        """Decode these rows, see `read`."""
        return read(self[rows].paths, self.size, title=None)


def read(paths: Sequence[str | Path], size: int, title: str | None = "decode images") -> torch.Tensor:
    """Decode images into one tensor of 3 * size**2 bytes per image.

    Args:
        title: of the progress bar; None = no bar.

    Returns:
        (N, 3, size, size) uint8, in the order of `paths`.

    Raises:
        DataError: lists the path of every file that cannot be read. None is replaced or left out.
    """
    pixels = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)
    out = pixels.numpy()

    def decode_into(n: int) -> None:
        out[n] = decode(paths[n], size)

    _attempt(decode_into, paths, title)
    return pixels


def check(paths: Sequence[str | Path]) -> None:
    """Decode every file once, JPEGs at an eighth of their size, to find bad files before a long computation.

    Headers alone are not enough: a JPEG cut short passes Pillow's `verify`.

    Raises:
        DataError: the files that cannot be read, all of them, by path.
    """

    def decode_small(n: int) -> None:
        with Image.open(paths[n]) as image:
            small(image)

    _attempt(decode_small, paths, "check images")


def rgb(image: Image.Image) -> Image.Image:
    """Return the pixels of an open image in 8-bit RGB, as `decode` describes."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            found = f"pixels from {values.min()} to {values.max()}"
            raise ValueError(f"{found}: save the image with 8 or 16 bits per channel")
        image = Image.fromarray(np.rint(values / 257).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating-point pixels: save the image with 8 or 16 bits per channel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def small(image: Image.Image) -> Image.Image:
    """Return the pixels as `rgb`, of a JPEG at an eighth of its size: reads the whole file, computes few pixels."""
    image.draft(None, (1, 1))
    return rgb(image)


def _attempt(task: Callable[[int], None], paths: Sequence[str | Path], title: str | None) -> None:
    def run(n: int) -> str | None:
        try:
            task(n)
        except Exception as error:  # decoders raise OSError, SyntaxError, zlib.error, ...: each is reported
            return f"{paths[n]}: {error or type(error).__name__}"

    bar = {"desc": title, "unit": " images", "leave": False, "disable": True if title is None else None}
    # Pillow decodes without the interpreter lock.
    if bad := [line for line in thread_map(run, range(len(paths)), **bar) if line]:
        counted = words.some(len(bad), len(paths), "image", "cannot", "cannot")
        raise DataError(f"{counted} be read:{table.bullets(bad)}\n{REMEDY}")
