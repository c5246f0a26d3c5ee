"""Check that the folder of a data set exists and what is in it, before anything in it is read."""

from collections.abc import Sequence
from pathlib import Path

from spml_core import words
from spml_core.data.dataset import DataError, OptionError
from spml_core.data.files import table
from spml_core.paths import locate, project_root

SHOWN = 12  # entries of a folder that a message lists
DEEP = 2  # levels below the given folder that are searched for label files


def find(root: str | Path, expected: str) -> Path:
    """Return the folder `root`; a relative one starts at the project root.

    Args:
        expected: a sentence that describes the layout it should have.

    Raises:
        OptionError: there is no such folder, it is a file, or it is empty.
    """
    folder, given = locate(root), Path(root).expanduser()
    if not folder.exists():
        found = f" {given.absolute()} exists: pass the full path." if given.exists() else ""
        start = "" if given.is_absolute() else f" A relative path starts at {project_root()}."
        raise OptionError(f"{folder} does not exist; give --root FOLDER.{start}{found}")
    if not folder.is_dir():
        raise OptionError(f"{folder} is a file, not a folder; give --root FOLDER. {expected}")
    if not any(folder.iterdir()):
        raise OptionError(f"{folder} is empty; give --root FOLDER. {expected}")
    return folder


def require_files(root: Path, files: Sequence[Path], expected: str) -> None:
    """Raise `DataError` if label files are missing: it lists them, the expected layout, and the folder's content."""
    if absent := [file for file in files if not file.is_file()]:
        what = f"{words.count(len(absent), 'label file')} {'is' if len(absent) == 1 else 'are'}"
        named = table.bullets(absent)
        raise DataError(f"{what} missing:{named}\n{expected}\n{contents(root, absent[0])}")


def contents(root: Path, wanted: Path | None = None) -> str:
    """Return a sentence on what a folder contains, and on which folder below it has the wanted file."""
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in root.iterdir())
    text = f"{root} holds {words.listed(names, SHOWN) or 'nothing'}."
    if wanted is None:
        return text
    relative = wanted.relative_to(root)
    below = (path for depth in range(1, DEEP + 1) for path in sorted(root.glob(f"{'*/' * depth}{relative}")))
    folders = [*(path.parents[len(relative.parts) - 1] for path in below)]
    folders += [parent for parent in list(root.parents)[:DEEP] if (parent / relative).is_file()]
    return f"{text} Did you mean {folders[0]}?" if folders else text
