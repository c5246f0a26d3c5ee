"""What was computed around a run is reused, and only for the same request."""

import numpy as np
import pytest
import torch

from spml_core import landscape
from spml_core.runs import Experiment, run
from spml_core.train.device import threads

STEPS = np.linspace(-1, 1, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    small = {"train": 64, "val": 40, "test": 20}
    return run(
        Experiment(dataset="digits", method="gr", data=small, epochs=1),
        tmp_path_factory.mktemp("runs"),
        progress=False,
    )


@pytest.fixture
def around(trained, tmp_path):
    return lambda **options: landscape.Neighbourhood(trained, tmp_path, **{"num_images": 32} | options)


def test_second_time_nothing_is_computed(around, monkeypatch):
    first = around()
    quick = {"num_vectors": 2, "tol": 0.1}
    found = first.line(STEPS), first.surface(STEPS), first.curvature("own", **quick)
    monkeypatch.setattr("spml_core.landscape.neighbourhood.of_run", None)
    again = around()
    for before, after in zip(found, (again.line(STEPS), again.surface(STEPS)), strict=False):
        assert before.meta == after.meta
        assert all((before.values[name] == after.values[name]).all() for name in ("own", "full_bce"))
    read = again.curvature("own", **quick)
    assert read.top == found[2].top and read.trace == found[2].trace


def test_other_settings_are_other_files(around, tmp_path):
    for options in ({}, {"num_images": 16}, {"batch_norm": "recalibrated"}):
        around(**options).line(STEPS)
    around().line(STEPS, directions=(3, 4, 5))
    around().line(STEPS / 2)
    assert len(list(tmp_path.glob("*-line-*.safetensors"))) == 5


def test_interrupted_surface_goes_on(around, tmp_path, monkeypatch):
    whole = around().surface(STEPS)
    (file,) = tmp_path.glob("*-surface-*.safetensors")
    file.unlink()
    monkeypatch.setattr(landscape.surfaces, "CHUNK", 5)
    real, calls = landscape.surfaces._values_at, []

    def stops(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(landscape.surfaces, "_values_at", stops)
    with pytest.raises(KeyboardInterrupt):
        around().surface(STEPS)
    assert file.exists()
    rest = around().surface(STEPS)
    assert len(calls) == 3 + 3  # 2 of 5 chunks were kept
    assert (rest.values["own"] == whole.values["own"]).all()


def test_flatness_is_that_of_lines_and_curvature(around):
    it, quick = around(), {"num_vectors": 2, "tol": 0.1}
    table = it.flatness(STEPS, radius=0.5, delta=0.01, **quick).set_index("loss")
    line = it.line(STEPS)
    for loss in ("own", "full_bce"):
        rises = [landscape.mean_rise(STEPS, values, 0.5) for values in line.values[loss]]
        assert table.loc[loss, "rise"] == pytest.approx(np.mean(rises))
        assert table.loc[loss, "centre"] == pytest.approx(line.meta["centre"][loss])
        assert table.loc[loss, "top"] == it.curvature(loss, **quick).top


def test_it_takes_as_many_threads_as_the_training_did(around, monkeypatch):
    """Small networks gain nothing from a second thread, and lose much if another process needs its core."""
    seen = []

    def noting(function):
        def inner(*args, **options):
            seen.append(torch.get_num_threads())
            return function(*args, **options)

        return inner

    for name in ("line", "surface", "curvature"):
        monkeypatch.setattr(landscape.neighbourhood, name, noting(getattr(landscape.neighbourhood, name)))
    with threads(3):
        one = around(num_images=16)
        one.line(STEPS), one.surface(STEPS), one.curvature("own", num_vectors=2, tol=0.1)
        assert torch.get_num_threads() == 3
    assert seen == [one.run.config["threads"]] * 3 == [1] * 3
