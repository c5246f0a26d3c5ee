"""Where the project is: a notebook, a test and a command mean the same file by the same relative path."""

import os
import shutil
import sys
import tomllib
from pathlib import Path


def project_root() -> Path:
    """Return the nearest folder, from the working directory upwards, whose pyproject.toml names "spml-core".

    Outside the project this is the working directory: an installed `spml` works on the folder it stands in.
    """
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _is_project(folder)), here)


def _is_project(folder: Path) -> bool:
    try:
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, unreadable, or not TOML: not ours
        return False
    return content.get("project", {}).get("name") == "spml-core"


def locate(path: str | Path) -> Path:
    """Return `path` itself when absolute (`~` is expanded), else taken from the project root."""
    return project_root() / Path(path).expanduser()


def command() -> str:
    """Return what a shell in the working directory must be given to run this environment's `spml`.

    "spml" where the shell finds that one, else its path, e.g. ".venv/bin/spml": what is printed can be pasted.
    """
    script = Path(sys.executable).with_name("spml")
    found = shutil.which("spml")
    if not script.is_file() or (found and Path(found).samefile(script)):
        return "spml"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def write_whole(file: Path, text: str) -> None:
    """Write a text file so that no reader, and no interruption, ever leaves a part of it."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
