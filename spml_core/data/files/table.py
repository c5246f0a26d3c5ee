"""`labels.csv` of a folder: rows with joined labels, or with a column for each class; all faults in one report."""

from __future__ import annotations

import csv
import difflib
import posixpath
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from spml_core import words
from spml_core.data import DataError
from spml_core.data.files import images
from spml_core.data.listing import SPLITS

ZERO = ("absent", "unknown")  # what 0 means in a table that also holds -1
UNKNOWN = ("", "?")
DELIMITERS = (",", ";", "\t")  # spreadsheets write the second where the comma is the decimal sign
FORM = (
    "Expected: columns image,split,labels (split may be absent), labels joined by ';', in UTF-8; or image,split and a "
    "column for each class with 1, 0, or empty for unknown."
)


@dataclass
class Row:
    line: int  # in labels.csv, whose header is line 1
    image: str  # path below the folder, with forward slashes: the image's id
    split: str
    labels: set[str]
    unknown: set[str]  # "*": all that `labels` does not name


@dataclass
class Table:
    rows: list[Row]  # sorted by image
    has_split: bool
    columns: list[str]  # classes that the header names


def read(file: Path, classes: Collection[str] | None, zero: str | None, any_split: bool) -> Table:
    """Read labels.csv; see `folder.read` for its forms.

    Args:
        classes: those of classes.txt; labels outside it are faults, columns outside it are not read.
        any_split: do not look at the splits.

    Raises:
        DataError: not a table of either form, or all faulty rows together.
    """
    if not file.is_file():
        raise DataError(f"there is no {file}. {FORM}")
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            delimiter = _delimiter(text.readline())
            text.seek(0)
            reader = csv.DictReader(text, delimiter=delimiter)
            header = reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
            records = [(reader.line_num, record) for record in reader if not _is_empty(record)]
    except UnicodeDecodeError as error:
        raise DataError(f'{file} is not UTF-8 text ({error}): save it as "CSV UTF-8". {FORM}') from None
    except csv.Error as error:
        raise DataError(f"{file} cannot be read as a table ({error}). {FORM}") from None
    columns = _columns(file, header, classes)
    if not records:
        raise DataError(f"{file} has a header but no rows. {FORM}")
    if columns and zero is None and len({"0", "-1"} & _values(records, columns)) == 2:
        raise DataError(
            f"{file} holds both 0 and -1. With -1 for absent, 0 is absent too, or unknown: choose zero='absent' or "
            "zero='unknown' (spml train: -d zero unknown)."
        )
    rows, lines, faults = [], {}, []
    for line, record in records:
        row = _row(line, record, columns, zero, delimiter, faults)
        if row is None:
            continue
        if row.image in lines:
            faults.append(
                (
                    line,
                    f"image {row.image!r} is already in line {lines[row.image]}: one row an image, all its labels",
                )
            )
        lines.setdefault(row.image, line)
        if not any_split and row.split not in SPLITS:
            hint = _near(row.split, SPLITS)
            faults.append(
                (line, f"unknown split {row.split!r} of {row.image}.{hint} Known: {', '.join(SPLITS)}.")
            )
        if classes is not None and (strange := sorted((row.labels | row.unknown) - {*classes, "*"})):
            where = file.with_name("classes.txt")
            hint = _near(strange[0], classes)
            faults.append(
                (line, f"label {strange[0]!r} is none of the {len(classes)} classes in {where}.{hint}")
            )
        rows.append(row)
    if faults:
        report = images.listing([f"line {line}: {fault}" for line, fault in faults])
        number = len({line for line, _ in faults})
        is_are = "is" if number == 1 else "are"
        raise DataError(f"{number} of {words.count(len(records), 'row')} of {file} {is_are} faulty:{report}")
    return Table(sorted(rows, key=lambda row: row.image), "split" in header, columns)


def normal(name: str) -> str:
    """A class name without outer blanks; an accent typed in two ways is one class."""
    return unicodedata.normalize("NFC", name.strip())


def _delimiter(header: str) -> str:
    """What separates the columns: a comma, unless only something else makes `image` a column."""
    for delimiter in DELIMITERS:
        if "image" in [name.strip().strip('"').lower() for name in header.split(delimiter)]:
            return delimiter
    return DELIMITERS[0]


def _columns(file: Path, header: list[str], classes: Collection[str] | None) -> list[str]:
    """The columns that are classes: none where labels are joined."""
    found = f"its header is {','.join(header)}" if header else "it is empty"
    others = [name for name in header if name not in ("image", "split")]
    columns = others if classes is None else [name for name in others if normal(name) in set(classes)]
    if "labels" in header:
        columns = []
    elif not columns and "image" in header:
        raise DataError(f"{file} has no column labels, and none for a class: {found}. {FORM}")
    if "image" not in header:
        other = [name for name in header if name.lower() == "image"]
        raise DataError(
            f"{file} has no column image{f', only {other[0]!r}' if other else ''}: {found}. {FORM}"
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{file} has the column {twice[0]!r} more than once")
    if (
        classes is not None
        and columns
        and (absent := sorted(set(classes) - {normal(name) for name in columns}))
    ):
        raise DataError(
            f"{file} has no column for {words.count(len(absent), 'class')} of classes.txt:{images.listing(absent)}"
        )
    return columns


def _values(records, columns: list[str]) -> set[str]:
    return {_value(record.get(name) or "") for _, record in records for name in columns}


def _value(cell: str) -> str:
    """Of a class column; 1.0 is what is left of 1 where a table held empty cells too, TRUE is a spreadsheet's 1."""
    text = cell.strip().removesuffix(".0")
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def _is_empty(record: dict) -> bool:
    """A row of separators only, as spreadsheets leave it below a table."""
    return None not in record and not any((cell or "").strip() for cell in record.values())


def _row(
    line: int, record: dict, columns: list[str], zero: str | None, delimiter: str, faults: list
) -> Row | None:
    """A row, or None where it cannot be read; what is wrong goes to `faults`."""
    if None in record or None in record.values():  # what csv makes of too many and of too few fields
        hint = "Labels are joined by ';', not by ','."
        if delimiter == ";":
            hint = "Columns are separated by ';' here, so labels joined by it are in quotes: \"sky;sea\"."
        faults.append((line, f"not as many fields as the header has. {hint}"))
        return None
    image = record["image"].strip().replace("\\", "/")
    if not image or image.startswith("/") or image[1:2] == ":":
        faults.append((line, f"image {image!r} is not a path below the folder, such as images/1.jpg"))
        return None
    if columns:
        found, unknown = set(), set()
        for name in columns:
            value = _value(record[name])
            if value == "1":
                found.add(normal(name))
            elif value in UNKNOWN or (value == "0" and zero == "unknown"):
                unknown.add(normal(name))
            elif value not in ("0", "-1"):
                faults.append(
                    (line, f"{value!r} in column {name!r} is not 1, 0, -1, ? or empty. To skip a column, name the "
                     "classes in classes.txt.")
                )  # fmt: skip
    else:
        found = {normal(label) for label in record["labels"].split(";")} - {""}
        unknown = {normal(label) for label in record.get("unknown", "").split(";")} - {""}
        if both := sorted(found & unknown):
            faults.append((line, f"label {both[0]!r} is both in labels and in unknown"))
    return Row(line, posixpath.normpath(image), record.get("split", "train").strip(), found, unknown)


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
