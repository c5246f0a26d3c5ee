"""Read text tables with the line number of each row, for error messages; and turn joined labels into a matrix.

Rows are read by `csv`, since pandas reports neither the line of a row nor a row with too few fields.
"""

import csv
import gzip
import io
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from spml_core import words
from spml_core.data.dataset import DataError

SHOWN = 20  # lines that a report lists
DELIMITERS = (",", ";", "\t")  # spreadsheets write the second where the comma is the decimal sign
PIECE = 1_000_000  # rows of a large table that are in memory as text at a time


def text(file: Path, form: str = "") -> str:
    """Return the content of a text file, unpacked if it is .gz, without a byte order mark.

    Args:
        form: a sentence for the error that says how the file should look.

    Raises:
        DataError: no such file, or not UTF-8 text.
    """
    content = existing(file, form).read_bytes()
    try:
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        hint = 'Spreadsheets write it as "CSV UTF-8".'
        raise DataError(f"{file} cannot be read as UTF-8 text ({error}). {hint} {form}".rstrip()) from None


def existing(file: Path, form: str = "") -> Path:
    """Return the file, or raise `DataError` if there is none."""
    if not file.is_file():
        raise DataError(f"there is no file {file}. {form}".rstrip())
    return file


def rows(file: Path, form: str, columns: Collection[str] = ()) -> list[tuple[int, list[str]]]:
    """Return (line, fields) of each row that is not blank; the line is its last one.

    Args:
        columns: of the header; the delimiter is the first that yields one of them, else a comma.

    Raises:
        DataError: no such file, not UTF-8 text, or unbalanced quotes.
    """
    lines = io.StringIO(text(file, form), newline="")
    header = lines.readline()
    lines.seek(0)
    names = {each: {name.strip().strip('"').lower() for name in header.split(each)} for each in DELIMITERS}
    wanted = {column.lower() for column in columns}
    delimiter = next((each for each in DELIMITERS if wanted & names[each]), DELIMITERS[0])
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        return [(reader.line_num, fields) for fields in reader if any(map(str.strip, fields))]
    except csv.Error as error:
        raise DataError(
            f"{file}, line {reader.line_num} cannot be read as a table ({error}). {form}"
        ) from None


def pieces(file: Path, columns: Collection[str], form: str) -> Iterator[pd.DataFrame]:
    """Yield a table with a header as frames of text, `PIECE` rows at a time; pandas is fast, but names no line.

    Raises:
        DataError: no such file, not a table, or one without these columns.
    """
    try:
        frames = pd.read_csv(existing(file, form), chunksize=PIECE, dtype=str, keep_default_na=False)
        for frame in tqdm(frames, file.name, unit=" M rows", leave=False, disable=None):
            if missing := [name for name in columns if name not in frame]:
                raise DataError(f"{file} has no column {' and '.join(missing)}. {form}")
            yield frame
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a table ({error}). {form}") from None


def words_of(file: Path) -> list[tuple[int, list[str]]]:
    """Return (line, words) of each line that is not blank."""
    return [(n, line.split()) for n, line in enumerate(text(file).splitlines(), 1) if line.strip()]


def refuse(file: Path, faults: Collection[tuple[int, str]], total: int, place: str = "line") -> None:
    """Raise `DataError` with all faults, (line, text), if there are any.

    Args:
        total: rows of the file.
        place: what the numbers of the faults are.
    """
    if faults:
        counted = words.some(len({line for line, _ in faults}), total, "row")
        raise DataError(
            f"{counted} faulty in {file}:{bullets(f'{place} {n}: {fault}' for n, fault in faults)}"
        )


def bullets(lines: Iterable[str | Path]) -> str:
    """Return each item on an indented line of its own, at most `SHOWN` of them."""
    lines = [*lines]
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "".join(f"\n  {line}" for line in [*lines[:SHOWN], *more])


def normal(name: str) -> str:
    """Return a name without outer blanks, its accents in one of Unicode's two forms."""
    return unicodedata.normalize("NFC", name.strip())


def indicator(labels: Iterable[Collection], classes: Collection) -> np.ndarray:
    """Return (N, C) int8: 1 where a class is among an image's labels. No wider dense matrix is made."""
    from sklearn.preprocessing import MultiLabelBinarizer

    binarizer = MultiLabelBinarizer(classes=list(classes), sparse_output=True)
    return binarizer.fit_transform(labels).astype(np.int8).toarray()


def names(chosen: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Return the classes where one row, (C,), is not 0."""
    return [classes[c] for c in np.flatnonzero(chosen)]
