"""Read a label file of a folder: a table such as labels.csv, Hugging Face metadata, or COCO's format."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spml_core import words
from spml_core.data.dataset import DataError, OptionError
from spml_core.data.files import coco, table

# How a file should look, by its name or ending; "" for all other tables.
FORMS = {
    "labels.csv": "Expected: columns image,split,labels (split may be absent), labels joined by ';', in UTF-8; or "
    "image,split and a column for each class with 1, 0, or empty for unknown. See data/README.md.",
    ".json": "Expected COCO's format: images (id, file_name), annotations (image_id, category_id) and categories (id, "
    "name).",
    "": "Expected: columns file_name and labels, a list or joined by ';'; or a column for each class with 1 and 0.",
}
FIELDS = (
    "not as many fields as the header has. Labels are joined by ';', not by ','; where ';' separates the columns, "
    'joined labels are in quotes: "sky;sea".'
)
IMAGE_COLUMNS = ("image", "file_name")  # of labels.csv; of Hugging Face and COCO
LIST = re.compile(r"""\[.*\]|[({]\s*['"].*['"],?\s*[)}]""", re.DOTALL)  # as pandas and NumPy write one
QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")


@dataclass
class LabelFile:
    """What `read` found in a label file; its rows are not checked yet."""

    file: Path
    folder: str  # that image names are relative to, below the data set's folder
    header: list[str]
    records: list[tuple[int, dict]]  # line -> column -> text, or the value in JSON
    total: int  # rows, faulty ones included
    faults: list[tuple[int, str]] = field(default_factory=list)  # line, what is wrong with it
    place: str = "line"  # what the numbers are; "image" for the image ids of a COCO file
    image: str = ""  # column of images,
    labels: str = ""  # of labels,
    columns: Sequence[str] = ()  # or those that are classes

    @property
    def plain(self) -> bool:
        """Whether this is labels.csv, which has no lists and whose splits are in a column."""
        return self.file.name == "labels.csv"


def read(
    file: Path,
    folder: str,
    image_column: str | None,
    label_column: str | None,
    classes: Collection[str] | None,
) -> LabelFile:
    """Return the rows of a label file, and which of its columns hold images and labels.

    Args:
        folder: that image names are relative to, below the data set's folder.
        image_column, label_column: None = the usual names.
        classes: those of classes.txt; columns outside it are not read.

    Raises:
        OptionError: a column is chosen for COCO's format, which has none.
        DataError: the file cannot be read, or lacks a column; names those that it has.
    """
    form = FORMS.get(file.name) or FORMS.get(file.suffix, FORMS[""])
    if file.suffix == ".json":
        if image_column or label_column:
            raise OptionError(f"{file} is in COCO's format: image_column and label_column are for tables")
        source = _coco(file, folder, form)
    elif file.suffix == ".jsonl":
        source = _json_lines(file, folder, form)
    else:
        source = _table(file, folder, form, [image_column] if image_column else IMAGE_COLUMNS)
    header = source.header
    found = f"its header is {','.join(header)}" if header else "it is empty"
    usual = IMAGE_COLUMNS[not source.plain]
    source.image = image_column or next((name for name in IMAGE_COLUMNS if name in header), usual)
    source.labels = label_column or "labels"
    for option, name in (("image_column", source.image), ("label_column", label_column)):
        if name and name not in header:
            other = [column for column in header if column.lower() == name.lower()]
            raise DataError(
                f"{file} has no column {name}{f', only {other[0]!r}' if other else ''}: {found}. Choose a column with "
                f"the option {option} (spml train: -d {option} NAME). {form}"
            )
    if source.total < 1:
        raise DataError(f"{file} has a header but no rows. {form}")
    if source.labels not in header:
        source.columns = _class_columns(source, classes, found, form)
    return source


def _class_columns(source: LabelFile, classes: Collection[str] | None, found: str, form: str) -> list[str]:
    columns = [name for name in source.header if name not in (source.image, "split")]
    if classes is not None:
        columns = [name for name in columns if table.normal(name) in set(classes)]
    values = {value(record[name]) for _, record in source.records for name in columns}
    if not columns or not values & {"1", "0", "-1", "?"}:
        raise DataError(
            f"{source.file} has no column labels, and none for a class, with 1 and 0: {found}. Choose the column of "
            f"labels with the option label_column (spml train: -d label_column NAME). {form}"
        )
    if absent := sorted(set(classes or ()) - set(map(table.normal, columns))):
        counted = words.count(len(absent), "class")
        raise DataError(f"{source.file} has no column for {counted} of classes.txt:{table.bullets(absent)}")
    return columns


def _table(file: Path, folder: str, form: str, image_columns: Collection[str]) -> LabelFile:
    content = table.rows(file, form, image_columns)
    header = [name.strip() for name in content[0][1]] if content else []
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{file} has the column {twice[0]!r} more than once")
    whole = [(n, dict(zip(header, row, strict=True))) for n, row in content[1:] if len(row) == len(header)]
    faults = [(n, FIELDS) for n, row in content[1:] if len(row) != len(header)]
    return LabelFile(file, folder, header, whole, len(content) - 1, faults)


def _json_lines(file: Path, folder: str, form: str) -> LabelFile:
    lines = [(n, line) for n, line in enumerate(table.text(file, form).split("\n"), 1) if line.strip()]
    rows, faults = [], []
    for n, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            row = error
        if isinstance(row, dict):
            rows.append((n, row))
        else:
            faults.append((n, f"is not a JSON object: {row}"))
    table.refuse(file, faults, len(lines))
    header = [*dict.fromkeys(name for _, row in rows for name in row)]
    records = [(n, {name: _cell(row.get(name)) for name in header}) for n, row in rows]
    return LabelFile(file, folder, header, records, len(records))


def _coco(file: Path, folder: str, form: str) -> LabelFile:
    images, _ = coco.read(file, form)
    rows = [(n, {"file_name": name, "labels": sorted(labels, key=str)}) for n, name, labels in images]
    return LabelFile(file, folder, ["file_name", "labels"], rows, len(rows), place="image")


def labels_of(source: LabelFile, record: dict, zero: str | None) -> tuple[set[str], set[str], list[str]]:
    """Return the labels of a row, those whose truth is unknown, and what is wrong with them."""
    if not source.columns:
        given = (record.get(column, "") for column in (source.labels, "unknown"))
        (labels, faults), (unknown, more) = (_names(cell, source.plain) for cell in given)
        both = [f"label {name!r} is both in labels and in unknown" for name in sorted(labels & unknown)[:1]]
        return labels, unknown, faults + more + both
    cells = {name: value(record[name]) for name in source.columns}
    unsure = ("", "?", "0") if zero == "unknown" else ("", "?")
    faults = [
        f"{value!r} in column {name!r} is not 1, 0, -1, ? or empty. To skip a column, name the classes in classes.txt."
        for name, value in cells.items()
        if value not in ("1", "0", "-1", *unsure)
    ]
    labels = {table.normal(name) for name, value in cells.items() if value == "1"}
    return labels, {table.normal(name) for name, value in cells.items() if value in unsure}, faults


def _names(cell, plain: bool) -> tuple[set[str], list[str]]:
    """Return the labels of a cell and what is wrong with it: joined text or, unless `plain`, also a list."""
    if isinstance(cell, str) and LIST.fullmatch(cell.strip()):
        inner = cell.strip()[1:-1]
        try:
            items = json.loads(f"[{inner}]")
        except ValueError:  # as Python or NumPy write it
            items = [one or other for one, other in QUOTED.findall(inner)] or inner.split(",")
        if plain:
            joined = ";".join(str(item).strip() for item in items)
            return set(), [f"{cell.strip()!r} looks like a list: join labels by ';', here {joined}"]
        cell = items
    items = cell.split(";") if isinstance(cell, str) else cell
    if not isinstance(items, list) or any(isinstance(item, list | dict) for item in items):
        return set(), [f"{json.dumps(cell)} is not a list of labels"]
    return {table.normal(_cell(item)) for item in items} - {""}, []


def _cell(value):
    """Return a JSON value as a table's cell: text, or a list or an object as it is."""
    if isinstance(value, list | dict):
        return value
    return "" if value is None or value != value else str(value)


def value(cell) -> str:
    """Return the value of a class column's cell; 1 may also appear as 1.0 (beside empty cells) or TRUE."""
    text = str(cell).strip().removesuffix(".0")
    return {"true": "1", "false": "0"}.get(text.lower(), text)
