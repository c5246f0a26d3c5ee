"""Draws of the single positive that are not uniform: biased to classes or images, by annotators, and wrong labels."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from spml_core.cli import main
from spml_core.data import DataError, Part, labels, load, observe, scores
from spml_core.runs import Experiment, run

SMALL = {"train": 600, "val": 60, "test": 60, "counts": [0.0, 0.5, 0.5], "sides": [7, 16]}
CLASSES = tuple("0123456789")
GROUPS = [list("01234"), list("3456789"), list("0369")]


@pytest.fixture(scope="module")
def parts():
    return load("digits", **SMALL).parts


@pytest.fixture
def scored(parts, tmp_path):
    """Return a file of scores, and the scores of the training images."""
    numbers = np.random.default_rng(0).random((660, 10))
    ids = parts["train"].ids + parts["val"].ids
    scores.write(tmp_path / "scores.csv", ids, numbers, CLASSES)
    return str(tmp_path / "scores.csv"), numbers[:600]


def draws(file):
    """Return every draw of docs/label-draws.md by name."""
    return {
        "uniform": (1, 0),
        "by class": {"weights": [1.0, 20.0] * 5},
        "salient": {"weights": "salience", "temperature": 0},
        "large": {"weights": "salience"},
        "annotators": {"annotators": GROUPS},
        "easiest": {"weights": file, "temperature": 0},
        "wrong": {"wrong": 0.05},
        "all": {"weights": "salience", "temperature": 0.5, "annotators": GROUPS, "wrong": 0.2},
    }


def drawn(given, parts, seed=3):
    return observe.draw(observe.check(given), parts, CLASSES, seed, "per_image")


EACH = pytest.mark.parametrize("name", draws(""))


@EACH
def test_one_label_per_image_reproducible_and_independent_of_other_images(name, parts, scored):
    given = draws(scored[0])[name]
    found = drawn(given, parts)
    train, share = parts["train"], dict(given).get("wrong", 0) if isinstance(given, dict) else 0
    assert all((found[split].sum(1) == 1).all() and found[split].min() == 0 for split in ("train", "val"))
    false = (train.full[found["train"] == 1] == 0).mean()
    assert false == 0 if share == 0 else false == pytest.approx(share, abs=4 * np.sqrt(share / 600))
    assert all((drawn(given, parts)[split] == found[split]).all() for split in found)

    order = np.random.default_rng(1).permutation(600)[:100]
    fewer = Part(None, train.full[order], tuple(train.ids[n] for n in order), salience=train.salience[order])
    assert (drawn(given, {"train": fewer})["train"] == found["train"][order]).all()


@pytest.mark.parametrize("name", ["uniform", "by class", "large", "annotators", "wrong", "all"])
def test_seeds_differ(name, parts):
    given = draws("")[name]
    assert (drawn(given, parts, 1)["train"] != drawn(given, parts, 2)["train"]).any()


@EACH
def test_a_draw_is_saved_as_a_manifest_and_read(name, parts, scored, tmp_path):
    given = draws(scored[0])[name]
    found = drawn(given, parts)
    observe.write_manifest(tmp_path / "m.csv", parts, found, CLASSES)
    share = 0.4 if isinstance(given, dict) and "wrong" in given else 0
    read = drawn({"manifest": tmp_path / "m.csv", "wrong": share}, parts, 99)
    assert all((read[split] == found[split]).all() for split in found)
    if share:
        with pytest.raises(DataError, match=r"(?s)as positive, but absent.*\"wrong\": 0.05"):
            drawn({"manifest": tmp_path / "m.csv"}, parts)


# The stated bias.


def test_the_most_salient_digit_is_shown(parts):
    train = parts["train"]
    shown = drawn({"weights": "salience", "temperature": 0}, parts)["train"] == 1
    assert (train.salience[shown] == train.salience.max(1)).all()
    assert ((train.salience > 0) == (train.full == 1)).all()


def test_the_share_of_a_label_is_proportional_to_its_weight():
    """In 8,000 images with the weights 1, 3 and 6, within 4 standard errors, at two temperatures."""
    weights = np.tile([1.0, 3.0, 6.0, 0.0], (8000, 1))
    for temperature in (1, 2):
        expected = weights[0] ** (1 / temperature) / (weights[0] ** (1 / temperature)).sum()
        shown = labels.biased(np.ones((8000, 4)), weights, temperature=temperature).mean(0)
        np.testing.assert_allclose(shown, expected, atol=4 * np.sqrt(0.25 / 8000))
    first = labels.biased(np.ones((8000, 4)), weights, temperature=0)
    assert (first[:, 2] == 1).all()
    assert (
        labels.biased(np.eye(4)[[3]], weights[:1])[0] == [0, 0, 0, 1]
    ).all()  # the only label, of weight 0


def test_ties_of_the_largest_weight_are_drawn_uniformly():
    shown = labels.biased(np.ones((6000, 3)), np.tile([5.0, 5.0, 1.0], (6000, 1)), temperature=0).mean(0)
    np.testing.assert_allclose(shown, [0.5, 0.5, 0], atol=4 * np.sqrt(0.25 / 6000))


def test_a_small_temperature_is_nearly_the_largest_weight():
    weights = np.random.default_rng(0).random((500, 4)) * 1e-8
    cold, first = (labels.biased(np.ones((500, 4)), weights, temperature=t) for t in (1e-6, 0))
    assert (cold == first).mean() > 0.99


def test_the_easiest_label_is_shown(parts, scored):
    file, numbers = scored
    shown = drawn({"weights": file, "temperature": 0}, parts)["train"].argmax(1)
    assert (shown == np.where(parts["train"].full == 1, numbers, -1).argmax(1)).all()


def test_annotators_show_what_they_know_and_each_has_as_many_images():
    knows = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], bool)
    weights = labels.annotators(np.ones((6000, 4)), knows, seed=1)
    share = [(weights == row).all(1).mean() for row in knows]
    np.testing.assert_allclose(share, 1 / 3, atol=4 * np.sqrt(0.25 / 6000))
    passed_on = labels.annotators(np.eye(4)[[0, 2, 3] * 50], knows, seed=1)
    assert (passed_on.reshape(50, 3, 4) == knows).all()  # only one of them knows it


def test_wrong_labels_are_absent_classes_of_a_share_of_the_images():
    full = np.tile([1, 1, 0, 0, 0], (8000, 1))
    known = full == 1
    known[:, 3:] = True
    right = labels.biased(full, np.ones(5))
    found = labels.wrong(right, full, 0.05, known=known)
    changed = (found != right).any(1)
    assert changed.mean() == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 8000))
    assert (found.sum(1) == 1).all() and not found[:, 2].any()  # class 2 is not known to be absent
    assert found[changed, 3].mean() == pytest.approx(0.5, abs=0.1)
    assert (labels.wrong(np.eye(2), np.ones((2, 2)), 1.0) == np.eye(2)).all()  # nothing is absent
    assert labels.wrong(np.zeros((0, 3)), np.zeros((0, 3)), 0.5).shape == (0, 3)


# What is refused.

BAD = [
    ({"wrong": 1.5}, "wrong=1.5"),
    ({"weights": "frequency", "temperature": -1}, "temperature=-1"),
    ({"annotators": [["0"], []]}, "annotators="),
    ({"annotators": [[0, 1]]}, "annotators="),
    ({"annotators": "01"}, "annotators="),
    ({"weights": "no/scores.csv"}, "there is no file"),
    ({"weights": "saliency"}, "'saliency'.*salience"),
    ({"wrong": "often"}, "observe is"),
    ({"temperature": 0}, "observe is"),
]


@pytest.mark.parametrize("given, match", BAD)
def test_a_bad_draw_is_refused_before_any_work(given, match):
    with pytest.raises(ValueError, match=match):
        Experiment(observe=given).resolved()


def test_a_draw_that_does_not_fit_the_data_set_is_refused(parts, scored, tmp_path):
    bare = {name: Part(None, part.full, part.ids) for name, part in parts.items()}
    with pytest.raises(DataError, match="knows how large each object is"):
        drawn({"weights": "salience"}, bare)
    with pytest.raises(DataError, match="'10' is not a class"):
        drawn({"annotators": [["10", *CLASSES]]}, parts)
    with pytest.raises(DataError, match="nobody knows 8, 9"):
        drawn({"annotators": [list("01234567")]}, parts)
    with pytest.raises(DataError, match="3 numbers, and the data set has 10"):
        drawn({"weights": [1, 2, 3]}, parts)
    text = Path(scored[0]).read_text().splitlines()
    for lines, match in (
        (text[:-2], "2 of 60 images have no scores"),
        ([*text, text[-1]], "image 'val-0059' twice"),
        ([text[0].replace("9", "nine"), *text[1:]], "1 of 10 classes has no scores in .*: 9"),
        ([*text[:-1], text[-1].rsplit(",", 1)[0] + ",-1"], "class '9', is '-1'"),
    ):
        (tmp_path / "bad.csv").write_text("\n".join(lines))
        with pytest.raises(DataError, match=match):
            drawn({"weights": str(tmp_path / "bad.csv")}, parts)


@pytest.mark.parametrize("sides", [[11], [14, 11], [7, 17]])
def test_bad_sides(sides):
    with pytest.raises(DataError, match="option sides of data set 'digits'"):
        load("digits", **SMALL | {"sides": sides})


# Runs and the command line.


def test_a_draw_is_part_of_the_key_and_a_file_counts_by_its_content(scored, tmp_path):
    data = load("digits", **SMALL)
    copy = tmp_path / "copy.csv"
    copy.write_bytes(Path(scored[0]).read_bytes())
    keys = {
        name: Experiment(data=SMALL, observe=given).resolved().key(data)
        for name, given in draws(scored[0]).items()
    }
    assert len(set(keys.values())) == len(keys)
    again = Experiment(data=SMALL, observe={"weights": str(copy), "temperature": 0}).resolved()
    assert again.key(data) == keys["easiest"]
    copy.write_text(copy.read_text().replace("0.6", "0.5"))
    with pytest.raises(DataError, match="has changed"):
        again.resolved()


def test_a_run_with_wrong_labels(tmp_path):
    few = SMALL | {"train": 100}
    found = run(
        Experiment(method="gr", epochs=1, data=few, observe={"wrong": 0.3}), root=tmp_path, progress=False
    )
    train = found.labels("train")
    assert 0 < ((train.observed == 1) & (train.full == 0)).sum() < 60
    json.dumps(found.config["observe"])


def test_the_command_draws_it_too(parts, tmp_path):
    given = draws("")["all"]
    options = " ".join(f"-d {name} {shlex.quote(json.dumps(value))}" for name, value in SMALL.items())
    words = shlex.split(f"data labels digits {options} --seed 3 --output {tmp_path / 'm.csv'}")
    result = CliRunner().invoke(main, [*words, "--observe", json.dumps(given)])
    assert result.exit_code == 0, result.output
    assert result.output.count("1.0000") == 2  # observed labels per image, train and val
    read = drawn({"manifest": tmp_path / "m.csv", "wrong": 0.5}, parts)
    assert (read["train"] == drawn(given, parts)["train"]).all()
