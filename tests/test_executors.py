"""Many experiments, here and on executors: each runs once, and a failure neither stops the others nor is lost."""

import contextlib
import functools
import operator
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from test_runs import paint

from spml_core import train
from spml_core.cli import main
from spml_core.data import DataError
from spml_core.runs import Experiment, executors, run_all
from spml_core.runs.executors import RunFailures, outcomes
from spml_core.train import checkpoints


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = paint(tmp_path_factory.mktemp("somewhere") / "pictures")
    options = {"dataset": "folder", "root": str(root), "data": {"size": 16}, "mode": "end_to_end", "method": "an",
               "backbone": "digits_cnn", "epochs": 1, "batch_size": 8, "accelerator": "cpu"}  # fmt: skip
    return functools.partial(Experiment, **options)


@pytest.fixture
def trained(monkeypatch):
    """Return the titles of all trainings in this process."""
    calls, fit = [], train.fit

    def spy(*args, **options):
        calls.append(options["title"])
        return fit(*args, **options)

    monkeypatch.setattr(train, "fit", spy)
    return calls


# --- failures ---


@pytest.mark.parametrize("threads", [None, 2])
def test_failures_are_collected_and_reported(small, tmp_path, threads):
    wanted = [small(), small(lr=1e30), small(method="em"), small(lr=1e31, seed=4), small()]
    with ThreadPoolExecutor(threads) as pool, pytest.raises(RunFailures) as raised:
        run_all(wanted, pool if threads else None, tmp_path, progress=False)
    error = raised.value
    assert [run.config["method"] for run in error.runs] == ["an", "em", "an"]
    assert error.experiments == [wanted[1], wanted[3]]
    assert [type(one) for one in error.exceptions] == [FloatingPointError] * 2
    text = str(error)
    assert text.startswith("2 of 5 experiments failed")
    assert "folder, an, seed 0," in text and "lr=1e+30" in text and "lr=1e+31" in text
    assert text.count("FloatingPointError: ") == 2 and "epoch 1" in text
    assert len(run_all([wanted[0], wanted[2]], root=tmp_path)) == 2


def test_failures_travel(small, tmp_path):
    errors = [ValueError("one"), OSError("two")]
    failed = RunFailures(errors, [small(), small(seed=1)], ["a run"], tmp_path)
    copied = pickle.loads(pickle.dumps(failed))
    assert (
        str(copied) == str(failed) and copied.runs == ["a run"] and copied.experiments == failed.experiments
    )
    assert [str(error) for error in copied.exceptions] == ["one", "two"]


def test_a_script_ends_with_a_line_for_each_failure(small, tmp_path):
    """The tracebacks are in files instead."""
    wanted = [small(lr=1e30), small(lr=1e31)]
    with pytest.raises(RunFailures) as raised:
        run_all(wanted, root=tmp_path, progress=False)
    shown = "".join(traceback.format_exception(raised.value))
    end = shown[shown.index("2 of 2 experiments failed") :].splitlines()
    assert len(end) == 5 and shown.count("Traceback (most recent call last)") == 1
    assert end[3].endswith(str(tmp_path / "failed") + ".") and len(list((tmp_path / "failed").iterdir())) == 2


def test_data_that_cannot_be_loaded_stop_before_any_training(small, tmp_path, trained):
    with pytest.raises(DataError):
        run_all([small(), small(root=str(tmp_path / "nowhere"))], root=tmp_path / "runs", progress=False)
    assert not trained and not (tmp_path / "runs" / "partial").exists()


def test_data_that_a_worker_cannot_load_fail_that_experiment(small, tmp_path):
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(RunFailures, match=r"OptionError: .*does not exist") as raised,
    ):
        run_all([small(root=str(tmp_path / "nowhere")), small()], pool, tmp_path / "runs", progress=False)
    assert len(raised.value.runs) == 1


@pytest.mark.slow
def test_the_command_trains_by_processes(small, tmp_path):
    arguments = ["--dataset", "folder", "--root", small().root, "-d", "size", "16", "--mode", "end_to_end",
                 "--backbone", "digits_cnn", "--epochs", "1", "--runs-dir", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(
        main, ["train", "--method", "an", "--seed", "0", "--seed", "1", "--jobs", "2", *arguments]
    )
    assert result.exit_code == 0, result.output
    assert len(list(tmp_path.glob("folder-an-s?-*"))) == 2


def test_the_command_reports_a_failure(small, tmp_path):
    arguments = ["--dataset", "folder", "--root", small().root, "-d", "size", "16", "--mode", "end_to_end",
                 "--backbone", "digits_cnn", "--epochs", "1", "--runs-dir", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(main, ["train", "--method", "an", "--lr", "1e30", *arguments])
    assert result.exit_code == 1 and "1 of 1 experiments failed" in result.output
    assert "lower lr=1e+30" in result.output


# --- each once ---


@pytest.mark.parametrize("threads", [None, 3])
@pytest.mark.parametrize("fresh", [False, True])
def test_equal_experiments_train_once(small, tmp_path, trained, threads, fresh):
    wanted = [small(), small(seed=1), small(lr=1e-3), small(lr=np.float64(0.001), seed=np.int64(0))]
    with ThreadPoolExecutor(threads) as pool:
        runs = run_all(wanted, pool if threads else None, tmp_path, fresh=fresh, progress=False)
    assert len({run.path for run in runs}) == len(Counter(trained)) == len(trained) == 2
    assert runs[0].path == runs[2].path == runs[3].path


def test_the_bar_counts_as_runs_finish(small, tmp_path, monkeypatch):
    shown = []

    def bar(outcomes, total, **options):
        shown.append(total)
        for outcome in outcomes:
            yield outcome
            shown.append(len([path for path in tmp_path.iterdir() if path.name.startswith("folder")]))
        shown.append("closed")

    monkeypatch.setattr(sys.modules["spml_core.runs.run"], "tqdm", bar)
    run_all([small(), small(seed=1), small()], root=tmp_path)
    assert shown == [2, 1, 2, "closed"]


# --- outcomes ---


def _square(number):
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


@pytest.mark.parametrize("threads", [None, 2])
def test_outcomes(threads):
    with ThreadPoolExecutor(threads) as pool:
        found = dict(outcomes(_square, [3, -1, 2], pool if threads else None))
    assert found[0] == 9 and found[2] == 4 and str(found[1]) == "-1 is negative"


class Job(Future):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def done(self):
        if self.value is KeyboardInterrupt:
            raise KeyboardInterrupt
        return self.value is not None

    def result(self, timeout=None):
        return self.value


class Queue:
    """An executor that submits like submitit; a job with a value is finished, one with None is not."""

    def __init__(self):
        self.jobs, self.batches = [], 0

    @contextmanager
    def batch(self):
        yield
        self.batches += 1

    def submit(self, function, item):
        assert self.batches == 0
        self.jobs.append(Job(function(item)))
        return self.jobs[-1]


def test_submitted_as_one_array():
    queue = Queue()
    assert dict(outcomes(_square, [1, 2, 3], queue)) == {0: 1, 1: 4, 2: 9}
    assert queue.batches == 1


def test_an_interruption_cancels_what_is_left():
    queue = Queue()
    with pytest.raises(KeyboardInterrupt):
        list(outcomes(lambda item: item, [None, None, KeyboardInterrupt, None], queue))
    assert [job.cancelled() for job in queue.jobs] == [True] * 4


def test_so_does_an_end_in_the_middle():
    queue = Queue()
    results = outcomes(lambda item: item, ["finished", None], queue)
    assert next(results) == (0, "finished")
    results.close()
    assert [job.cancelled() for job in queue.jobs] == [False, True]


def test_a_refused_submission_is_a_failure_of_its_own(monkeypatch):
    queue, submit = Queue(), Queue.submit

    def refuse(self, function, item):
        if item == 2:
            raise BrokenProcessPool("a process is gone")
        return submit(self, function, item)

    monkeypatch.setattr(Queue, "submit", refuse)
    found = dict(outcomes(_square, [1, 2, 3], queue))
    assert isinstance(found.pop(1), BrokenProcessPool) and found == {0: 1, 2: 9}


def test_a_job_that_somebody_cancels_is_a_failure():
    with ThreadPoolExecutor(1) as pool:
        submit = pool.submit

        def cancelled(function, item):
            job = Future() if item == 2 else submit(function, item)
            job.cancel() if item == 2 else None
            return job

        pool.submit = cancelled
        found = dict(outcomes(_square, [1, 2], pool))
    assert found[0] == 1 and isinstance(found[1], CancelledError)


def test_a_lost_worker_is_reported_for_what_it_took_along():
    tasks = [os.getpid, functools.partial(os._exit, 3), os.getpid]
    with executors.processes(1) as pool:
        found = dict(outcomes(operator.call, tasks, pool))
    assert isinstance(found[0], int | BrokenProcessPool)  # what was finished is kept, if it was handed over
    assert isinstance(found[1], BrokenProcessPool) and isinstance(found[2], BrokenProcessPool)


def test_workers_end_with_a_parent_that_is_killed():
    code = (
        "import os, signal; from spml_core.runs.executors import processes; pool = processes(1); "
        "print(pool.submit(os.getpid).result(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.returncode == -signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(parent.stdout)).wait(timeout=30)  # raises if it is still there


@pytest.mark.parametrize("kill", [os.killpg, os.kill], ids=["terminal", "kernel"])
def test_an_interrupt_ends_workers_and_starts_nothing_more(kill):
    """A terminal interrupts all processes; a kernel may be interrupted alone. There is one traceback, the parent's."""
    code = (
        "import os, signal, operator; from spml_core.runs.executors import outcomes, processes\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # it is ignored where tests run in the background
        "with processes(2) as pool:\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    list(outcomes(operator.call, [signal.pause] * 5, pool))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    worker = int(parent.stdout.readline())
    kill(parent.pid, signal.SIGINT)
    _, said = parent.communicate(timeout=60)
    assert (
        parent.returncode == -signal.SIGINT
        and said.count("Traceback") == said.count("KeyboardInterrupt") == 1
    )
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(worker).wait(timeout=30)


# --- real executors; each of their processes spends seconds on importing torch ---


@contextmanager
def _pool(folder):
    with executors.processes(2) as pool:
        yield pool


@contextmanager
def _dask(folder):
    distributed = pytest.importorskip("distributed")
    cluster = functools.partial(
        distributed.LocalCluster, n_workers=2, threads_per_worker=1, dashboard_address=None
    )
    with cluster(local_directory=folder) as local, distributed.Client(local) as client:
        yield client.get_executor()


@contextmanager
def _submitit(folder):
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder)
    executor.update_parameters(timeout_min=10)
    yield executor


@pytest.mark.slow
@pytest.mark.parametrize("executor", [_pool, _dask, _submitit])
def test_by_an_executor_as_here(small, tmp_path, executor):
    wanted = [small(), small(seed=1), small(), small(lr=1e30)]
    here = run_all(wanted[:2], root=tmp_path / "here", progress=False)
    with executor(tmp_path / "jobs") as workers, pytest.raises(RunFailures) as raised:
        run_all(wanted, workers, tmp_path / "there", progress=False)
    there = raised.value.runs
    assert [run.path.name for run in there] == [here[0].path.name, here[1].path.name, here[0].path.name]
    for one, other in zip(here, there, strict=False):
        assert np.array_equal(one.logits("test"), other.logits("test"))
    assert "1 of 4" in str(raised.value) and "lower lr=1e+30" in str(raised.value)


@pytest.mark.slow
def test_a_killed_worker_loses_no_finished_epoch(small, tmp_path):
    wanted = [small(epochs=100, seed=seed) for seed in (0, 1)]
    with (
        executors.processes(1) as pool,
        pytest.raises(RunFailures) as raised,
    ):

        def kill_at_the_first_checkpoint():
            while not list(tmp_path.glob("partial/*/checkpoints/main/epoch-*.pt")):
                time.sleep(0.01)
            os.kill(next(iter(pool._processes)), signal.SIGKILL)

        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: pool.submit(os.getpid).result() and kill_at_the_first_checkpoint())
            run_all(wanted, pool, tmp_path, progress=False)
    assert "2 of 2" in str(raised.value) and "BrokenProcessPool" in str(raised.value)
    (draft,) = [path for path in tmp_path.glob("partial/*/checkpoints/main")]
    kept = checkpoints.load(checkpoints.latest(draft))["history"]
    (finished,) = run_all(wanted[:1], root=tmp_path, progress=False)
    assert len(kept) > 1 and finished.history["seconds"].tolist()[: len(kept)] == [
        row["seconds"] for row in kept
    ]
