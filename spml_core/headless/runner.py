"""Running notebooks without a screen: papermill executes, this module adds what it leaves open.

Errors that a widget swallows, promised figures that are missing, kernels that die, skipping what is up to date, the
longest first. Two notebooks that want the same training run need no order: the run's lock lets one train and the other
wait for it.
"""

import hashlib
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.engines import papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from spml_core.headless import contract as notebooks
from spml_core.headless import gallery, kernels, profiles
from spml_core.paths import locate

STOP_SECONDS = 5  # an interrupted kernel has this long to end by itself
TRACEBACK_LINES = 12


@dataclass(frozen=True)
class Result:
    """What became of one notebook; `status` is "done", "up to date" or "failed" (then `error` says why)."""

    name: str
    status: str
    figures: tuple[str, ...]
    tables: tuple[str, ...]
    executed: Path  # folder of the executed copy
    gallery: Path
    seconds: float = 0.0
    headline: str = ""
    claims: tuple[dict, ...] = ()
    error: str = ""


def run_notebooks(
    names: Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
    jobs: int = 1,
    force: bool = False,
    notebooks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
    profile: str = profiles.QUICK,
) -> list[Result]:
    """Run notebooks without a screen, `jobs` at a time, go on when one fails, and write the gallery of their figures.

    Args:
        names: numbers, names or paths of notebooks; none means all.
        parameters: values for all of them, see `Parameter.coerce`; they go before those of the profile. With `names`
            each notebook must declare them, without, each that declares them takes them.
        force: execute what is up to date, too.
        output_dir: folder of the executed copies, default `notebooks.executed_dir` of their figures.
        profile: see `profiles.load`.

    Raises:
        NotebookError: a name, a parameter or a notebook is wrong; nothing was executed or written.
        KeyboardInterrupt: after all kernels have ended.
    """
    runs = plan(names, parameters, notebooks_dir, output_dir, profile)
    for run in runs:
        profiles.check(run.name, run.declared, run.values)
    results = {run.name: run.result("up to date") for run in runs if not force and run.is_up_to_date()}
    for name in results:
        tqdm.write(f"{name}: up to date")
    waiting = [run for run in runs if run.name not in results]
    if jobs > 1:  # else the order of their numbers; what nothing is known of may be long
        known = _durations(notebooks_dir)
        waiting.sort(key=lambda run: -(run.last_seconds or known.get(run.name, math.inf)))
    results |= {result.name: result for result in _execute(waiting, jobs)}
    write_galleries(runs, notebooks_dir)
    return [results[run.name] for run in runs]


def _durations(notebooks_dir: str | Path | None) -> dict[str, float]:
    """Seconds by notebook, from durations.json beside them, for the first execution; only their order counts."""
    file = locate("notebooks" if notebooks_dir is None else notebooks_dir) / "durations.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def plan(
    names: Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
    notebooks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
    profile: str = profiles.QUICK,
) -> list["_Run"]:
    """The notebooks with the values they would run with; nothing is executed. Arguments as of `run_notebooks`."""
    names = list(names)
    chosen = {path.stem: notebooks.read(path) for path in notebooks.find(names, notebooks_dir)}
    declared = {name: notebooks.declared(nb, name) for name, nb in chosen.items()}
    values = profiles.resolve(
        declared, parameters or {}, profiles.load(profile, notebooks_dir), strict=bool(names)
    )
    package = Path(__file__).parent.parent
    code = _digest(
        *(part for f in sorted(package.rglob("*.py")) for part in (f.relative_to(package), f.read_bytes()))
    )
    output = None if output_dir is None else locate(output_dir)
    return [_Run(name, nb, declared[name], values[name], output, code) for name, nb in chosen.items()]


def write_galleries(runs: list["_Run"], notebooks_dir: str | Path | None = None) -> list[Path]:
    """The gallery of each folder that holds figures of these notebooks, see `gallery.write`."""
    folders = {run.folder: run.output.parent for run in runs if run.folder.is_dir()}
    return [gallery.write(folder, executed, notebooks_dir) for folder, executed in folders.items()]


def _execute(runs: list["_Run"], jobs: int) -> list[Result]:
    stopping = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        pending = futures = [pool.submit(run.execute, stopping) for run in runs]
        try:
            while pending:  # the timeout keeps Ctrl-C and the clocks of the bars alive
                _, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for run in runs:
                    run.refresh()
        except KeyboardInterrupt:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            try:
                for run in runs:
                    run.send(signal.SIGINT)
                wait([future for future in pending if not future.cancelled()], timeout=STOP_SECONDS)
            finally:
                for run in runs:
                    run.send(signal.SIGKILL)
            raise
    return [future.result() for future in futures]


class _Run:
    """One notebook with its values; while it executes: its kernel, progress bar and errors."""

    def __init__(self, name: str, nb, declared: dict, values: dict, output_dir: Path | None, code: str):
        self.name, self.nb, self.declared, self.values = name, nb, declared, values
        self.figures = notebooks.promises(nb, name)
        self.tables = notebooks.promises(nb, name, "save_table")
        figures_dir = values.get("figures_dir", "figures")
        self.folder = locate(figures_dir)
        output_dir = notebooks.executed_dir(figures_dir) if output_dir is None else output_dir
        self.output = output_dir / f"{name}.ipynb"  # the executed copy
        self.stamp = output_dir / f"{name}.json"  # what the last success was made of
        source = _digest(
            *(f"{cell.cell_type} {cell.metadata.get('tags')} {cell.source}" for cell in nb.cells)
        )
        self.inputs = {"source": source, "parameters": values, "spml_core": code}
        self.manager = self.bar = self.cell = None
        self.started, self.number, self.heading = False, 0, ""
        self.errors: list[str] = []

    def is_up_to_date(self) -> bool:
        return self.state() == "up to date"

    def state(self) -> str:
        """ "never run", "up to date", "stale" with what has changed, or "failed" for a copy without a success."""
        last = self._last()
        if not last or not self.output.is_file():
            return "failed or interrupted" if self.output.is_file() else "never run"
        words = {"source": "notebook"}
        changed = [words.get(key, key) for key, value in self._made_of().items() if last.get(key) != value]
        return f"stale: changed {', '.join(changed)}" if changed else "up to date"

    @property
    def last_seconds(self) -> float | None:
        """How long the last success took."""
        return self._last().get("seconds")

    def _last(self) -> dict:
        with suppress(OSError, ValueError):
            return json.loads(self.stamp.read_text(encoding="utf-8"))
        return {}

    def _made_of(self) -> dict:
        own = (f"{self.name}.json", f"{self.name}.parameters.json")
        both = (*self.figures, *self.tables)
        beside = [name + suffix for name in both for suffix in (".csv", ".caption.json")]
        files = [*self._promised(), *(self.folder / name for name in (*beside, *own))]
        written = {file.name: _digest(file.read_bytes()) for file in files if file.is_file()}
        return {**self.inputs, "figures": written}

    def _promised(self) -> list[Path]:
        return [
            self.folder / (name + suffix)
            for names, suffixes in ((self.figures, (".pdf", ".png")), (self.tables, (".csv", ".tex")))
            for name in names
            for suffix in suffixes
        ]

    def result(self, status: str, seconds: float = 0.0, error: str = "") -> Result:
        headline, claims = "", ()
        if status != "failed" and (file := self.folder / f"{self.name}.json").is_file():
            numbers = json.loads(file.read_text(encoding="utf-8"))
            claims = tuple(numbers.pop("claims", ()))
            for key, value in [*numbers.items()][:1]:
                headline = f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        where = (tuple(self.figures), tuple(self.tables), self.output.parent, self.folder / "index.html")
        return Result(self.name, status, *where, seconds, headline, claims, error)

    def execute(self, stopping: threading.Event) -> Result:
        begin = time.monotonic()
        shown = " ".join(f"{key}={json.dumps(value)}" for key, value in self.values.items())
        tqdm.write(f"{self.name}: started, {shown or 'no parameters'}")
        # disable=None: without a terminal the lines at start and end must do
        look = "{desc} |{bar:16}| {n_fmt}/{total_fmt} cells {elapsed}{postfix}"
        options = {"leave": False, "disable": None, "dynamic_ncols": True, "bar_format": look}
        self.bar = tqdm(total=len(self.nb.cells), desc=self.name, **options)
        try:
            error = self._attempt(stopping)
        except PapermillExecutionError as exception:
            error = self.errors[0] if self.errors else self._failure(exception.ename, exception.evalue)
        except DeadKernelError:
            error = self._failure("DeadKernelError", self._cause_of_death())
        except Exception as exception:
            error = self._failure(type(exception).__name__, str(exception))
        finally:
            self.bar.close()
        seconds = time.monotonic() - begin
        if not error:
            _write(self.stamp, _json({**self._made_of(), "seconds": round(seconds, 1)}))
        result = self.result("failed" if error else "done", seconds, error)
        tqdm.write(f"{self.name}: {result.status} after {result.seconds:.0f} s")
        return result

    def _attempt(self, stopping: threading.Event) -> str:
        """Execute and check; the text of the failure, "" for none."""
        before = {file: _mark(file) for file in self._promised()}
        self.stamp.unlink(missing_ok=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        nb = self._papermill(stopping)
        if self.errors:
            return self.errors[0]
        unwritten = [str(file) for file, mark in before.items() if _mark(file) in (None, mark)]
        if unwritten:
            return f"promised figure or table not written by this run: {', '.join(unwritten)}"
        for what, kind, function, promised in (
            ("figure", "image/png", "save_figure", self.figures),
            ("table", "text/html", "save_table", self.tables),
        ):
            shown = [sum(kind in out.get("data", {}) for out in c.get("outputs", [])) for c in nb.cells]
            if sum(shown) < len(promised):
                cells = notebooks.promises(nb, self.name, function)
                unseen = [name for name, index in cells.items() if not shown[index]] or list(cells)
                return f"{what} saved but not shown in the notebook's output: {', '.join(unseen)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / f"{self.name}.parameters.json", _json(self.values))
        return ""

    def _papermill(self, stopping: threading.Event):
        """Execute the copy in place; a kernel that failed to start gets a second chance."""
        self.nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = str(self.output).replace("{", "{{").replace("}", "}}")  # papermill formats paths
        papermill_engines.register("spml", kernels.Engine)
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # failures are told once, in the end
        options = {
            "engine_name": "spml",
            "kernel_name": "python3",
            "language": "python",
            "progress_bar": False,
        }
        for last in (False, True):
            nbformat.write(self.nb, self.output)
            try:
                return papermill.execute_notebook(path, path, self.values, run=self, **options)
            except Exception:
                if self.started or last or stopping.is_set():
                    raise

    def on_start(self, notebook):
        self.started = True

    def on_cell(self, cell, cell_index):
        self.cell = cell
        self.number += (
            "injected-parameters" not in cell.metadata.tags
        )  # papermill's cell is not in the source
        self.heading = notebooks.heading(cell) or self.heading
        self.bar.n = max(0, self.number - 1)
        self.bar.set_postfix_str(self.heading[:40])

    def on_message(self, kind: str, content: dict):
        """Note each error a kernel reports, also those that a widget catches, shows and clears."""
        if "raises-exception" in self.cell.metadata.tags:
            return
        if kind == "error" and (content["ename"], content["evalue"]) not in (
            ("SystemExit", ""),
            ("SystemExit", "0"),
        ):
            self.errors.append(self._failure(content["ename"], content["evalue"], content["traceback"]))
        if (
            kind == "stream"
            and content["name"] == "stderr"
            and "Traceback (most recent call" in content["text"]
        ):
            lines = content["text"].rstrip().splitlines()
            self.errors.append(self._failure("traceback on stderr", lines[-1], lines))

    def refresh(self):
        if self.bar is not None:
            self.bar.refresh()

    def send(self, number: int):
        process = getattr(getattr(self.manager, "provisioner", None), "process", None)
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)  # a kernel leads a process group: its workers end with it

    def _cause_of_death(self) -> str:
        process = self.manager.provisioner.process
        code = process.poll() if process is not None else None
        if code is None or code >= 0:
            return f"the kernel ended (exit code {code})"
        name = signal.Signals(-code).name
        return f"the kernel was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def _failure(self, kind: str, message: str, traceback: Iterable[str] = ()) -> str:
        if self.cell is None:
            return f"before the first cell: {kind}: {message}"
        lines = [line for line in self.cell.source.splitlines() if line.strip()]
        source = [f"  | {line}" for line in lines[:4]] + ["  | ..."] * (len(lines) > 4)
        tail = click.unstyle("\n".join(traceback)).splitlines()[-TRACEBACK_LINES:]
        return "\n".join([f"cell {self.number}: {kind}: {message}", *source, *(f"  {line}" for line in tail)])


def _mark(file: Path) -> tuple | None:
    """Changes whenever a file is written or replaced; None when there is none."""
    if not file.is_file():
        return None
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _digest(*parts) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        digest.update(f"{len(content)} ".encode() + content)
    return digest.hexdigest()


def _json(content) -> str:
    return json.dumps(content, indent=2) + "\n"


def _write(file: Path, text: str):
    """All or nothing."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
