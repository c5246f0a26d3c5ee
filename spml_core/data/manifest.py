"""Who saw which label: manifests (CSV), the .npy matrices and label lists that others publish, and their conventions.

A manifest has the columns `image,split,positive,negative`, a row an image; observed labels are class names joined by
";". It regenerates nothing and hides nothing: what it says was observed is what training saw.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from spml_core import words
from spml_core.data import DataError
from spml_core.paths import locate

COLUMNS = ("image", "split", "positive", "negative")
SPLITS = ("train", "val", "test")
CONVENTIONS = {
    "spml": "1 positive, 0 unobserved, -1 verified negative (this project; Cole et al., CVPR 2021)",
    "em": "1 positive, 0 unobserved, a negative number is minus a soft pseudo-label (EM+APL, ECCV 2022)",
    "partial": "1 positive, -1 unobserved, 0 verified negative (partial-label code)",
}
# EM+APL has no value for a verified negative: -1 would be a certain positive, and 0 is unobserved. This is the soft
# pseudo-label of a label that is almost certainly absent.
EM_NEGATIVE = -1e-6


@dataclass(frozen=True)
class Manifest:
    """Observed labels of N images.

    Attributes:
        splits: N of "train", "val", "test".
        observed: (N, C) int8: 1 observed positive, 0 unobserved, -1 verified negative.
        sha256: of the file.
    """

    ids: tuple[str, ...]
    splits: tuple[str, ...]
    observed: np.ndarray
    classes: tuple[str, ...]
    sha256: str

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Sequence[str], split: str) -> np.ndarray:
        """(len(ids), C) observed labels of images, in the order of `ids`; other images of the manifest are left out.

        Raises:
            DataError: an image is not in the manifest, or in another split.
        """
        place = {image: n for n, image in enumerate(self.ids)}
        absent = [image for image in ids if image not in place]
        if absent:
            raise DataError(
                f"{words.some(len(absent), len(ids), f'{split} image')} not in the manifest: "
                f"{words.listed(absent, 3)}. It holds {len(self)}, such as {self.ids[0]}: the ids must be "
                "those of the data set."
            )
        chosen = [place[image] for image in ids]
        for image, n in zip(ids, chosen, strict=True):
            if self.splits[n] != split:
                raise DataError(
                    f"image {image} is in split {split!r}, but in {self.splits[n]!r} in the manifest: the data set "
                    "was divided in another way"
                )
        return self.observed[chosen]


def write(
    path: str | Path, ids: Sequence[str], splits: Sequence[str], observed, classes: Sequence[str]
) -> str:
    """Write a manifest; the same content gives the same bytes everywhere.

    Args:
        observed: (N, C) in {1, 0, -1}.

    Returns:
        SHA-256 of the file.

    Raises:
        DataError: lengths that do not fit, an id twice, an unknown split, a value that is none of {1, 0, -1}, a class
            name that cannot be read back.
    """
    observed = _check(np.asarray(observed), (1, 0, -1), "observed labels are 1, 0 or -1")
    if observed.shape != (len(ids), len(classes)) or len(splits) != len(ids):
        raise DataError(
            f"{len(ids)} ids, {len(splits)} splits, {len(classes)} classes and labels of shape {observed.shape} do "
            "not fit: expected (ids, classes)"
        )
    if len(set(ids)) < len(ids):
        seen = set()
        twice = next(image for image in ids if image in seen or seen.add(image))
        raise DataError(f"image {twice} is there twice: ids are unique within a manifest")
    if unknown := set(splits) - set(SPLITS):
        raise DataError(f"unknown split {sorted(unknown)[0]!r}: use {', '.join(SPLITS)}")
    for name in classes:
        if name != name.strip() or not name or ";" in name or "\n" in name:
            raise DataError(
                f"class name {name!r} cannot stand in a manifest: no ';', line break or space at an end"
            )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(zip(ids, splits, *(_joined(observed == v, classes) for v in (1, -1)), strict=True))
    content = text.getvalue().encode()
    Path(path).write_bytes(content)
    return sha256(content).hexdigest()


def read(path: str | Path, classes: Sequence[str] | None = None) -> Manifest:
    """Read a manifest. A relative path starts at the project root.

    Args:
        classes: of the data set, in order. Default: the names that occur, sorted.

    Raises:
        DataError: no such file, not a manifest, a label that is no class, an image twice; names the line.
    """
    path = locate(path)
    content = _bytes(path)
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a table ({error}). {_form()}") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise DataError(f"{path} begins with {','.join(rows[0]) if rows else 'nothing'!r}. {_form()}")
    rows = rows[1:]
    seen = {}
    for line, row in enumerate(rows, 2):
        if len(row) != len(COLUMNS):
            raise DataError(
                f"{path}, row {line}: {words.count(len(row), 'field')} instead of {len(COLUMNS)}. {_form()}"
            )
        if row[0] in seen:
            raise DataError(f"{path}, row {line}: image {row[0]} is already in row {seen[row[0]]}")
        if row[1] not in SPLITS:
            raise DataError(
                f"{path}, row {line}: unknown split {row[1]!r}; the splits are {', '.join(SPLITS)}"
            )
        seen[row[0]] = line
    if classes is None:
        classes = sorted({name for row in rows for cell in row[2:] for name in cell.split(";") if name})
    column = {name: c for c, name in enumerate(classes)}
    observed = np.zeros((len(rows), len(classes)), np.int8)
    for n, row in enumerate(rows):
        for cell, value in zip(row[2:], (1, -1), strict=True):
            for name in cell.split(";") if cell else ():
                if name not in column:
                    raise DataError(
                        f"{path}, row {n + 2}: {name!r} is none of the {len(column)} classes of the data set"
                    )
                if observed[n, column[name]] == -value:
                    raise DataError(f"{path}, row {n + 2}: {name!r} is both positive and negative")
                observed[n, column[name]] = value
    ids, splits = (tuple(row[k] for row in rows) for k in (0, 1))
    return Manifest(ids, splits, observed, tuple(classes), sha256(content).hexdigest())


def identify(path: str | Path) -> str:
    """SHA-256 of a manifest, of which no more than its first line is looked at.

    Raises:
        DataError: no such file, or one of another form, with the way to make a manifest of it.
    """
    path = locate(path)
    content = _bytes(path)
    if content.startswith(b"\x93NUMPY") or path.suffix == ".npy":
        raise DataError(
            f"{path} is a matrix, not a manifest. Make one of it: spml data labels NAME --import {path.name} "
            "--output labels.csv (--images FILE for the names of its rows, --convention NAME for what its -1 means); "
            "then give labels.csv."
        )
    first = content.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").strip()
    if first != ",".join(COLUMNS):
        raise DataError(f"{path} begins with {first[:60]!r}. {_form()}")
    return sha256(content).hexdigest()


def digest(path: str | Path) -> str:
    """SHA-256 of a file; a relative path starts at the project root.

    Raises:
        DataError: no such file.
    """
    return sha256(_bytes(locate(path))).hexdigest()


# Matrices of others.


@dataclass(frozen=True)
class Matrix:
    """An imported label matrix.

    Attributes:
        observed: (N, C) int8 in {1, 0, -1}, the project's convention.
        notes: what a record says of it: file, its SHA-256, convention, and how many values were NaN or soft
            pseudo-labels, both of which are unobserved here.
    """

    observed: np.ndarray
    notes: dict


def from_convention(values, convention: str | None = None, *, nan: str = "error") -> tuple[np.ndarray, dict]:
    """Labels of another convention in ours: 1 observed positive, 0 unobserved, -1 verified negative.

    Args:
        values: (N, C) numbers.
        convention: a name in `CONVENTIONS`. May be left out only where every value is 1 or 0, which is then a positive
            or unobserved; anything below 0 means different things to different people.
        nan: "error", or "unknown": NaN is unobserved.

    Returns:
        (N, C) int8, and counts: "nan", and "soft": EM's pseudo-labels, which belong to a method and not to the data,
        so they are unobserved here (a soft label up to 1e-6 is a verified negative).

    Raises:
        DataError: no convention named and needed, an unknown one, NaN or a value it does not know; row and column
            named.
    """
    values = np.asarray(values)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(
            f"a label matrix has numbers in (images, classes); this is {values.dtype} {values.shape}"
        )
    if nan not in ("error", "unknown"):
        raise DataError(f"nan={nan!r}: use error or unknown")
    values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    missing = np.isnan(values)
    if missing.any():
        if nan == "error":
            row, column = np.argwhere(missing)[0]
            number = words.some(int(missing.sum()), missing.size, "label")
            raise DataError(
                f"{number} NaN, the first in row {row}, column {column}. To take NaN as unobserved, "
                "say so: nan='unknown' (spml data labels: --nan unknown)."
            )
        values = np.where(missing, -1 if convention == "partial" else 0, values)
    if convention is None:
        if ((values != 0) & (values != 1)).any():
            row, column = np.argwhere((values != 0) & (values != 1))[0]
            raise DataError(
                f"row {row}, column {column} holds {values[row, column]:g}, which means different things in different "
                f"code. Name the convention:{_conventions()}"
            )
        convention = "spml"
    soft = 0
    if convention == "em":
        wrong = ~((values == 0) | (values == 1) | ((values < 0) & (values >= -1)))
        _refuse(values, wrong, "'em' knows 1, 0 and soft pseudo-labels in [-1, 0)")
        negative = (values < 0) & (values >= EM_NEGATIVE * (1 + 1e-6))  # float32 rounds
        soft = int(((values < 0) & ~negative).sum())
        observed = (values == 1).astype(np.int8) - negative
    elif convention in ("spml", "partial"):
        observed = _check(values, (1, 0, -1), f"{convention!r} knows 1, 0 and -1")
        if convention == "partial":
            observed = np.array([-1, 1, 0], np.int8)[observed]  # 0 -> -1, 1 -> 1, -1 -> 0
    else:
        raise DataError(f"unknown convention {convention!r}; there are:{_conventions()}")
    return observed, {"convention": convention, "nan": int(missing.sum()), "soft": soft}


def to_convention(observed, convention: str) -> np.ndarray:
    """(N, C) of {1, 0, -1} in another convention; `from_convention` gives it back. "em" is float32, the others int8.

    Raises:
        DataError: unknown convention.
    """
    observed = _check(np.asarray(observed), (1, 0, -1), "observed labels are 1, 0 or -1")
    if convention == "spml":
        return observed
    if convention == "em":
        return np.array([0, 1, EM_NEGATIVE], np.float32)[observed]
    if convention == "partial":
        return np.array([-1, 1, 0], np.int8)[observed]  # 0 -> -1, 1 -> 1, -1 -> 0
    raise DataError(f"unknown convention {convention!r}; there are:{_conventions()}")


def read_matrix(path: str | Path, convention: str | None = None, *, nan: str = "error") -> Matrix:
    """Read a published `.npy` matrix, such as `formatted_train_labels_obs.npy` of Cole et al.

    Raises:
        DataError: no such file, a pickle (never opened), or as `from_convention`; the file is named.
    """
    path = locate(path)
    values = _array(path)
    try:
        observed, notes = from_convention(values, convention, nan=nan)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return Matrix(observed, {"file": path.name, "sha256": digest(path)} | notes)


def read_images(path: str | Path) -> list[str]:
    """Image names of a published `.npy` vector, such as `formatted_train_images.npy` of Cole et al.

    Raises:
        DataError: no such file, a pickle, not one name a row.
    """
    names = _array(locate(path))
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(f"{path} holds {names.dtype} of shape {names.shape}: expected a vector of file names")
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]


def read_list(path: str | Path, num_classes: int) -> tuple[list[str], np.ndarray]:
    """Read a label list as published with Hill/SPLC: a row an image, `id,class indices joined by spaces`; may be .gz.

    Returns:
        N ids, and (N, num_classes) int8 in {1, 0}.

    Raises:
        DataError: no such file, or a line of another form (named).
    """
    path = locate(path)
    content = _bytes(path)
    try:
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error})") from None
    ids, found = [], np.zeros((len(lines), num_classes), np.int8)
    for n, line in enumerate(lines):
        image, comma, indices = line.partition(",")
        try:
            chosen = [int(index) for index in indices.split()]
            if not comma or not all(0 <= index < num_classes for index in chosen):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{path}, line {n + 1}: {line[:60]!r} is not `id,indices joined by spaces` with indices below "
                f"{num_classes}"
            ) from None
        ids.append(image)
        found[n, chosen] = 1
    return ids, found


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    return path.read_bytes()


def _array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"{path} is no .npy array of numbers or text ({error}); an array of Python objects is a pickle, which can "
            "run code, and is not opened"
        ) from None


def _check(values: np.ndarray, known: Iterable, rule: str) -> np.ndarray:
    _refuse(values, ~np.isin(values, list(known)), rule)
    return values.astype(np.int8)


def _refuse(values: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(f"{rule}; row {row}, column {column} holds {values[row, column]:g}")


def _joined(mask: np.ndarray, classes: Sequence[str]) -> list[str]:
    """For each row, the names of its classes joined by ";"."""
    row, column = np.nonzero(mask)
    ends = np.searchsorted(row, np.arange(len(mask) + 1)).tolist()
    names = [classes[c] for c in column]
    return [";".join(names[a:b]) for a, b in pairwise(ends)]


def _conventions() -> str:
    return "".join(f"\n  {name:8} {meaning}" for name, meaning in CONVENTIONS.items())


def _form() -> str:
    return f"Expected a manifest: columns {','.join(COLUMNS)}, labels joined by ';', in UTF-8."
