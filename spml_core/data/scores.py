"""Read and write a score for each label of each image, a CSV file, by which `observe` can draw labels.

The columns are `image` and the classes; scores are finite and >= 0, such as the probabilities of a trained model.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core import words
from spml_core.data.dataset import DataError
from spml_core.data.files import table
from spml_core.paths import locate, write_whole

FORM = "Expected scores: a CSV file with the columns image and one per class, numbers >= 0."


def write(path: str | Path, ids: Iterable[str], scores, classes: Sequence[str]) -> None:
    """Write (N, C) scores of N images, with 6 digits; a relative path starts at the project folder."""
    frame = pd.DataFrame(np.asarray(scores, float), pd.Index(ids, name="image"), classes)
    write_whole(locate(path), frame.to_csv(float_format="%.6g", lineterminator="\n"))


def read(path: str | Path, ids: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Return the (N, C) scores of these images and classes; a file may hold more of both.

    Raises:
        DataError: no such file, not a table of numbers, an image or a class that it lacks or names twice, a score that
            is negative or not finite.
    """
    path = locate(path)
    frame = pd.concat(table.pieces(path, ["image"], FORM)).set_index("image")
    for kind, wanted, there in (("class", classes, frame.columns), ("image", ids, frame.index)):
        if twice := there[there.duplicated()].tolist():
            raise DataError(f"{path} names {kind} {twice[0]!r} twice. {FORM}")
        if missing := list(dict.fromkeys(name for name in wanted if name not in there)):
            number = words.some(len(missing), len(wanted), kind, "has", "have")
            raise DataError(f"{number} no scores in {path}: {words.listed(missing)}. {FORM}")
    chosen = frame.loc[list(ids), list(classes)]
    numbers = chosen.apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if len(bad := np.argwhere(~((numbers >= 0) & np.isfinite(numbers)))):
        row, column = bad[0]
        raise DataError(
            f"{path}: the score of image {ids[row]}, class {classes[column]!r}, is "
            f"{chosen.iloc[row, column]!r}. {FORM}"
        )
    return numbers
