"""Many experiments by any executor: results as they come, failures kept until all others are finished."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread, current_thread, main_thread

POLL = 0.1  # seconds; submitit itself asks Slurm no oftener than once a minute


class RunFailures(RuntimeError):
    """Some experiments failed; raised when all others are finished. The message has a line for each.

    Attributes:
        exceptions: one for each failed experiment.
        experiments: those experiments, in the same order.
        runs: the finished runs, in the order in which they were asked for.
    """

    def __init__(self, message: str, exceptions: Sequence[Exception] = (), experiments=(), runs=()):
        super().__init__(message)
        self.exceptions, self.experiments, self.runs = list(exceptions), list(experiments), list(runs)


class _Processes(ProcessPoolExecutor):
    """Workers that end with what started them: when it is killed, and at once when a `with` block is interrupted."""

    def __init__(self, number: int):
        context = get_context("spawn")  # torch does not survive a fork
        life, self._life = context.Pipe(
            duplex=False
        )  # closed from here, or by the system when this process ends
        super().__init__(number, context, end_at_once, (life,))

    def submit(self, /, *args, **options):
        with _held():  # workers start here
            job = super().submit(*args, **options)
            job.set_exception = partial(_unless_cancelled, job)
        return job

    def __exit__(self, kind, *raised):
        if kind is not None and not issubclass(kind, Exception):
            self._life.close()
        super().__exit__(kind, *raised)
        self._life.close()


def processes(number: int) -> ProcessPoolExecutor:
    """A pool of processes on this machine, which an interrupt of its `with` block ends; trainings go on from there."""
    return _Processes(number)


def _unless_cancelled(job: Future, error: Exception) -> None:
    """Python 3.11 tells a cancelled job that its pool is broken, and stumbles."""
    with suppress(InvalidStateError):
        Future.set_exception(job, error)


@contextmanager
def _held():
    """Ctrl-C waits meanwhile: here, where it would leave a worker half started, and in workers, until they can end."""
    here, came = current_thread() is main_thread(), []
    if here:  # any thread may get the signal, and wake this one
        before = signal.signal(signal.SIGINT, lambda *said: came.append(said))
    if os.name == "posix":  # what is started inherits this
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if here:
            signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def end_at_once(life=None) -> None:
    """In a worker: end at Ctrl-C, or else it would begin what a pool has queued, and with its parent; trainings go on.

    Args:
        life: a connection to wait for in place of the parent: the worker ends when its other side is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def watch():
        wait([parent_process().sentinel if life is None else life])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def failures(
    experiments: Sequence, exceptions: Sequence[Exception], runs: Sequence, logs: Path
) -> RunFailures:
    """The error that lists each failed experiment with its reason; `logs` is where tracebacks were written."""
    lines = [
        f"  {_said(one)}: {type(error).__name__}: {_reason(error)}"
        for one, error in zip(experiments, exceptions, strict=True)
    ]
    kept = ", the others are finished and kept" if runs else ""
    message = (
        f"{len(lines)} of {len(lines) + len(runs)} experiments failed{kept}:\n"
        + "\n".join(lines)
        + (f"\nTracebacks, with all images and classes: {logs}." if any(logs.glob("*.txt")) else "")
        + "\nAsk for the same again once the reason is gone: what is finished is loaded."
    )
    return RunFailures(message, exceptions, experiments, runs)


def outcomes(function: Callable, items: Sequence, executor=None) -> Iterator[tuple[int, object]]:
    """(n, result of function(items[n]), or the exception it raised) of each item, as they finish.

    Args:
        executor: None works here, one after the other. Else anything whose `submit` returns an object with `done`,
            `result` and `cancel`: an executor of `concurrent.futures`, Dask, MPI, or submitit, whose `batch` packs
            all into one job array.

    An interruption, or an end before the last item, cancels what was submitted.
    """
    if executor is None:
        for n, item in enumerate(items):
            yield n, _result(lambda item=item: function(item))
        return
    jobs, refused = {}, {}
    try:
        with getattr(executor, "batch", nullcontext)():
            for n, item in enumerate(items):
                try:
                    jobs[n] = executor.submit(function, item)
                except Exception as error:  # the pool has lost a worker meanwhile
                    refused[n] = error
        yield from refused.items()
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


def _said(experiment) -> str:
    """An experiment in a few words: what differs from the default one."""
    plain = type(experiment)()
    fields = {
        k: v for k, v in vars(experiment).items() if v != getattr(plain, k) and k not in ("root", "data")
    }
    words = [experiment.dataset, experiment.method, f"seed {experiment.seed}"]
    words += [f"{k}={v}" for k, v in fields.items() if k not in ("dataset", "method", "seed")]
    return ", ".join(words)


def _reason(error: Exception) -> str:
    """One line; of the trace that submitit hands back, the line with the exception."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "FailedJobError":
        ends = [n for n, line in enumerate(lines) if line.startswith("-----")]
        return lines[ends[-1] - 1] if ends else lines[0]
    return lines[0] if lines else ""
