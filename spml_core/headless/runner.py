"""Run notebooks headless: papermill executes them, and this module adds what papermill lacks.

It handles errors that a widget swallows, missing figures that were promised, and kernels that die, and skips what is
up to date. Notebooks that need the same training run may start in any order: the run's lock lets one train while the
other waits.
"""

import json
import logging
import math
import os
import signal
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import click
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.engines import papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from spml_core.headless import gallery, kernels, profiles
from spml_core.headless.contract import SHOWN_AS, headings
from spml_core.headless.planning import Planned, Result, plan
from spml_core.paths import locate

# Started first, so that none is alone at the end.
LONGEST = (
    "03-benchmark",
    "04-ablation",
    "05-hyperparameters",
    "11-backbones",
    "13-selection-without-clean-labels",
    "14-label-draws",
)
STOP_SECONDS = 5  # an interrupted kernel has this long to end by itself
SILENT_SECONDS = 60  # between the lines that report a notebook's progress
TRACEBACK_LINES = 12
INJECTED = "injected-parameters"  # tag of the cell that papermill inserts after the parameters


def run_notebooks(
    names: Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
    jobs: int = 1,
    force: bool = False,
    profile: str = profiles.QUICK,
) -> list[Result]:
    """Run notebooks headless, `jobs` at a time, continue if one fails, and write the gallery of their figures.

    Args:
        names: numbers, names or paths of notebooks; none means all.
        parameters: values by name, see `Parameter.coerce`; they override those of the profile. Each notebook takes
            those that it declares.
        force: also execute what is up to date.
        profile: see `profiles.load`.

    Raises:
        NotebookError: a name, a parameter or a notebook is wrong; nothing was executed or written.
        KeyboardInterrupt: after all kernels have ended.
    """
    planned = plan(names, parameters, profile)
    for one in planned:
        profiles.check(one.notebook, one.values)
    waiting = [one for one in planned if force or one.state != "up to date"]
    done = {result.name: result for result in _execute(waiting, jobs)}
    write_galleries(planned)
    return [done.get(one.name, Result(one, "up to date")) for one in planned]


def write_galleries(planned: list[Planned]) -> list[Path]:
    """Write the gallery of each folder that holds figures of these notebooks, see `gallery.write`."""
    folders = dict.fromkeys(one.folder for one in planned)
    return [gallery.write(folder) for folder in folders if folder.is_dir()]


def _execute(planned: list[Planned], jobs: int) -> list[Result]:
    executions = sorted(map(Execution, planned), key=lambda execution: execution.name not in LONGEST)
    with ThreadPoolExecutor(jobs) as pool:
        futures = {execution.name: pool.submit(execution.run) for execution in executions}
        pending = futures.values()
        try:
            while pending:  # the timeout keeps Ctrl-C alive
                _, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for execution in executions:
                    execution.show_progress()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            try:
                for execution in executions:
                    execution.send(signal.SIGINT)
                wait([future for future in pending if not future.cancelled()], timeout=STOP_SECONDS)
            finally:
                for execution in executions:
                    execution.send(signal.SIGKILL)
            raise
    return [futures[one.name].result() for one in planned]


class Execution:
    """One execution of a notebook: its kernel, its progress and its errors, as `kernels.Engine` reports them."""

    def __init__(self, planned: Planned):
        self.planned, self.name = planned, planned.name
        self.manager = self.cell = None
        self.number, self.heading, self.last_line = 0, "", math.inf
        self.errors: list[str] = []

    def run(self) -> Result:
        """Execute the notebook and check its promises; an error is part of the result."""
        shown = " ".join(f"{key}={json.dumps(value)}" for key, value in self.planned.values.items())
        tqdm.write(f"{self.name}: started, {shown or 'no parameters'}")
        self.begin = self.last_line = time.time()
        self._attempt()
        seconds, self.last_line = time.time() - self.begin, math.inf
        result = Result(self.planned, "failed" if self.errors else "done", seconds, *self.errors[:1])
        tqdm.write(f"{self.name}: {result.status} after {seconds:.0f} s")
        return result

    def _attempt(self):
        """Execute and check; what goes wrong is added to the errors."""
        try:
            before = _marks(self.planned.promised)
            self.planned.stamp.unlink(missing_ok=True)
            self._check_promises(self._papermill(), before)
            if not self.errors:
                self.planned.succeeded(time.time() - self.begin)
        except PapermillExecutionError as exception:
            self._fail(exception.ename, exception.evalue)
        except DeadKernelError:
            self._fail("DeadKernelError", self._cause_of_death())
        except Exception as exception:
            self._fail(type(exception).__name__, str(exception))

    def _papermill(self):
        papermill_engines.register("spml", kernels.Engine)
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # failures are reported once, at the end
        output = self.planned.output
        output.parent.mkdir(parents=True, exist_ok=True)
        return papermill.execute_notebook(
            self.planned.notebook.path,
            output,
            self.planned.values,
            engine_name="spml",
            kernel_name="python3",
            language="python",
            progress_bar={"desc": self.name, "leave": False, "disable": None, "dynamic_ncols": True},
            run=self,
        )

    def _check_promises(self, executed, before: dict[Path, int]):
        """Add to the errors which figures and tables were not written or not shown."""
        promised = self.planned.promised
        after = _marks(promised)
        if unwritten := [str(file) for file in promised if after.get(file) in (None, before.get(file))]:
            self.errors.append(f"promised figure or table not written by this run: {', '.join(unwritten)}")
        cells = [cell for cell in executed.cells if INJECTED not in cell.metadata.get("tags", [])]
        for kind, mime in SHOWN_AS.items():
            shown = [sum(mime in out.get("data", {}) for out in cell.get("outputs", [])) for cell in cells]
            promises = [promise for promise in self.planned.notebook.promises if promise.kind == kind]
            if sum(shown) < len(promises):
                unseen = [p for p in promises if not shown[p.cell]] or promises
                names = ", ".join(promise.name for promise in unseen)
                self.errors.append(f"{kind} saved but not shown in the notebook's output: {names}")

    def on_cell(self, cell, cell_index):
        self.cell = cell
        self.number += INJECTED not in cell.metadata.tags
        self.heading = [self.heading, *headings([cell])][-1]

    def on_message(self, kind: str, content: dict):
        """Record each error that a kernel reports, including those that a widget catches, shows and clears."""
        if "raises-exception" in self.cell.metadata.tags:
            return
        ended = content.get("ename") == "SystemExit" and content["evalue"] in ("", "0")
        if kind == "error" and not ended:
            self._fail(content["ename"], content["evalue"], content["traceback"])
        if kind == "stream" and content["name"] == "stderr" and "Traceback (most recent" in content["text"]:
            lines = content["text"].rstrip().splitlines()
            self._fail("traceback on stderr", lines[-1], lines)

    def show_progress(self):
        """Write a line per minute: where the notebook is, and how many runs were trained since its start."""
        if (now := time.time()) - self.last_line < SILENT_SECONDS:
            return
        self.last_line = now
        trained = ""
        if "runs_dir" in self.planned.values:
            summaries = locate(self.planned.values["runs_dir"]).glob("*/summary.json")
            new = sum(file.stat().st_mtime >= self.begin for file in summaries)
            trained = f", runs trained since the start: {new}"
        where = f"cell {self.number} of {len(self.planned.notebook.node.cells)}, {self.heading!r}{trained}"
        tqdm.write(f"{self.name}: {(now - self.begin) / 60:.0f} min, {where}")

    @property
    def _process(self):
        """The kernel's process, None before it starts."""
        return getattr(getattr(self.manager, "provisioner", None), "process", None)

    def send(self, number: int):
        """Send a signal to the kernel and its children."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):  # a kernel leads a process group: its workers end with it
                os.killpg(self._process.pid, number)

    def _cause_of_death(self) -> str:
        code = self._process and self._process.poll()
        if code is None or code >= 0:
            return f"the kernel ended (exit code {code})"
        name = signal.Signals(-code).name
        return f"the kernel was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def _fail(self, kind: str, message: str, traceback: Iterable[str] = ()):
        """Add an error, with the beginning of its cell and the end of its traceback."""
        where = f"cell {self.number}" if self.cell else "before the first cell"
        code = self.cell.source if self.cell else ""
        lines = [line for line in code.splitlines() if line.strip()]
        source = [f"  | {line}" for line in lines[:4]] + ["  | ..."] * (len(lines) > 4)
        tail = click.unstyle("\n".join(traceback)).splitlines()[-TRACEBACK_LINES:]
        parts = [f"{where}: {kind}: {message}", *source, *(f"  {line}" for line in tail)]
        self.errors.append("\n".join(parts))


def _marks(files: Iterable[Path]) -> dict[Path, int]:
    """Return for each existing file a mark that changes whenever it is written."""
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
