"""Run many experiments on any executor: yield results as they come, and keep failures until the others are finished."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread, current_thread, main_thread

POLL = 0.1  # seconds; submitit itself asks Slurm at most once a minute


class WorkLost(RuntimeError):
    """Work of a pool failed; raised when all other work is finished. The same call repeats what is missing."""


class RunFailures(WorkLost):
    """Some experiments failed; raised when all others are finished. The message has one line per failure.

    Attributes:
        exceptions: one for each failed experiment.
        experiments: those experiments, in the same order.
        runs: the finished runs, in the order of the request.
        logs: folder with the tracebacks.
    """

    def __init__(self, exceptions: Sequence[Exception], experiments: Sequence, runs: Sequence, logs: Path):
        super().__init__(exceptions, experiments, runs, logs)
        self.exceptions, self.experiments, self.runs, self.logs = exceptions, experiments, runs, logs

    def __str__(self) -> str:
        total = len(self.exceptions) + len(self.runs)
        kept = ", the others are finished and kept" if self.runs else ""
        lines = [f"{len(self.exceptions)} of {total} experiments failed{kept}:"]
        for experiment, error in zip(self.experiments, self.exceptions, strict=True):
            lines.append(f"  {_describe(experiment)}: {type(error).__name__}: {_reason(error)}")
        if any(self.logs.glob("*.txt")):
            lines.append(f"Tracebacks: {self.logs}.")
        lines.append("Once the cause is fixed, start the same again: finished runs are loaded.")
        return "\n".join(lines)


class _Processes(ProcessPoolExecutor):
    """A pool whose workers end when its process is killed, and at once when its `with` block is interrupted."""

    def submit(self, /, *args, **options):
        with _held():
            job = super().submit(*args, **options)
        job.set_exception = partial(_unless_cancelled, job)
        return job

    def __exit__(self, kind, *raised):
        if kind is not None and not issubclass(kind, Exception):
            for worker in self._processes.values():
                worker.kill()
        super().__exit__(kind, *raised)


def processes(number: int) -> ProcessPoolExecutor:
    """Return a pool of processes on this machine; they end if its `with` block is interrupted.

    Their trainings can be resumed.
    """
    return _Processes(number, get_context("spawn"), end_at_once)  # torch does not survive a fork


def _unless_cancelled(job: Future, error: Exception) -> None:
    """Set the exception of a job unless it was cancelled, which Python 3.11 fails to check when a pool breaks."""
    with suppress(InvalidStateError):
        Future.set_exception(job, error)


@contextmanager
def _held():
    """Delay Ctrl-C: here, where it would leave a worker half started, and in that worker, until it can end."""
    here, received = current_thread() is main_thread(), []
    if here:  # any thread may receive the signal and wake this one
        before = signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    if os.name == "posix":  # a new worker inherits this
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if here:
            signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


def end_at_once() -> None:
    """Make this worker end with its parent and at Ctrl-C, instead of starting what the pool has queued."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def watch():
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def outcomes(function: Callable, items: Sequence, executor=None) -> Iterator[tuple[int, object]]:
    """Yield (n, result of function(items[n]), or the exception it raised) for each item, as they finish.

    Args:
        executor: None computes the items here, one after the other. Else anything whose `submit` returns an object
            with `done`, `result` and `cancel`: an executor of `concurrent.futures`, Dask, MPI, or submitit, whose
            `batch` packs all into one job array.

    Submitted jobs are cancelled by an interruption, or if the caller stops before the last item.
    """
    if executor is None:
        for n, item in enumerate(items):
            yield n, _result(lambda item=item: function(item))
        return
    jobs = {}
    try:
        with getattr(executor, "batch", nullcontext)():
            for n, item in enumerate(items):
                try:
                    jobs[n] = executor.submit(function, item)
                except Exception as error:  # the pool has lost a worker meanwhile
                    jobs[n] = Future()
                    jobs[n].set_exception(error)
        while jobs:
            finished = [n for n, job in jobs.items() if job.done()]
            for n in finished:
                yield n, _result(jobs.pop(n).result)
            if not finished:
                time.sleep(POLL)
    finally:
        for job in jobs.values():
            job.cancel()


def _result(call: Callable):
    try:
        return call()
    except Exception as error:
        return error


def _describe(experiment) -> str:
    """Return an experiment in a few words: what differs from the default one."""
    plain, always = vars(type(experiment)()), ("dataset", "method", "seed", "root", "data")
    changed = [f"{k}={v}" for k, v in vars(experiment).items() if k not in always and v != plain[k]]
    return ", ".join([experiment.dataset, experiment.method, f"seed {experiment.seed}", *changed])


def _reason(error: Exception) -> str:
    """Return one line, or two joined if the first announces the second.

    Of the trace that submitit returns, it is the line with the exception.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "FailedJobError":
        ends = [n for n, line in enumerate(lines) if line.startswith("-----")]
        return lines[ends[-1] - 1] if ends else lines[0]
    shown = 2 if lines and lines[0].endswith(":") else 1
    return " ".join(line.strip() for line in lines[:shown])
