"""What is to be executed: notebooks with their values, and whether their last success still stands."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spml_core.headless import profiles
from spml_core.headless.contract import FILES, Notebook, executed_dir, find
from spml_core.paths import locate, write_whole

PACKAGE = Path(__file__).parents[1]


class Planned:
    """A notebook with the values it would run with, the files it would write, and the state of those there are."""

    def __init__(self, notebook: Notebook, values: dict, code: str):
        self.notebook, self.name, self.values, self.code = notebook, notebook.name, values, code
        self.folder = locate(values.get("figures_dir", "figures"))
        self.output = executed_dir(self.folder) / f"{self.name}.ipynb"  # the executed copy
        self.stamp = self.output.with_suffix(".json")  # what the last success was made of

    @property
    def promised(self) -> list[Path]:
        """The files of all figures and tables that the notebook promises."""
        return [self.folder / f"{p.name}{suffix}" for p in self.notebook.promises for suffix in FILES[p.kind]]

    @property
    def state(self) -> str:
        """ "never run", "up to date", "stale" with what has changed, or "failed" for a copy without a success."""
        last = self._last
        if not last or not self.output.is_file():
            return "failed or interrupted" if self.output.is_file() else "never run"
        changed = [key for key, value in self._made_of().items() if last.get(key) != value]
        return f"stale: changed {', '.join(changed)}" if changed else "up to date"

    @property
    def last_seconds(self) -> float | None:
        """How long the last success took."""
        return self._last.get("seconds")

    @property
    def _last(self) -> dict:
        try:
            return json.loads(self.stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def _made_of(self) -> dict:
        cells = [
            (cell.cell_type, cell.metadata.get("tags"), cell.source) for cell in self.notebook.node.cells
        ]
        names = [self.name, *(promise.name for promise in self.notebook.promises)]
        files = sorted(file for name in names for file in self.folder.glob(f"{name}.*"))
        return {
            "notebook": _digest(json.dumps(cells).encode()),
            "parameters": self.values,
            "spml_core": self.code,
            "figures": {file.name: _digest(file.read_bytes()) for file in files},
        }

    def succeeded(self, seconds: float) -> None:
        """Note what a success was made of."""
        write_whole(self.stamp, as_json(self._made_of() | {"seconds": round(seconds, 1)}))


@dataclass
class Result:
    """What became of a notebook: `status` is "done", "up to date" or "failed" (then `error` says why)."""

    planned: Planned
    status: str
    seconds: float = 0.0
    error: str = ""

    @property
    def name(self) -> str:
        return self.planned.name

    @cached_property
    def numbers(self) -> dict:
        """The numbers that the notebook has left, the headline first, without its claims."""
        return {key: value for key, value in self._left.items() if key != "claims"}

    @property
    def claims(self) -> list[dict]:
        """The claims that the notebook has left: mappings with the fields of `figures.Claim`."""
        return self._left.get("claims", [])

    @cached_property
    def _left(self) -> dict:
        file = self.planned.folder / f"{self.name}.json"
        left = self.status != "failed" and file.is_file()
        return json.loads(file.read_text(encoding="utf-8")) if left else {}


def plan(
    names: Iterable[str] = (), parameters: Mapping[str, object] | None = None, profile: str = profiles.QUICK
) -> list[Planned]:
    """Return the notebooks with the values they would run with; nothing is executed.

    Args: as of `runner.run_notebooks`.
    """
    notebooks = find(names)
    values = profiles.resolve(notebooks, parameters or {}, profiles.load(profile))
    code = hashlib.sha256()
    for module in sorted(PACKAGE.rglob("*.py")):
        code.update(f"{module.relative_to(PACKAGE)} {_digest(module.read_bytes())}\n".encode())
    return [Planned(notebook, values[notebook.name], code.hexdigest()) for notebook in notebooks]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def as_json(content) -> str:
    """Return JSON as the files beside figures have it."""
    return json.dumps(content, indent=2) + "\n"
