"""Running notebooks without a screen: papermill executes, this module adds what it leaves open.

Errors that a widget swallows, promised figures that are missing, kernels that die, skipping what is up to date, the
longest first. Two notebooks that want the same training run need no order: the run's lock lets one train and the other
wait for it.
"""

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
from copy import deepcopy
from pathlib import Path

import click
import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.engines import papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from spml_core.headless import gallery, kernels, profiles
from spml_core.headless.contract import SHOWN_AS, headings
from spml_core.headless.planning import Planned, Result, as_json, plan
from spml_core.paths import locate, write_whole

STOP_SECONDS = 5  # an interrupted kernel has this long to end by itself
SILENT_SECONDS = 60  # between the lines that stand in for a bar where there is no terminal
TRACEBACK_LINES = 12


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
        parameters: values by name, see `Parameter.coerce`; they go before those of the profile. Each notebook takes
            those that it declares.
        force: execute what is up to date, too.
        output_dir: folder of the executed copies, default `contract.executed_dir` of their figures.
        profile: see `profiles.load`.

    Raises:
        NotebookError: a name, a parameter or a notebook is wrong; nothing was executed or written.
        KeyboardInterrupt: after all kernels have ended.
    """
    planned = plan(names, parameters, notebooks_dir, output_dir, profile)
    for one in planned:
        profiles.check(one.notebook, one.values)
    current = [one for one in planned if not force and one.state == "up to date"]
    for one in current:
        tqdm.write(f"{one.name}: up to date")
    waiting = [one for one in planned if one not in current]
    if jobs > 1:  # else the order of their numbers; what nothing is known of may be long
        known = _durations(notebooks_dir)
        waiting.sort(key=lambda one: -(one.last_seconds or known.get(one.name, math.inf)))
    results = [*(Result(one, "up to date") for one in current), *_execute(waiting, jobs)]
    write_galleries(planned, notebooks_dir)
    return sorted(results, key=lambda result: [one.name for one in planned].index(result.name))


def _durations(notebooks_dir: str | Path | None) -> dict[str, float]:
    """Seconds by notebook, from durations.json beside them, for the first execution; only their order counts."""
    file = locate("notebooks" if notebooks_dir is None else notebooks_dir) / "durations.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_galleries(planned: list[Planned], notebooks_dir: str | Path | None = None) -> list[Path]:
    """Write the gallery of each folder that holds figures of these notebooks, see `gallery.write`."""
    folders = {one.folder: one.output.parent for one in planned if one.folder.is_dir()}
    return [gallery.write(folder, executed, notebooks_dir) for folder, executed in folders.items()]


def _execute(planned: list[Planned], jobs: int) -> list[Result]:
    stopping = threading.Event()
    executions = [Execution(one, stopping) for one in planned]
    with ThreadPoolExecutor(jobs) as pool:
        pending = futures = [pool.submit(execution.run) for execution in executions]
        try:
            while pending:  # the timeout keeps Ctrl-C and the clocks of the bars alive
                _, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for execution in executions:
                    execution.show_progress()
        except KeyboardInterrupt:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            try:
                for execution in executions:
                    execution.send(signal.SIGINT)
                wait([future for future in pending if not future.cancelled()], timeout=STOP_SECONDS)
            finally:
                for execution in executions:
                    execution.send(signal.SIGKILL)
            raise
    return [future.result() for future in futures]


class Execution:
    """One execution of a notebook: its kernel, its progress and its errors; `kernels.Engine` tells it what happens."""

    def __init__(self, planned: Planned, stopping: threading.Event):
        self.planned, self.name, self.stopping = planned, planned.name, stopping
        self.manager = self.bar = self.cell = None
        self.started, self.number, self.heading = False, 0, ""
        self.errors: list[str] = []

    def run(self) -> Result:
        """Execute the notebook and check what it promises; an error is part of the result."""
        values, cells = self.planned.values, self.planned.notebook.node.cells
        self.begin, self.begin_time = time.monotonic(), time.time()
        self.last_line = self.begin
        shown = " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
        tqdm.write(f"{self.name}: started, {shown or 'no parameters'}")
        look = "{desc} |{bar:16}| {n_fmt}/{total_fmt} cells {elapsed}{postfix}"
        options = {"leave": False, "disable": None, "dynamic_ncols": True, "bar_format": look}
        with tqdm(total=len(cells), desc=self.name, **options) as bar:
            self.silent, self.bar = bar.disable, bar
            error = self._failure_of_attempt()
            self.bar = None
        seconds = time.monotonic() - self.begin
        if not error:
            self.planned.succeeded(seconds)
        result = Result(self.planned, "failed" if error else "done", seconds, error)
        tqdm.write(f"{self.name}: {result.status} after {seconds:.0f} s")
        return result

    def _failure_of_attempt(self) -> str:
        """Execute and check; the text of the failure, "" for none."""
        try:
            before = {file: _mark(file) for file in self.planned.promised}
            self.planned.stamp.unlink(missing_ok=True)
            executed = self._papermill()
            if self.errors or (broken := self._broken_promise(executed, before)):
                return self.errors[0] if self.errors else broken
            folder = self.planned.folder
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"{self.name}.parameters.json", as_json(self.planned.values))
        except PapermillExecutionError as exception:
            return self.errors[0] if self.errors else self._failure(exception.ename, exception.evalue)
        except DeadKernelError:
            return self._failure("DeadKernelError", self._cause_of_death())
        except Exception as exception:
            return self._failure(type(exception).__name__, str(exception))
        return ""

    def _papermill(self):
        """Execute a copy in its place; a kernel that failed to start gets a second chance."""
        source = deepcopy(self.planned.notebook.node)
        source.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        output = self.planned.output
        output.parent.mkdir(parents=True, exist_ok=True)
        path = str(output).replace("{", "{{").replace("}", "}}")  # papermill formats paths
        papermill_engines.register("spml", kernels.Engine)
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # failures are told once, in the end
        options = {"engine_name": "spml", "kernel_name": "python3", "language": "python"}
        for last in (False, True):
            nbformat.write(source, output)
            try:
                return papermill.execute_notebook(
                    path, path, self.planned.values, run=self, progress_bar=False, **options
                )
            except Exception:
                if self.started or last or self.stopping.is_set():
                    raise

    def _broken_promise(self, executed, before: dict[Path, tuple | None]) -> str:
        """Which figure or table was not written or not shown, "" for none."""
        unwritten = [str(file) for file, mark in before.items() if _mark(file) in (None, mark)]
        if unwritten:
            return f"promised figure or table not written by this run: {', '.join(unwritten)}"
        # papermill has put a cell of its own, without outputs, behind the parameters
        cells = [c for c in executed.cells if "injected-parameters" not in c.metadata.get("tags", [])]
        for kind, mime in SHOWN_AS.items():
            shown = [sum(mime in out.get("data", {}) for out in cell.get("outputs", [])) for cell in cells]
            promises = [promise for promise in self.planned.notebook.promises if promise.kind == kind]
            if sum(shown) < len(promises):
                unseen = [p.name for p in promises if not shown[p.cell]] or [p.name for p in promises]
                return f"{kind} saved but not shown in the notebook's output: {', '.join(unseen)}"
        return ""

    def on_start(self, notebook):
        self.started = True

    def on_cell(self, cell, cell_index):
        self.cell = cell
        self.number += (
            "injected-parameters" not in cell.metadata.tags
        )  # papermill's cell is not in the source
        self.heading = [self.heading, *headings([cell])][-1]
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

    def show_progress(self):
        """Keep the clock of the bar going; without a terminal, write a line a minute."""
        if (bar := self.bar) is None:
            return
        if not self.silent:
            bar.refresh()
        elif time.monotonic() - self.last_line > SILENT_SECONDS:
            self.last_line = time.monotonic()
            minutes = (self.last_line - self.begin) / 60
            where = f"cell {self.number} of {len(self.planned.notebook.node.cells)}, {self.heading!r}"
            tqdm.write(f"{self.name}: {minutes:.0f} min, {where}{self._trained()}")

    def _trained(self) -> str:
        """How many runs lie in the notebook's folder of runs that were not there when it started."""
        if "runs_dir" not in self.planned.values:
            return ""
        folder = locate(self.planned.values["runs_dir"])
        new = sum(file.stat().st_mtime >= self.begin_time for file in folder.glob("*/summary.json"))
        return f", runs trained since the start: {new}"

    @property
    def _process(self):
        """The kernel's process, None before there is one."""
        return getattr(getattr(self.manager, "provisioner", None), "process", None)

    def send(self, number: int):
        """Send a signal to the kernel and its children."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(
                    self._process.pid, number
                )  # a kernel leads a process group: its workers end with it

    def _cause_of_death(self) -> str:
        process = self._process
        code = None if process is None else process.poll()
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
