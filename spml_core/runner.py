"""Running notebooks without a screen: papermill executes, this module adds what it leaves open.

Errors that a widget swallows, promised figures that are missing, kernels that die, skipping what is up to date.
"""

import hashlib
import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click
import nbformat
import papermill
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from spml_core import notebooks
from spml_core.paths import locate, project_root

# ipykernel puts its inline backend into MPLBACKEND, which each child process of a notebook inherits and may
# not be able to import; a value from our own environment would even replace it. So only matplotlib is told.
KERNEL_START = (
    "import os; os.environ.pop('MPLBACKEND', None); "
    "import matplotlib; matplotlib.use('module://matplotlib_inline.backend_inline')"
)
START_SECONDS = 120  # a busy machine may need long to start a kernel
STOP_SECONDS = 5  # an interrupted kernel has this long to end by itself
TRACEBACK_LINES = 12


@dataclass(frozen=True)
class Result:
    """What became of one notebook; `status` is "done", "up to date" or "failed" (then `error` says why)."""

    name: str
    status: str
    figures: tuple[str, ...]
    seconds: float = 0.0
    headline: str = ""
    error: str = ""


def run_notebooks(
    names: Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
    jobs: int = 1,
    force: bool = False,
    notebooks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
) -> list[Result]:
    """Run notebooks without a screen, `jobs` at a time, and go on when one fails.

    Args:
        names: numbers, names or paths of notebooks; none means all.
        parameters: values for all of them, see `Parameter.coerce`.
        force: execute what is up to date, too.
        output_dir: folder of the executed copies, default runs/notebooks.

    Raises:
        NotebookError: a name, a parameter or a notebook is wrong; nothing was executed or written.
        KeyboardInterrupt: after all kernels have ended.
    """
    chosen = {path.stem: notebooks.read(path) for path in notebooks.find(names, notebooks_dir)}
    values = notebooks.resolve(
        {name: notebooks.declared(nb, name) for name, nb in chosen.items()}, parameters or {}
    )
    output = locate("runs/notebooks" if output_dir is None else output_dir)
    package = Path(__file__).parent
    code = _digest(
        *(part for f in sorted(package.rglob("*.py")) for part in (f.relative_to(package), f.read_bytes()))
    )
    runs = [_Run(name, nb, values[name], output, code) for name, nb in chosen.items()]
    results = {run.name: run.result("up to date") for run in runs if not force and run.is_up_to_date()}
    for name in results:
        tqdm.write(f"{name}: up to date")
    results |= {result.name: result for result in _execute([r for r in runs if r.name not in results], jobs)}
    return [results[name] for name in chosen]


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

    def __init__(self, name: str, nb, values: dict, output_dir: Path, code: str):
        self.name, self.nb, self.values = name, nb, values
        self.promised = notebooks.promises(nb, name)
        self.folder = locate(values.get("figures_dir", "figures"))
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
        return self.output.is_file() and self.stamp.is_file() and self.stamp.read_text() == self._stamp()

    def _stamp(self) -> str:
        own = (f"{self.name}.json", f"{self.name}.parameters.json")
        files = [*self._files(".pdf", ".png", ".csv"), *(self.folder / name for name in own)]
        written = {file.name: _digest(file.read_bytes()) for file in files if file.is_file()}
        return _json({**self.inputs, "figures": written})

    def _files(self, *suffixes: str) -> list[Path]:
        return [self.folder / (figure + suffix) for figure in self.promised for suffix in suffixes]

    def result(self, status: str, seconds: float = 0.0, error: str = "") -> Result:
        headline, file = "", self.folder / f"{self.name}.json"
        if status != "failed" and file.is_file():
            for key, value in [*json.loads(file.read_text()).items()][:1]:
                headline = f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        return Result(self.name, status, tuple(self.promised), seconds, headline, error)

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
        result = self.result("failed" if error else "done", time.monotonic() - begin, error)
        tqdm.write(f"{self.name}: {result.status} after {result.seconds:.0f} s")
        return result

    def _attempt(self, stopping: threading.Event) -> str:
        """Execute, check, stamp; the text of the failure, "" for none."""
        before = {file: _mark(file) for file in self._files(".pdf", ".png")}
        self.stamp.unlink(missing_ok=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        nb = self._papermill(stopping)
        if self.errors:
            return self.errors[0]
        unwritten = [str(file) for file, mark in before.items() if _mark(file) in (None, mark)]
        if unwritten:
            return f"promised figure not written by this run: {', '.join(unwritten)}"
        images = [
            sum("image/png" in out.get("data", {}) for out in cell.get("outputs", [])) for cell in nb.cells
        ]
        if sum(images) < len(self.promised):
            cells = notebooks.promises(nb, self.name)
            unseen = [figure for figure, index in cells.items() if not images[index]] or list(cells)
            return f"figure saved but not shown, no image in the notebook's output: {', '.join(unseen)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / f"{self.name}.parameters.json", _json(self.values))
        _write(self.stamp, self._stamp())
        return ""

    def _papermill(self, stopping: threading.Event):
        """Execute the copy in place; a kernel that failed to start gets a second chance."""
        self.nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = str(self.output).replace("{", "{{").replace("}", "}}")  # papermill formats paths
        papermill_engines.register("spml", _Engine)
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


class _ThisInterpreter(AsyncKernelManager):
    """Kernels of the running interpreter, whatever a notebook's metadata or the user's kernel list say."""

    @cached_property
    def kernel_spec(self):
        return KernelSpec(**get_kernel_dict())


class _Client(PapermillNotebookClient):
    def __init__(self, nb_man, run: _Run, **options):
        super().__init__(nb_man, **options)
        self.run = run

    def process_message(self, msg, cell, cell_index):
        self.run.on_message(msg["msg_type"], msg["content"])
        return super().process_message(msg, cell, cell_index)


class _Engine(NBClientEngine):
    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, *, run: _Run, **_):
        with tempfile.TemporaryDirectory(prefix="spml-") as folder:
            # Files as sockets: TCP ports are picked before they are taken, and parallel starts clash.
            run.manager = _ThisInterpreter(kernel_name=kernel_name, transport="ipc", ip=f"{folder}/kernel")
            client = _Client(
                nb_man,
                run,
                km=run.manager,
                log=logging.getLogger("papermill"),
                startup_timeout=START_SECONDS,
                iopub_timeout=60,  # on a busy machine outputs lag behind by more than the default 4 s
                coalesce_streams=True,  # a progress bar is one output, not hundreds
                # papermill's own `cwd` changes the directory of the whole process, which threads share
                resources={"metadata": {"path": str(project_root())}},
                extra_arguments=[f"--InteractiveShellApp.exec_lines={KERNEL_START}"],
                on_notebook_start=run.on_start,
                on_cell_start=run.on_cell,
            )
            client.owns_km = True  # end the kernel with the notebook
            client.execute()


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
