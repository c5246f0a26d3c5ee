"""Notebooks seen from outside: which there are, what they declare, what figures and tables they promise."""

import ast
import json
import typing
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import nbformat
from pydantic import ConfigDict, TypeAdapter, ValidationError

from spml_core import words
from spml_core.paths import locate


class NotebookError(ValueError):
    """A notebook, a name or a parameter that cannot be run; raised before anything is executed or written."""


@dataclass(frozen=True)
class Parameter:
    """One line `name: type = default  # help` of the cell tagged "parameters"."""

    name: str
    type: str
    default: object
    help: str
    adapter: TypeAdapter = field(repr=False, compare=False)

    def coerce(self, value):
        """`value` as the declared type, in plain JSON types.

        Text is read as on a command line ("false", "1e-4", "[0, 1]", "[an, gr]", "none"; lists and the like as JSON,
        Python or YAML); any other value (numpy scalar, path, tuple, ...) must have the type already.

        Raises:
            ValueError, TypeError: the value is not of the declared type.
        """
        if not isinstance(value, str):
            return _validate(self.adapter, value)
        if value.lower() in ("none", "null"):
            with suppress(ValidationError):
                return self.adapter.validate_python(None)
        try:
            return self.adapter.dump_python(self.adapter.validate_strings(value), mode="json")
        except ValidationError:  # a list or the like
            if value.strip().startswith(("[", "{", "(")):
                for read_as in (json.loads, ast.literal_eval, words.read_yaml):
                    with suppress(ValueError, TypeError, SyntaxError):
                        return _validate(self.adapter, read_as(value))
            raise


def _validate(adapter: TypeAdapter, value):
    """Through JSON and strict: a tuple may be a list, but 1.5 or True is no int and 1 no bool."""
    return adapter.dump_python(
        adapter.validate_json(json.dumps(value, default=_plain), strict=True), mode="json"
    )


def _plain(value):
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def parameters(path: str | Path) -> dict[str, Parameter]:
    """The parameters a notebook declares, in order.

    Raises:
        NotebookError: not exactly one cell is tagged "parameters", or it holds more than annotated literals.
    """
    return declared(read(path), Path(path).stem)


def declared(nb, name: str) -> dict[str, Parameter]:
    """`parameters` of a notebook that is already read."""
    tagged = [cell for cell in nb.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1 or tagged[0].cell_type != "code":
        raise NotebookError(
            f'{name}: exactly one code cell must carry the tag "parameters", not {len(tagged)}'
        )
    lines = tagged[0].source.splitlines()
    found = [_parameter(node, lines, name) for node in _parse(tagged[0].source, name).body]
    return {parameter.name: parameter for parameter in found}


def _parameter(node: ast.stmt, lines: list[str], notebook: str) -> Parameter:
    where = f"{notebook}, parameters cell: {lines[node.lineno - 1].strip()!r}"
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value):
        raise NotebookError(f"{where} is not of the form `name: type = literal  # help`")
    names = {kind.__name__: kind for kind in (bool, int, float, str, list, tuple, dict)}
    names |= {name: getattr(typing, name) for name in typing.__all__}
    annotation = ast.unparse(node.annotation)
    try:
        kind = eval(annotation, {"__builtins__": {}}, names)
        adapter = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
        default = _validate(adapter, ast.literal_eval(node.value))
    except Exception as error:  # eval and pydantic raise many kinds
        raise NotebookError(
            f"{where} needs a literal of a builtin or typing type: {reason(error)}"
        ) from error
    comment = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()  # ast counts UTF-8 bytes
    return Parameter(node.target.id, annotation, default, comment.partition("#")[2].strip(), adapter)


def promised_figures(path: str | Path) -> list[str]:
    """Names in the literal calls `save_figure(fig, "NAME", ...)` of a notebook, in order."""
    return list(promises(read(path), Path(path).stem))


def promised_tables(path: str | Path) -> list[str]:
    """Names in the literal calls `save_table(table, "NAME", ...)` of a notebook, in order."""
    return list(promises(read(path), Path(path).stem, "save_table"))


def sources(path: str | Path) -> dict[str, list[str]]:
    """Figure or table -> what of the papers it redraws: the literal `source="GR Fig 3a; GR Fig 3b/3c"` of its call."""
    found = {}
    for function in ("save_figure", "save_table"):
        for _, name, call in _saves(read(path), Path(path).stem, function):
            literal = [
                k.value.value
                for k in call.keywords
                if k.arg == "source" and isinstance(k.value, ast.Constant)
            ]
            found[name] = [item.strip() for text in literal for item in text.split(";") if item.strip()]
    return found


def promises(nb, notebook: str, function: str = "save_figure") -> dict[str, int]:
    """Name of a figure (or, of "save_table", a table) -> index of the cell that saves it."""
    found = {}
    for index, name, _ in _saves(nb, notebook, function):
        found.setdefault(name, index)
    return found


def _saves(nb, notebook: str, function: str):
    """Cell index, literal name and call of each `function(what, "NAME", ...)`."""
    for index, cell in enumerate(nb.cells):
        calls = ast.walk(_parse(cell.source, notebook, index)) if cell.cell_type == "code" else ()
        for call in calls:
            if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == function:
                for name in [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "name")]:
                    if isinstance(name, ast.Constant) and isinstance(name.value, str):
                        yield index, name.value, call


def title(path: str | Path) -> str:
    """The first heading of a notebook, "" when it has none."""
    return next(filter(None, map(heading, read(path).cells)), "")


def heading(cell) -> str:
    """First heading of a markdown cell, "" when it has none."""
    lines = cell.source.splitlines() if cell.cell_type == "markdown" else []
    return next((line.lstrip("#").strip() for line in lines if line.startswith("#")), "")


def heading_above(nb, index: int) -> str:
    """The last heading before cell number `index`, "" when there is none."""
    lines = [
        line for cell in nb.cells[:index] if cell.cell_type == "markdown" for line in cell.source.splitlines()
    ]
    return next((line.lstrip("#").strip() for line in reversed(lines) if line.startswith("#")), "")


def read(path: str | Path):
    """The notebook of a file, as nbformat's node."""
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat and json raise many kinds
        raise NotebookError(f"{path} is not a readable notebook: {reason(error)}") from error


def _parse(source: str, notebook: str, index: int | None = None) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        cell = "parameters cell" if index is None else f"cell {index + 1}"
        raise NotebookError(
            f"{notebook}, {cell}, line {error.lineno}: not plain Python: {error.msg}"
        ) from error


def reason(error: Exception) -> str:
    """One line about any exception, of pydantic's the first complaint."""
    return (
        error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
    )


def find(names: Iterable[str] = (), notebooks_dir: str | Path | None = None) -> list[Path]:
    """The notebooks called `names` (number, name, file name or path), or all of them, sorted.

    Raises:
        NotebookError: no notebook, or more than one, goes by a name.
    """
    folder = locate("notebooks" if notebooks_dir is None else notebooks_dir)
    every = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    names = list(names) or list(every)
    if not names:
        raise NotebookError(f"no notebooks in {folder}")
    chosen = {}
    for name in names:
        stem = PurePath(name).name.removesuffix(".ipynb")
        if name.endswith(".ipynb") and Path(name).is_file():
            matches = [Path(name).resolve()]
        elif stem in every:
            matches = [every[stem]]
        else:
            matches = [path for key, path in every.items() if key.startswith(f"{stem}-")]
        if len(matches) != 1:
            problem = "is the start of several notebooks" if matches else "is no notebook"
            choice = [path.stem for path in matches] or words.nearest(stem, every, cutoff=0.4) or list(every)
            raise NotebookError(f"{name!r} {problem}; choose from: {', '.join(choice)}")
        chosen[matches[0].stem] = matches[0]
    return list(chosen.values())


def executed_dir(figures_dir: str | Path) -> Path:
    """Where the executed copies go that belong to the figures of a folder: a copy never outlives its figures.

    runs/notebooks for figures/, and a folder "notebooks" inside any other folder of figures.
    """
    folder = locate(figures_dir)
    return (
        locate("runs/notebooks") if folder.resolve() == locate("figures").resolve() else folder / "notebooks"
    )
