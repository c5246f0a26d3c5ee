"""Training images in place of validation images show a training from inside without changing it."""

import numpy as np

from spml_core import data
from spml_core.runs import Experiment, run

SIZES = {"train": 60, "val": 30, "test": 20}


def test_what_a_run_keeps_of_validation_is_then_of_training(tmp_path):
    plain = run(Experiment(method="em", data=SIZES, epochs=2), tmp_path, progress=False)
    watched = Experiment(method="em", data=SIZES | {"val_is_train": True}, epochs=2)
    seen = run(watched, tmp_path, progress=False)
    assert seen.path != plain.path and seen.summary["data"]["val_is_train"]
    for name in ("observed", "full"):
        assert np.array_equal(getattr(seen.labels("val"), name), getattr(seen.labels("train"), name))
    assert seen.logits("val", 0).shape == (60, 10)
    ids = [line.split(",")[0] for line in (seen.path / "labels.csv").read_text().splitlines()[1:]]
    assert len(set(ids)) == len(ids)


def test_the_training_is_the_same(tmp_path):
    plain = run(Experiment(method="an", data=SIZES, epochs=2), tmp_path, progress=False)
    watched = Experiment(method="an", data=SIZES | {"val_is_train": True}, epochs=2)
    seen = run(watched, tmp_path, progress=False)
    assert np.array_equal(seen.labels("train").observed, plain.labels("train").observed)
    assert seen.history["train_loss"].tolist()[1:] == plain.history["train_loss"].tolist()[1:]


def test_fingerprint_is_another():
    plain, watched = data.load("digits", **SIZES), data.load("digits", val_is_train=True, **SIZES)
    assert watched.fingerprint != plain.fingerprint
    assert watched.fingerprint == data.load("digits", val_is_train=True, **SIZES).fingerprint
    assert watched.parts["test"].ids == plain.parts["test"].ids
