"""Plan what to execute: notebooks with their values, and whether their last success is up to date."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from spml_core.headless import profiles
from spml_core.headless.contract import FILES, Notebook, executed_dir, find, findings, read_json
from spml_core.paths import locate, write_whole

PACKAGE = Path(__file__).parents[1]


class Planned:
    """A notebook with the values it would run with, the files it would write, and the state of existing ones."""

    def __init__(self, notebook: Notebook, values: dict, code: str):
        self.notebook, self.name, self.values, self.code = notebook, notebook.name, values, code
        self.folder = locate(values.get("figures_dir", "figures"))
        self.output = executed_dir(self.folder) / f"{self.name}.ipynb"  # the executed copy
        self.stamp = self.output.with_suffix(".json")  # what the last success was computed from

    @property
    def promised(self) -> list[Path]:
        """The files of all figures and tables that the notebook promises."""
        return [self.folder / f"{p.name}{suffix}" for p in self.notebook.promises for suffix in FILES[p.kind]]

    @property
    def state(self) -> str:
        """ "never run", "up to date", "stale" with what has changed, or "failed" for a copy without a success."""
        last = read_json(self.stamp)
        if not last or not self.output.is_file():
            return "failed or interrupted" if self.output.is_file() else "never run"
        changed = [key for key, value in self._made_of().items() if last.get(key) != value]
        return f"stale: changed {', '.join(changed)}" if changed else "up to date"

    @property
    def last_seconds(self) -> float | None:
        """The duration of the last success."""
        return read_json(self.stamp).get("seconds")

    def _made_of(self) -> dict:
        cells = self.notebook.node.cells
        cells = [(cell.cell_type, cell.metadata.get("tags"), cell.source) for cell in cells]
        names = [self.name, *(promise.name for promise in self.notebook.promises)]
        files = sorted(file for name in names for file in self.folder.glob(f"{name}.*"))
        return {
            "notebook": _digest(json.dumps(cells).encode()),
            "parameters": self.values,
            "spml_core": self.code,
            "figures": {file.name: _digest(file.read_bytes()) for file in files},
        }

    def succeeded(self, seconds: float) -> None:
        """Record the parameters, beside the figures, and what a success was computed from."""
        write_whole(self.folder / f"{self.name}.parameters.json", as_json(self.values))
        write_whole(self.stamp, as_json(self._made_of() | {"seconds": round(seconds, 1)}))


class Result:
    """The outcome of a notebook: `status` is "done", "up to date" or "failed" (then `error` says why).

    `numbers` and `claims` are those that the notebook has written: the first number is its headline, and a claim is a
    mapping with the fields of `figures.Claim`.
    """

    def __init__(self, planned: Planned, status: str, seconds: float = 0.0, error: str = ""):
        self.planned, self.name, self.status = planned, planned.name, status
        self.seconds, self.error = seconds, error
        self.numbers, self.claims = ({}, []) if error else findings(planned.folder, planned.name)


def plan(
    names: Iterable[str] = (), parameters: Mapping[str, object] | None = None, profile: str = profiles.QUICK
) -> list[Planned]:
    """Return the notebooks with the values they would run with; nothing is executed.

    Args: as in `runner.run_notebooks`.
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
    """Return JSON in the form of the files beside figures."""
    return json.dumps(content, indent=2) + "\n"
