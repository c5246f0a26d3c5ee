"""An experiment's choice of observed labels, and runs with it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from spml_core.cli import main
from spml_core.data import DataError, Part, labels, manifest, observe
from spml_core.data.listing import Listing
from spml_core.data.sets import digits
from spml_core.runs import Experiment, Run, run

ROOT = Path(__file__).parents[1]
TRACKED = ROOT / "data" / "draws" / "digits-single-positive-seed0.csv"


def part(full, ids, known=None):
    return Part(None, np.asarray(full, np.int8), tuple(ids), known)


# What an experiment says.

BAD = [
    ({"drop": 1.5}, "ratio=1.5"),
    ({"drop": 0.5, "num_pos": 1}, "observe is"),
    ({"weights": "common"}, "'common'"),
    ({"weights": [1, -1]}, r"weights\[1\] = -1"),
    ({"weights": "frequency", "num_pos": -2}, "num_pos=-2"),
    ({"manifest": "no/such.csv"}, "no/such.csv"),
    ({"manifest": str(TRACKED), "sha256": "0" * 64}, "has changed"),
    ({"num_pos": 1}, "observe is"),
    ({"num_pos": 1.5, "weights": "frequency"}, "observe is"),
    ("single", "observe is"),
    ((1, 0.5), "observe is"),
]


@pytest.mark.parametrize("given, match", BAD)
def test_a_bad_value_is_refused_before_any_work(given, match):
    with pytest.raises(ValueError, match=match):
        Experiment(observe=given).resolved()


GOOD = [
    (np.array([1, 0]).tolist(), (1, 0)),
    ({"drop": 0.8}, {"drop": 0.8}),
    ({"weights": np.array([1, 2])}, {"num_pos": 1, "weights": [1.0, 2.0]}),
    ({"weights": "frequency", "num_pos": 2}, {"num_pos": 2, "weights": "frequency"}),
]


@pytest.mark.parametrize("given, expected", GOOD)
def test_a_value_has_one_form(given, expected):
    once = Experiment(observe=given).resolved()
    assert once.observe == expected == once.resolved().observe
    json.dumps(once.observe)


def some_parts():
    rng = np.random.default_rng(0)
    full = (rng.random((30, 4)) < 0.5).astype(np.int8)
    known = rng.random((30, 4)) < 0.8
    ids = [f"{n}.jpg" for n in range(30)]
    return {
        "train": part(full[:20] * known[:20], ids[:20], known[:20]),
        "val": part(full[20:25], ids[20:25]),
        "test": part(full[25:], ids[25:]),
    }


@pytest.mark.parametrize("given", [(1, 1), {"drop": 0.5}, {"num_pos": 1, "weights": "inverse_frequency"}])
def test_what_is_drawn_written_and_read_is_itself(tmp_path, given):
    parts = some_parts()
    drawn = observe.draw(given, parts, "abcd", 3, "per_image")
    assert set(drawn) == {"train", "val"} and not drawn["train"][~parts["train"].known].any()
    sha = observe.write_manifest(tmp_path / "m.csv", parts, drawn, "abcd")
    checked = observe.check({"manifest": tmp_path / "m.csv"})
    assert checked["sha256"] == sha
    read = observe.draw(checked, parts, "abcd", 99, "cole2021")
    assert all((read[split] == drawn[split]).all() for split in drawn)
    assert manifest.read(tmp_path / "m.csv", "abcd").splits.count("test") == 5


def test_the_published_draw_runs_through_train_and_val_together():
    whole = some_parts()["val"].full, some_parts()["train"].full[:5]
    full = np.concatenate(whole)
    rows = {"train": np.array([0, 3, 4, 7, 8, 9]), "val": np.array([1, 2, 5, 6])}
    parts = {k: Part(None, full[r], tuple(f"{n}.jpg" for n in r), None, r) for k, r in rows.items()}
    drawn = observe.draw({"drop": 0.5}, parts, "abcd", 1200, "cole2021")
    expected = labels.drop(full, 0.5, 1200, "cole2021")
    assert all((drawn[split] == expected[r]).all() for split, r in rows.items())
    alone = observe.draw((1, 0), {"train": parts["train"]}, "abcd", 1, "per_image")
    assert (
        alone["train"] == labels.observe(full[rows["train"]], 1, 0, 1, "per_image", parts["train"].ids)
    ).all()


def test_weights_are_counted_on_the_training_images():
    parts = some_parts()
    weights = labels.class_weights(parts["train"].full, "frequency")
    drawn = observe.draw({"num_pos": 1, "weights": "frequency"}, parts, "abcd", 3, "per_image")["val"]
    expected = labels.biased(parts["val"].full, weights, seed=3, ids=parts["val"].ids)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("value, said", [(1, "positive, but absent"), (-1, "negative, but present")])
def test_labels_that_contradict_the_truth_are_refused(value, said):
    its = part([[1, 0], [0, 1]], ["a", "b"], np.array([[True, True], [False, True]]))
    observed = np.zeros((2, 2), np.int8)
    observed[1, 0] = 1  # unknown here: nobody can say that it is wrong
    assert observe.require_agreement(observed, its, "xy") is observed
    observed[(0, 1) if value == 1 else (1, 1)] = value
    with pytest.raises(
        DataError, match=rf"(?s)1 of 2 observed labels .*image [ab]: class 'y' is observed as {said}"
    ):
        observe.require_agreement(observed, its, "xy")


def test_labels_alone_need_no_image(monkeypatch):
    """A loader's `read` gives labels of images that are not there."""
    listing = Listing(
        name="three",
        classes=("x", "y"),
        paths=[Path(name) for name in "abc"],
        ids=["a", "b", "c"],
        splits=["train", "val", "train"],
        full=np.eye(3, 2, dtype=np.int8),
        known=np.ones((3, 2), bool),
        divided=True,
    )

    def read(root: str, shades: int = 3):
        return listing

    monkeypatch.setattr(digits, "read", read, raising=False)
    classes, parts = observe.truth("digits", root="anywhere", size=160)  # which says how pixels are read
    assert classes == ("x", "y") and parts["train"].ids == ("a", "c") and set(parts) == {"train", "val"}
    assert parts["train"].full.tolist() == [[1, 0], [0, 0]] and parts["train"].known.all()
    assert parts["train"].rows.tolist() == [0, 2] and parts["val"].rows.tolist() == [1]
    with pytest.raises(DataError, match=r"'digits'.*colour.*root, shades"):
        observe.truth("digits", root="anywhere", colour=1)


# The tracked draw, and runs.


@pytest.fixture(scope="module")
def parts():
    return digits.load().parts


def test_the_tracked_draw_is_what_the_code_draws(parts, tmp_path):
    drawn = observe.draw((1, 0), parts, "0123456789", 0, "per_image")
    sha = observe.write_manifest(tmp_path / "m.csv", parts, drawn, "0123456789")
    assert sha == manifest.digest(TRACKED)
    assert TRACKED.stat().st_size < 400_000


SMALL = {"method": "an", "epochs": 1, "accelerator": "cpu"}


def test_a_run_on_a_manifest_is_the_run_that_wrote_it(tmp_path):
    drawn = run(Experiment(**SMALL), root=tmp_path / "runs", progress=False)
    assert (drawn.path / "labels.csv").read_bytes() == TRACKED.read_bytes()
    assert drawn.summary["manifest_sha256"] == manifest.digest(TRACKED)
    given = Experiment(**SMALL, observe={"manifest": str(TRACKED)})
    read = run(given, root=tmp_path / "runs", progress=False)
    assert read.path != drawn.path and read.config["observe"]["sha256"] == manifest.digest(TRACKED)
    np.testing.assert_array_equal(read.logits("val"), drawn.logits("val"))

    # The same content elsewhere is the same run; other content is another.
    copy = tmp_path / "copy.csv"
    copy.write_bytes(TRACKED.read_bytes())
    again = Experiment(**SMALL, observe={"manifest": str(copy)})
    assert run(again, root=tmp_path / "runs", progress=False).path == read.path
    data = digits.load(train=50, val=20, test=20)
    key = again.resolved().key(data)
    rows = list(csv.reader(TRACKED.open()))
    rows[1][2] = ""
    with copy.open("w", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows(rows)
    assert again.resolved().key(data) != key


def test_a_run_on_a_missing_ratio(tmp_path, parts):
    found = run(Experiment(**SMALL, observe={"drop": 0.5}), root=tmp_path, progress=False)
    expected = labels.drop(parts["train"].full, 0.5, 0, ids=parts["train"].ids)
    np.testing.assert_array_equal(found.labels("train").observed, expected)


def test_the_command_line_says_the_same(tmp_path):
    def spml(*arguments):
        return CliRunner().invoke(main, ["train", "--method", "an", "--epochs", "1", *arguments])

    done = spml("--drop", "0.5", "--runs-dir", str(tmp_path))
    assert done.exit_code == 0, done.output
    (folder,) = tmp_path.glob("digits-an-*")
    assert Run(folder).config["observe"] == {"drop": 0.5}
    assert "mutually exclusive" in spml("--drop", "0.5", "--manifest", str(TRACKED)).output
    assert "there is no file" in spml("--manifest", "no/such.csv").output
    assert "mutually exclusive" in spml("--drop", "0.5", "-o", "observe", "[1, 1]").output
    assert "frequency" in spml("-o", "observe", '{"weights": "common"}').output
