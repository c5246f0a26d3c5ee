"""An interrupted training resumes after its last epoch, with the same bits as an uninterrupted one."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from spml_core import metrics, models, train
from spml_core.data.files import loading
from spml_core.data.sets import digits
from spml_core.methods import Method, build
from spml_core.runs import Experiment, run
from spml_core.train import Training, checkpoints, fit

NUM, CLASSES = 20, 3
PARAMS = {
    "ll_cp": {"delta": 0.05},
    "em_apl": {"warmup": 1},
    "role": {"expected_positives": 1.5},
    "en": {"expected_positives": 1.5},
}
METHODS = ("an", "ll_cp", "em_apl", "role", "en", "gr", "gr_trainable", "pseudo_label", "lasd", "l2r")
OPTIONS = [
    {},
    {"flip": True},
    {"schedule": "one_cycle", "weight_decay": 1e-3},
    {"ema": 0.8},
    {"accumulate": 2},
    {"linear_init": 2, "head_lr_factor": 10},
    {"precision": "16-mixed"},
]


class Interrupted(BaseException):
    """Raised as suddenly as Ctrl-C."""


@pytest.fixture(scope="module")
def pictures():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (NUM, 1, 16, 16), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 2, (NUM, CLASSES), dtype=torch.int8, generator=generator)
    labels[:2] = torch.tensor([[1], [0]])
    return images, labels


class Dropping(nn.Module):
    """A network that draws random numbers while it trains."""

    def __init__(self, inputs):
        super().__init__()
        self.network = models.build("digits_cnn", "end_to_end", CLASSES, inputs)
        self.dropout = nn.Dropout(0.1)

    @property
    def head(self):
        return self.network.head

    def forward(self, x):
        return self.dropout(self.network(x))


@pytest.fixture
def training(pictures):
    """Train five epochs from the same start: `training(method, folder, stop=(place, number), **options)`."""

    def training(method="an", folder=None, stop=None, **options):
        images, labels = pictures
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = Dropping(images)
            built = (
                method
                if isinstance(method, Method)
                else build(method, CLASSES, NUM, **PARAMS.get(method, {}))
            )
            config = Training(**{"epochs": 5, "batch_size": 6, "accelerator": "cpu", "threads": 1, **options})
            place = folder
            with pytest.MonkeyPatch.context() as patch:
                if stop is not None:
                    interrupt(patch, *stop)
                val = (images, labels.numpy())
                return fit(model, built, (images, labels), val, config, checkpoints=place, progress=False)

    return training


def interrupt(patch, owner, name, number):
    original, reached = getattr(owner, name), []

    def stopping(*arguments, **keywords):
        reached.append(None)
        if len(reached) == number:
            raise Interrupted
        return original(*arguments, **keywords)

    patch.setattr(owner, name, stopping)


def same(one, two):
    assert [list(r.values())[:3] for r in one.history[1:]] == [list(r.values())[:3] for r in two.history[1:]]
    assert one.best_epoch == two.best_epoch
    for a, b in zip(one.val_logits, two.val_logits, strict=True):
        assert np.array_equal(a, b)
    for part in ("model", "method"):
        states = [getattr(fitted, part).state_dict() for fitted in (one, two)]
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("method", METHODS)
def test_interrupted_twice_ends_in_the_same_bits(training, tmp_path, method):
    for stop in ((train.Trainer, "step", 6), (train.Trainer, "step", 9)):  # in epoch 2, then in epoch 4
        with pytest.raises(Interrupted):
            training(method, tmp_path, stop)
    same(training(method, tmp_path), training(method))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_is_resumed(training, tmp_path, options):
    with pytest.raises(Interrupted):
        training("gr_trainable", tmp_path, (train.Trainer, "evaluate", 4), **options)
    same(training("gr_trainable", tmp_path, **options), training("gr_trainable", **options))


def test_a_schedule_and_a_second_stage_are_resumed_together(training, tmp_path):
    options = {"schedule": "one_cycle", "ema": 0.9, "flip": True}
    for place in (
        (train.Trainer, "evaluate", 3),
        (train.Trainer, "evaluate", 2),
    ):  # before and after the restart
        with pytest.raises(Interrupted):
            training("pseudo_label", tmp_path, place, **options)
    same(training("pseudo_label", tmp_path, **options), training("pseudo_label", **options))


def test_a_finished_training_is_not_trained_again(training, tmp_path, capfd):
    first = training("role", tmp_path)
    again = training("role", tmp_path, (train.Trainer, "step", 1))
    same(first, again)
    assert "resuming after epoch 5" in capfd.readouterr().err


def test_a_training_that_stopped_early_is_not_continued(training, tmp_path, monkeypatch):
    from types import SimpleNamespace

    def script():
        values = iter([0, 0.5, 0.6, 0.1, 0.9, 0.9])
        monkeypatch.setattr(metrics, "average_precision", lambda *a: SimpleNamespace(mean=next(values)))

    script()
    first = training("an", tmp_path, stop_drop=2.0)
    again = training("an", tmp_path, stop_drop=2.0)
    assert len(first.history) == len(again.history) == 4 and again.best_epoch == 2
    same(first, again)


# --- the files ---


def test_two_are_kept(training, tmp_path):
    training("an", tmp_path)
    assert [p.name[:12] for p in checkpoints.files(tmp_path)] == ["epoch-000005", "epoch-000004"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-400] + bytes([b[-400] ^ 1]) + b[-399:]],
    ids=["truncated", "empty", "one bit"],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(training, tmp_path, damage):
    with pytest.raises(Interrupted):
        training("ll_cp", tmp_path, (train.Trainer, "evaluate", 5))
    newest = checkpoints.files(tmp_path)[0]
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.warns(UserWarning, match=r"epoch-000003.*damaged.*the previous one"):
        found = training("ll_cp", tmp_path)
    same(found, training("ll_cp"))


def test_all_damaged_is_a_new_start(training, tmp_path):
    with pytest.raises(Interrupted):
        training("an", tmp_path, (train.Trainer, "evaluate", 4))
    for path in checkpoints.files(tmp_path):
        path.write_bytes(b"x")
    with pytest.warns(UserWarning, match="damaged"):
        found = training("an", tmp_path)
    same(found, training("an"))


@pytest.mark.parametrize("place", [(os, "fsync"), (Path, "replace"), (torch, "save")], ids=str)
def test_a_crash_while_saving_leaves_the_checkpoint_before(training, tmp_path, place):
    number = 3 if place[1] != "fsync" else 5  # two a checkpoint: the file's and the folder's
    with pytest.raises(Interrupted):
        training("role", tmp_path, (*place, number))
    assert [p.name[:12] for p in checkpoints.files(tmp_path)] == ["epoch-000002", "epoch-000001"]
    same(training("role", tmp_path), training("role"))
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written is left


class Boom:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_file_that_would_run_code_is_refused(training, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    content = tmp_path / "content"
    if form == "torch":
        torch.save({"epoch": 1, "model": Boom()}, content)
    else:
        content.write_bytes(pickle.dumps(Boom()))
    with open(content, "rb") as file:
        name = f"epoch-000001-{checkpoints._digest(file)}.pt"
    content.rename(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is not a checkpoint.*run code"):
        training("an", tmp_path)
    assert not (tmp_path / "executed").exists()


def test_numpy_settings_resume(training, tmp_path):
    options = {"lr": np.float64(0.01), "weight_decay": np.float32(1e-3), "ema": np.float64(0.5)}
    with pytest.raises(Interrupted):
        training("gr", tmp_path, (train.Trainer, "evaluate", 3), **options)
    same(training("gr", tmp_path, **options), training("gr", **options))


# --- a full disk ---


def test_a_full_disk_is_survived_and_said(training, tmp_path, monkeypatch):
    save, calls = torch.save, []

    def full(*arguments, **options):
        calls.append(None)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(*arguments, **options)

    monkeypatch.setattr(torch, "save", full)
    with pytest.warns(UserWarning, match=r"no checkpoint after epoch 3 \(.*No space") as caught:
        found = training("an", tmp_path)
    assert len([w for w in caught if "no checkpoint" in str(w.message)]) == 3 and len(calls) == 5
    assert [p.name[:12] for p in checkpoints.files(tmp_path)] == ["epoch-000002", "epoch-000001"]
    monkeypatch.undo()
    same(found, training("an"))


def small_digits(monkeypatch, **options):
    monkeypatch.setattr(digits, "SIZES", {"train": 60, "val": 30, "test": 30})
    return Experiment(
        **{"method": "role", "params": PARAMS["role"], "epochs": 3, "accelerator": "cpu"} | options
    )


def test_too_little_room_is_said_before_training(tmp_path, monkeypatch):
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")(10, 9, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(train, "fit", None)
    with pytest.raises(OSError, match=r"MB are needed.*MB are free.*--runs-dir"):
        run(small_digits(monkeypatch), root=tmp_path, progress=False)


# --- whole runs ---


def files(found):
    return {p.name: p.read_bytes() for p in found.path.glob("*.safetensors")}


@pytest.mark.parametrize("phases", [{}, {"linear_epochs": 2, "linear_lr": 0.01}], ids=["one", "two"])
@pytest.mark.parametrize("number", [2, 4, 6, 7])
def test_a_run_is_resumed_by_asking_for_it_again(tmp_path, monkeypatch, capfd, phases, number):
    """Evaluations are epochs 0 to 3 of a single phase, or 0 to 2 of the head and 0 to 3 of the whole network."""
    wanted = small_digits(monkeypatch, **phases)
    with monkeypatch.context() as patch:
        interrupt(patch, train.Trainer, "evaluate", number)
        if phases or number <= 4:
            with pytest.raises(Interrupted):
                run(wanted, root=tmp_path / "a", progress=False)
    found = run(wanted, root=tmp_path / "a", progress=False)
    said = capfd.readouterr().err.splitlines()
    assert all("role on digits, seed 0" in line and "resuming after epoch" in line for line in said)
    whole = run(wanted, root=tmp_path / "b", progress=False)
    assert files(found) == files(whole) and found.path.name == whole.path.name
    assert not list((tmp_path / "a" / "partial").iterdir())


def test_a_run_that_was_killed_while_writing_its_result(tmp_path, monkeypatch):
    from spml_core.runs import record

    wanted = small_digits(monkeypatch)
    with monkeypatch.context() as patch:
        interrupt(patch, record, "write_json", 2)
        with pytest.raises(Interrupted):
            run(wanted, root=tmp_path / "a", progress=False)
    with monkeypatch.context() as patch:
        interrupt(patch, train.Trainer, "step", 1)  # nothing is trained again
        found = run(wanted, root=tmp_path / "a", progress=False)
    assert files(found) == files(run(wanted, root=tmp_path / "b", progress=False))


def test_fresh_does_not_go_on(tmp_path, monkeypatch, capfd):
    wanted = small_digits(monkeypatch)
    with monkeypatch.context() as patch:
        interrupt(patch, train.Trainer, "evaluate", 3)
        with pytest.raises(Interrupted):
            run(wanted, root=tmp_path, progress=False)
    run(wanted, root=tmp_path, fresh=True, progress=False)
    assert "resuming" not in capfd.readouterr().err


@pytest.mark.parametrize("times", [3])
def test_an_interrupt_closes_what_reads_the_images(training, monkeypatch, times):
    """A traceback keeps the frames of an interrupted cell alive, and with them the worker processes of a loader."""
    batches, open_now, kept = loading.batches, [], []

    def reading(*arguments):
        open_now.append(None)
        try:
            yield from batches(*arguments)
        finally:
            open_now.pop()

    monkeypatch.setattr(loading, "batches", reading)
    for _ in range(times):
        with pytest.raises(Interrupted) as caught:
            training("an", None, (train.Trainer, "step", 2))
        kept.append(caught)
        assert not open_now


@pytest.mark.slow
def test_twenty_kills_change_no_bit():
    command = [sys.executable, "-m", "benchmarks.resume", "--kills", "20"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "20 kills" in done.stdout, done.stdout + done.stderr


def test_no_warning_without_reason(training, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training("gr", tmp_path, flip=True, ema=0.9, schedule="one_cycle")
