"""What is to be executed: notebooks with their values, and whether their last success still stands."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from spml_core.headless import profiles
from spml_core.headless.contract import FILES, Notebook, executed_dir, find
from spml_core.paths import locate, write_whole

PACKAGE = Path(__file__).parents[1]


class Planned:
    """A notebook with the values it would run with, the files it would write, and the state of those there are."""

    def __init__(self, notebook: Notebook, values: dict, output_dir: Path | None, code: str):
        self.notebook, self.name, self.values = notebook, notebook.name, values
        figures_dir = values.get("figures_dir", "figures")
        self.folder = locate(figures_dir)
        output_dir = executed_dir(figures_dir) if output_dir is None else output_dir
        self.output = output_dir / f"{self.name}.ipynb"  # the executed copy
        self.stamp = output_dir / f"{self.name}.json"  # what the last success was made of
        cells = [(cell.cell_type, cell.metadata.get("tags"), cell.source) for cell in notebook.node.cells]
        self.inputs = {"notebook": _digest(json.dumps(cells)), "parameters": values, "spml_core": code}

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
        saved = [f"{p.name}{suffix}" for p in self.notebook.promises for suffix in (".csv", ".caption.json")]
        own = [self.folder / name for name in (*saved, f"{self.name}.json", f"{self.name}.parameters.json")]
        written = {file.name: _digest(file.read_bytes()) for file in (*self.promised, *own) if file.is_file()}
        return self.inputs | {"figures": written}

    def succeeded(self, seconds: float) -> None:
        """Note what a success was made of."""
        write_whole(self.stamp, as_json(self._made_of() | {"seconds": round(seconds, 1)}))


class Result:
    """What became of a notebook: `status` is "done", "up to date" or "failed" (then `error` says why).

    `numbers` and `claims` are those that the notebook has left: the first number is its headline, and a claim is a
    mapping with the fields of `figures.Claim`.
    """

    def __init__(self, planned: Planned, status: str, seconds: float = 0.0, error: str = ""):
        self.planned, self.name, self.status = planned, planned.name, status
        self.seconds, self.error = seconds, error
        file = planned.folder / f"{planned.name}.json"
        left = status != "failed" and file.is_file()
        self.numbers = json.loads(file.read_text(encoding="utf-8")) if left else {}
        self.claims = self.numbers.pop("claims", [])


def plan(
    names: Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
    notebooks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
    profile: str = profiles.QUICK,
) -> list[Planned]:
    """Return the notebooks with the values they would run with; nothing is executed.

    Args: as of `runner.run_notebooks`.
    """
    notebooks = find(names, notebooks_dir)
    values = profiles.resolve(notebooks, parameters or {}, profiles.load(profile, notebooks_dir))
    modules = sorted(PACKAGE.rglob("*.py"))
    code = _digest(json.dumps([(str(f.relative_to(PACKAGE)), _digest(f.read_bytes())) for f in modules]))
    output = None if output_dir is None else locate(output_dir)
    return [Planned(notebook, values[notebook.name], output, code) for notebook in notebooks]


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def as_json(content) -> str:
    """Return JSON as the files beside figures have it."""
    return json.dumps(content, indent=2) + "\n"
