"""Many experiments by any executor: results as they come, failures kept until all others are finished."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context, parent_process
from threading import Thread

POLL = 0.1  # seconds; submitit itself asks Slurm no oftener than once a minute


class RunFailures(ExceptionGroup):
    """Some experiments failed; raised when all others are finished.

    Attributes:
        exceptions: one for each failed experiment.
        experiments: those experiments, in the same order.
        runs: the finished runs, in the order in which they were asked for.
    """

    def __new__(cls, message: str, exceptions: Sequence[Exception], experiments=(), runs=()):
        self = super().__new__(cls, message, exceptions)
        self.experiments, self.runs = list(experiments), list(runs)
        return self

    def derive(self, exceptions):
        return RunFailures(self.message, exceptions, self.experiments, self.runs)

    def __str__(self):
        return self.message


def processes(number: int) -> ProcessPoolExecutor:
    """A pool of processes on this machine: spawned, since torch does not survive a fork, and gone with their parent."""
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=end_at_once)


def end_at_once() -> None:
    """In a worker: at Ctrl-C, or else it would begin what the pool has queued; and when the parent was killed, or else
    it would wait for it for ever. Trainings go on from their last epoch."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def watch():
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def failures(experiments: Sequence, exceptions: Sequence[Exception], runs: Sequence) -> RunFailures:
    """The error that lists each failed experiment with its reason."""
    lines = [
        f"  {_said(one)}: {type(error).__name__}: {_reason(error)}"
        for one, error in zip(experiments, exceptions, strict=True)
    ]
    kept = ", the others are finished and kept" if runs else ""
    message = (
        f"{len(lines)} of {len(lines) + len(runs)} experiments failed{kept}:\n"
        + "\n".join(lines)
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
