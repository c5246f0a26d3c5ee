"""Read and write observed labels: manifests (CSV), published .npy matrices and label lists, and their conventions.

A manifest has the columns `image,split,positive,negative` and one row per image; observed labels are class names
joined by ";". It stores the labels themselves, not how to draw them: what it lists is what training observed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core import words
from spml_core.data.dataset import SPLITS, DataError
from spml_core.data.files import digests, table
from spml_core.paths import locate, write_whole

COLUMNS = ("image", "split", "positive", "negative")
FORM = f"Expected a manifest: columns {','.join(COLUMNS)}, labels joined by ';', in UTF-8."
ANSWERS = ("image", "class", "present")  # of a file that `merge` reads
CONVENTIONS = {
    "spml": "1 positive, 0 unobserved, -1 verified negative (this project; Cole et al., CVPR 2021)",
    "em": "1 positive, 0 unobserved, a negative number is minus a soft pseudo-label (EM+APL, ECCV 2022)",
    "partial": "1 positive, -1 unobserved, 0 verified negative (partial-label code)",
}
# EM+APL has no value for a verified negative: -1 would be a certain positive, and 0 is unobserved. This is the soft
# pseudo-label of a label that is almost certainly absent.
EM_NEGATIVE = -1e-6
# What our 0, 1 and -1 are in another convention. "partial" swaps 0 and -1, so it is its own inverse.
WRITTEN = {
    "spml": np.array([0, 1, -1], np.int8),
    "em": np.array([0, 1, EM_NEGATIVE], np.float32),
    "partial": np.array([-1, 1, 0], np.int8),
}


@dataclass(frozen=True)
class Manifest:
    """Observed labels of N images.

    Attributes:
        splits: N of "train", "val", "test".
        observed: (N, C) int8: 1 observed positive, 0 unobserved, -1 verified negative.
    """

    ids: tuple[str, ...]
    splits: tuple[str, ...]
    observed: np.ndarray

    def rows(self, ids: Sequence[str], split: str) -> np.ndarray:
        """Return the (len(ids), C) observed labels of the images `ids`, in this order.

        Raises:
            DataError: an image is not in the manifest, or in another split.
        """
        place = {image: n for n, image in enumerate(self.ids)}
        if absent := [image for image in ids if image not in place]:
            raise DataError(
                f"{words.some(len(absent), len(ids), f'{split} image')} not in the manifest: "
                f"{words.listed(absent, 3)}. It holds {len(self.ids)}, such as {self.ids[0]}: the ids must be "
                "those of the data set."
            )
        chosen = [place[image] for image in ids]
        if other := [n for n in chosen if self.splits[n] != split]:
            image, its = self.ids[other[0]], self.splits[other[0]]
            raise DataError(
                f"image {image} is in split {split!r}, but the manifest has it in {its!r}: the data set was divided "
                f"in another way"
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
        DataError: a value outside {1, 0, -1}, or a class name that could not be read back.
    """
    observed = _checked(observed)
    for name in classes:
        if name != name.strip() or not name or ";" in name or "\n" in name:
            raise DataError(
                f"class name {name!r} cannot be written to a manifest: it must not contain ';' or a line break, or "
                f"begin or end with a space"
            )
    joined = ([";".join(table.names(row, classes)) for row in observed == value] for value in (1, -1))
    frame = pd.DataFrame(dict(zip(COLUMNS, (ids, splits, *joined), strict=True)))
    text = frame.to_csv(index=False, lineterminator="\n")
    write_whole(Path(path), text)
    return sha256(text.encode()).hexdigest()


def read(path: str | Path, classes: Sequence[str]) -> Manifest:
    """Read a manifest. A relative path starts at the project root.

    Args:
        classes: of the data set, in order.

    Raises:
        DataError: no such file, not a manifest, or faulty rows, all listed by line: unknown labels, repeated images.
    """
    path = locate(path)
    (_, header), *rows = table.rows(path, FORM) or [(1, ["nothing"])]
    if tuple(header) != COLUMNS:
        raise DataError(f"{path} begins with {','.join(header)}. {FORM}")
    faults, lines, labels, listed = [], {}, [], set(classes)
    for line, row in rows:
        if len(row) != len(COLUMNS):
            faults.append((line, f"{words.count(len(row), 'field')} instead of {len(COLUMNS)}. {FORM}"))
            continue
        image, split, *cells = row
        positive, negative = ({name for name in cell.split(";") if name} for cell in cells)
        if image in lines:
            faults.append((line, f"image {image} is already in line {lines[image]}"))
        if split not in SPLITS:
            faults.append((line, f"unknown split {split!r}; the splits are {', '.join(SPLITS)}"))
        faults += [(line, f"{name!r} is both positive and negative") for name in sorted(positive & negative)]
        strange = f"is not one of the {len(listed)} classes of the data set"
        faults += [(line, f"{name!r} {strange}") for name in sorted((positive | negative) - listed)]
        lines[image] = line
        labels.append((split, positive, negative))
    table.refuse(path, faults, len(rows))
    splits, positive, negative = zip(*labels, strict=True) if labels else ((), (), ())
    observed = table.indicator(positive, classes) - table.indicator(negative, classes)
    return Manifest(tuple(lines), splits, observed)


def merge(
    path: str | Path, ids: Sequence[str], observed, classes: Sequence[str]
) -> tuple[np.ndarray, dict[str, int]]:
    """Return observed labels with the answers of an annotator, such as to the suggestions of `spml data suggest`.

    The file has the columns `image,class,present`; others are ignored. `present` is 1 if the class is in the image
    (observed positive), 0 if it is not (verified negative), and empty where nobody has looked.

    Args:
        ids: N names of images; observed: (N, C) in {1, 0, -1}, which stays as it is.

    Returns:
        (N, C) int8, and how many labels became "positive" and "negative".

    Raises:
        DataError: no such file, columns missing, no answer, or faulty rows, all listed by line: unknown images and
            classes, other answers than these, and contradicting ones.
    """
    path, form = locate(path), f"Expected the columns {','.join(ANSWERS)}; present is 1, 0 or empty."
    (_, header), *rows = table.rows(path, form, ANSWERS) or [(1, ["nothing"])]
    if missing := [name for name in ANSWERS if name not in header]:
        found = f"its header is {','.join(header)}"
        raise DataError(f"{path} has no column {words.listed(missing)}: {found}. {form}")
    row_of, column_of = ({name: n for n, name in enumerate(names)} for names in (ids, classes))
    merged, faults, given = _checked(observed).copy(), [], {}
    for line, fields in rows:
        cells = dict(zip(header, fields, strict=False))
        image, name, answer = (cells.get(key, "").strip() for key in ANSWERS)
        if answer in ("", "1", "0", "1.0", "0.0"):  # a spreadsheet may write 1.0
            if answer and given.setdefault((image, name), answer[0]) != answer[0]:
                faults.append((line, f"another row answers {1 - int(answer[0])} for {name!r} in {image}"))
        else:
            faults.append((line, f"present is {answer!r}; it is 1, 0 or empty"))
        if image not in row_of:
            faults.append((line, f"{image!r} is not one of the {len(row_of):,} training images"))
        if name not in column_of:
            faults.append((line, f"{name!r} is not one of the {len(column_of)} classes of the data set"))
    table.refuse(path, faults, len(rows))
    if not given:
        raise DataError(
            f"{path} has no answers: its column present is empty. If you answered on the page, its button saved them "
            "to another file, in the browser's folder of downloads."
        )
    for (image, name), answer in given.items():
        merged[row_of[image], column_of[name]] = 1 if answer == "1" else -1
    changed = merged != observed
    return merged, {
        "positive": int((changed & (merged == 1)).sum()),
        "negative": int((changed & (merged == -1)).sum()),
    }


def identify(path: str | Path) -> str:
    """Return the SHA-256 of a manifest; only its first line is checked.

    Raises:
        DataError: no such file, or not a manifest; for a matrix, it says how to make a manifest from it.
    """
    path = locate(path)
    if is_manifest(path):
        return digest(path)
    header = _header(path)
    if "NUMPY" in header[:8] or path.suffix == ".npy":
        raise DataError(
            f"{path} is a matrix, not a manifest. Convert it: spml data labels NAME --import {path.name} "
            "--output labels.csv (--images FILE for the names of its rows, --convention NAME for what its -1 means); "
            "then pass labels.csv."
        )
    raise DataError(f"{path} begins with {header[:60]!r}. {FORM}")


def is_manifest(path: str | Path) -> bool:
    """Return whether a file begins like a manifest.

    Raises:
        DataError: no such file.
    """
    return _header(path) == ",".join(COLUMNS)


def _header(path: str | Path) -> str:
    with open(table.existing(locate(path)), encoding="utf-8-sig", errors="replace") as text:
        return text.readline().strip()


def digest(path: str | Path) -> str:
    """Return the SHA-256 of a file; a relative path starts at the project root.

    Raises:
        DataError: no such file.
    """
    return digests.digest(table.existing(locate(path)))


# Matrices and lists that others publish.


def from_convention(values, convention: str | None = None, *, nan: str = "error") -> tuple[np.ndarray, dict]:
    """Convert labels from another convention to ours: 1 observed positive, 0 unobserved, -1 verified negative.

    Args:
        values: (N, C) numbers.
        convention: a name in `CONVENTIONS`. It may be left out only if every value is 1 (positive) or 0 (unobserved);
            values below 0 mean different things in different code.
        nan: "error", or "unknown" to take NaN as unobserved.

    Returns:
        (N, C) int8, and counts: "nan", and "soft": EM's pseudo-labels, which belong to a method and not to the data,
        so they are unobserved here (a soft label up to 1e-6 is a verified negative).

    Raises:
        DataError: the convention is unknown, or needed and not given; NaN, or a value outside the convention (names
            its row and column).
    """
    values = np.asarray(values)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(
            f"a label matrix holds numbers in shape (images, classes); this is {values.dtype} {values.shape}"
        )
    missing = np.isnan(values)
    if missing.any():
        if nan != "unknown":
            row, column = np.argwhere(missing)[0]
            number = words.some(int(missing.sum()), missing.size, "label")
            raise DataError(
                f"{number} NaN, the first in row {row}, column {column}. To take NaN as unobserved, set "
                "nan='unknown' (spml data labels: --nan unknown)."
            )
        values = np.where(missing, -1 if convention == "partial" else 0, values)
    if convention is None:
        if cell := _first(values, ~np.isin(values, (0, 1))):
            known = table.bullets(f"{name:8} {meaning}" for name, meaning in CONVENTIONS.items())
            raise DataError(
                f"{cell}, which means different things in different code. Name the convention:{known}"
            )
        convention = "spml"
    words.check_name("convention", convention, CONVENTIONS, DataError)
    soft = 0
    if convention == "em":
        wrong = ~((values == 0) | (values == 1) | ((values < 0) & (values >= -1)))
        if cell := _first(values, wrong):
            raise DataError(f"'em' allows 1, 0 and soft pseudo-labels in [-1, 0); {cell}")
        negative = (values < 0) & (values >= EM_NEGATIVE * (1 + 1e-6))  # float32 rounds
        soft = int(((values < 0) & ~negative).sum())
        observed = (values == 1).astype(np.int8) - negative
    else:
        observed = WRITTEN[convention][_checked(values, f"{convention!r} allows 1, 0 and -1")]
    return observed, {"convention": convention, "nan": int(missing.sum()), "soft": soft}


def to_convention(observed, convention: str) -> np.ndarray:
    """Convert (N, C) labels in {1, 0, -1} to another convention: float32 for "em", else int8. Inverts
    `from_convention`.

    Raises:
        DataError: unknown convention.
    """
    words.check_name("convention", convention, CONVENTIONS, DataError)
    return WRITTEN[convention][_checked(observed)]


def read_matrix(
    path: str | Path, convention: str | None = None, *, nan: str = "error"
) -> tuple[np.ndarray, dict]:
    """Read a published `.npy` matrix, such as `formatted_train_labels_obs.npy` of Cole et al.

    Returns:
        (N, C) int8 in {1, 0, -1}, and notes for the record: file name, SHA-256, and the counts of `from_convention`.

    Raises:
        DataError: no such file, a pickle (never opened), or as `from_convention`; names the file.
    """
    path = locate(path)
    values = _array(path)
    try:
        observed, notes = from_convention(values, convention, nan=nan)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return observed, {"file": path.name, "sha256": digest(path)} | notes


def read_images(path: str | Path) -> list[str]:
    """Read the image names of a published `.npy` vector, such as `formatted_train_images.npy` of Cole et al.

    Raises:
        DataError: no such file, a pickle, or not one name per row.
    """
    names = _array(locate(path))
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(f"{path} holds {names.dtype} of shape {names.shape}: expected a vector of file names")
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]


def read_list(path: str | Path, num_classes: int) -> tuple[list[str], np.ndarray]:
    """Read a label list of Hill/SPLC, which may be .gz: one row per image, `id,class indices joined by spaces`.

    Returns:
        N ids, and (N, num_classes) int8 in {1, 0}.

    Raises:
        DataError: no such file, or lines of another form (named).
    """
    path = locate(path)
    form = f"`id,indices joined by spaces` with indices below {num_classes}"
    ids, found, faults = [], [], []
    lines = table.text(path).splitlines()
    for number, line in enumerate(lines, 1):
        image, comma, indices = line.partition(",")
        chosen = {int(index) if index.isdecimal() else -1 for index in indices.split()}
        if not comma or not chosen <= set(range(num_classes)):
            faults.append((number, f"{line[:60]!r} is not {form}"))
        ids.append(image)
        found.append(chosen)
    table.refuse(path, faults, len(lines))
    return ids, table.indicator(found, range(num_classes))


def _array(path: Path) -> np.ndarray:
    file = table.existing(path)
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"{path} is not a .npy array of numbers or text ({error}); an array of Python objects is a pickle, which "
            "can run code, and is not opened"
        ) from None


def _checked(values, rule: str = "observed labels are 1, 0 or -1") -> np.ndarray:
    values = np.asarray(values)
    if cell := _first(values, ~np.isin(values, (1, 0, -1))):
        raise DataError(f"{rule}; {cell}")
    return values.astype(np.int8)


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    """Return the place and value of the first wrong entry, "" if there is none."""
    if not wrong.any():
        return ""
    row, column = np.argwhere(wrong)[0]
    return f"row {row}, column {column} holds {values[row, column]:g}"
