"""Paths in the project: a relative path means the same file in a notebook, a test and a command."""

import os
import shutil
import sys
import tomllib
from contextlib import suppress
from pathlib import Path


def project_root() -> Path:
    """Return the nearest folder, from the working directory upwards, whose pyproject.toml names "spml-core".

    Outside the project this is the working directory: an installed `spml` works on the current folder.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        with suppress(OSError, ValueError):  # missing, unreadable, or not TOML
            content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
            if content.get("project", {}).get("name") == "spml-core":
                return folder
    return here


def locate(path: str | Path) -> Path:
    """Return `path` itself if absolute (`~` is expanded), else relative to the project root."""
    return project_root() / Path(path).expanduser()


def command() -> str:
    """Return the command that runs this environment's `spml` in a shell in the working directory.

    It is "spml" if the shell finds that one, else its path, e.g. ".venv/bin/spml", so that what is printed can be
    pasted.
    """
    script = Path(sys.executable).with_name("spml")
    found = shutil.which("spml")
    if not script.is_file() or (found and Path(found).samefile(script)):
        return "spml"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file atomically: no reader sees, and no interruption leaves, a part of it. Its folder is created."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_bytes(content.encode() if isinstance(content, str) else content)
    draft.replace(file)
