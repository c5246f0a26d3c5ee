"""Where the project is: a notebook, a test and a command mean the same file by the same relative path."""

import tomllib
from pathlib import Path


def project_root() -> Path:
    """The nearest folder, from the working directory upwards, whose pyproject.toml names "spml-core".

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
    """`path` itself when absolute (`~` is expanded), else taken from the project root."""
    return project_root() / Path(path).expanduser()
