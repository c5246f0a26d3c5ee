"""Read notebooks without executing them: which there are, what they declare, what figures and tables they promise."""

import ast
import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

import nbformat
from pydantic import ConfigDict, TypeAdapter, ValidationError

from spml_core import words
from spml_core.paths import locate

FILES = {"figure": (".pdf", ".png"), "table": (".csv", ".tex")}  # suffixes of what is promised
SHOWN_AS = {"figure": "image/png", "table": "text/html"}  # in the output of a notebook's cell


class NotebookError(ValueError):
    """A notebook, a name or a parameter is invalid; raised before anything is executed or written."""


@dataclass(frozen=True)
class Parameter:
    """One line `name: type = default  # help` of the cell tagged "parameters"."""

    name: str
    type: str
    default: object
    help: str
    adapter: TypeAdapter = field(repr=False, compare=False)

    def coerce(self, value):
        """Return `value` as the declared type, in plain JSON types.

        Text is read as on a command line ("false", "1e-4", "[0, 1]", "[an, gr]", "none"; lists and the like as Python
        or YAML, of which JSON is a part); any other value (numpy scalar, path, tuple, ...) must have the type already.

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
        except ValidationError:
            if value.strip().startswith(("[", "{", "(")):
                for read_as in (ast.literal_eval, words.read_yaml):
                    with suppress(ValueError, TypeError, SyntaxError):
                        return _validate(self.adapter, read_as(value))
            raise


def _validate(adapter: TypeAdapter, value):
    """Validate strictly, through JSON: a tuple may be a list, but 1.5 and True are not int, and 1 is not bool."""
    plain = json.dumps(value, default=lambda v: v.tolist() if hasattr(v, "tolist") else os.fspath(v))
    return adapter.dump_python(adapter.validate_json(plain, strict=True), mode="json")


@dataclass(frozen=True)
class Promise:
    """A figure or table that a notebook saves under a literal name.

    Args:
        kind: "figure" or "table".
        cell: index of the cell that saves it first.
        source: the papers' figures that it redraws: ("GR Fig 3a", "GR Fig 3b/3c") of `source="GR Fig 3a; GR Fig
            3b/3c"`.
    """

    kind: str
    name: str
    cell: int
    source: tuple[str, ...]


class Notebook:
    """A notebook file, read once, on first access; raises `NotebookError` if it cannot be read."""

    def __init__(self, path: str | Path):
        self.path, self.name = Path(path), Path(path).stem

    @cached_property
    def node(self):
        """The notebook as a node of nbformat."""
        try:
            return nbformat.read(self.path, as_version=4)
        except Exception as error:  # nbformat and json raise many kinds
            raise NotebookError(f"{self.path} is not a readable notebook: {reason(error)}") from error

    @property
    def title(self) -> str:
        """The first heading, "" if there is none."""
        return next(headings(self.node.cells), "")

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name, in order."""
        lines, statements = self._declaration
        found = [_parameter(n, lines, self.name) for n in statements if not isinstance(n, ast.Assert)]
        return {parameter.name: parameter for parameter in found}

    def check(self, values: Mapping[str, object]) -> None:
        """Raise `NotebookError` if an `assert` of the parameters cell does not hold for `values`."""
        for node in (n for n in self._declaration[1] if isinstance(n, ast.Assert)):
            line = compile(ast.Module([node], type_ignores=[]), self.name, "exec", optimize=0)
            try:
                exec(line, dict(values))
            except Exception as error:  # an AssertionError, or any error from the line itself
                used = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)} & values.keys()
                got = ", ".join(f"{key} = {values[key]!r}" for key in sorted(used))
                why = str(error) if isinstance(error, AssertionError) else reason(error)
                needed = f"`{ast.unparse(node.test)}`" + (f" ({why})" if why else "")
                raise NotebookError(f"{self.name} needs {needed}, but {got}") from error

    @cached_property
    def _declaration(self) -> tuple[list[str], list[ast.stmt]]:
        """Lines and statements of the cell tagged "parameters"."""
        tagged = [cell for cell in self.node.cells if "parameters" in cell.metadata.get("tags", [])]
        if len(tagged) != 1 or tagged[0].cell_type != "code":
            raise NotebookError(
                f'{self.name}: exactly one code cell must carry the tag "parameters", not {len(tagged)}'
            )
        return tagged[0].source.splitlines(), self._parse(tagged[0].source, "parameters cell").body

    @cached_property
    def promises(self) -> list[Promise]:
        """The literal calls `save_figure(fig, "NAME", ...)` and `save_table(table, "NAME", ...)`, figures first."""
        found = {}
        for index, cell in enumerate(self.node.cells):
            if cell.cell_type != "code":
                continue
            for call in ast.walk(self._parse(cell.source, f"cell {index + 1}")):
                function = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
                kind = function.removeprefix("save_")
                if function == kind or kind not in FILES:
                    continue
                given = {k.arg: k.value for k in call.keywords} | dict(enumerate(call.args))
                name = getattr(given.get("name", given.get(1)), "value", None)
                source = getattr(given.get("source"), "value", "")
                if isinstance(name, str):
                    sources = tuple(filter(None, map(str.strip, source.split(";"))))
                    found.setdefault((kind, name), Promise(kind, name, index, sources))
        return sorted(found.values(), key=lambda promise: promise.kind)

    def promised(self, kind: str) -> tuple[str, ...]:
        """Return the names of the figures, or of the tables, in order."""
        return tuple(promise.name for promise in self.promises if promise.kind == kind)

    def _parse(self, source: str, where: str) -> ast.Module:
        try:
            return ast.parse(source)
        except SyntaxError as error:
            raise NotebookError(
                f"{self.name}, {where}, line {error.lineno}: not plain Python: {error.msg}"
            ) from error


def _parameter(node: ast.stmt, lines: list[str], notebook: str) -> Parameter:
    where = f"{notebook}, parameters cell: {lines[node.lineno - 1].strip()!r}"
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value):
        raise NotebookError(f"{where} is not of the form `name: type = literal  # help`")
    annotation = ast.unparse(node.annotation)
    try:
        kind = eval(annotation, dict(vars(typing)))
        adapter = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
        default = _validate(adapter, ast.literal_eval(node.value))
    except Exception as error:  # eval and pydantic raise many kinds
        raise NotebookError(
            f"{where} needs a literal of a builtin or typing type: {reason(error)}"
        ) from error
    comment = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()  # ast counts UTF-8 bytes
    return Parameter(node.target.id, annotation, default, comment.partition("#")[2].strip(), adapter)


def headings(cells: Iterable) -> Iterator[str]:
    """Yield the headings of the Markdown cells among `cells`."""
    for cell in cells:
        for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
            if line.startswith("#"):
                yield line.lstrip("#").strip()


def reason(error: Exception) -> str:
    """Return one line about any exception; for pydantic's, the first error."""
    if isinstance(error, ValidationError):
        return error.errors()[0]["msg"]
    return f"{type(error).__name__}: {error}"


def find(names: Iterable[str] = ()) -> list[Notebook]:
    """Return the notebooks of the project called `names` (number, name, file name or path), or all of them, sorted.

    Raises:
        NotebookError: a name matches no notebook, or more than one.
    """
    folder = locate("notebooks")
    every = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    chosen = {}
    for name in list(names) or every:
        stem = PurePath(name).name.removesuffix(".ipynb")
        begun = [path for key, path in every.items() if key.startswith(f"{stem}-")]
        matches = [every[stem]] if stem in every else begun
        if name.endswith(".ipynb") and Path(name).is_file():
            matches = [Path(name).resolve()]
        if len(matches) != 1:
            problem = "matches several notebooks" if matches else "is not a notebook"
            choice = [path.stem for path in matches] or words.nearest(stem, every, cutoff=0.4) or list(every)
            raise NotebookError(f"{name!r} {problem}; choose from: {', '.join(choice)}")
        chosen[matches[0].stem] = matches[0]
    if not chosen:
        raise NotebookError(f"no notebooks in {folder}")
    return list(map(Notebook, chosen.values()))


def read_json(file: Path) -> dict:
    """Return the content of a JSON file, {} if there is no file."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def findings(folder: Path, name: str) -> tuple[dict, list[dict]]:
    """Return what a notebook has left in a folder of figures: its numbers, the headline first, and its claims."""
    numbers = read_json(folder / f"{name}.json")
    return numbers, numbers.pop("claims", [])


def executed_dir(figures: Path) -> Path:
    """Return the folder of the executed copies for a folder of figures: a copy never outlives its figures.

    runs/notebooks for figures/, and a folder "notebooks" inside any other folder of figures.
    """
    own = figures.resolve() == locate("figures").resolve()
    return locate("runs/notebooks") if own else figures / "notebooks"
