"""`spml data suggest` ranks labels by models that have not seen the image, and answers come back as observed labels."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from miniatures import write_folder
from test_gallery import Page

from spml_core import data
from spml_core.cli import main
from spml_core.data import DataError, OptionError, folds, manifest
from spml_core.data.files import loading
from spml_core.runs import Experiment, Labels, Run, find, run
from spml_core.studies import suggestions

SMALL = {"train": 60, "val": 30, "test": 30}
MANY = {"train": 2000, "val": 300, "test": 500}


def spml(*arguments, code=0):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a run of one epoch on 60 images, in a folder of its own."""
    root = tmp_path_factory.mktemp("runs")
    return run(Experiment(method="an", data=SMALL, epochs=1), root, progress=False)


# Folds.


def test_every_training_image_is_held_out_once():
    whole = data.load("digits", **SMALL)
    parts = [data.load("digits", **SMALL, fold=[n, 7]).parts for n in range(7)]
    ids = whole.parts["train"].ids
    assert sorted(name for each in parts for name in each["test"].ids) == sorted(ids)
    assert {len(each["test"]) for each in parts} == {8, 9}
    for each in parts:
        assert set(each["train"].ids) == set(ids) - set(each["test"].ids)
        assert each["val"].ids == whole.parts["val"].ids
        for split in ("train", "test"):
            place = [ids.index(name) for name in each[split].ids]
            assert (each[split].inputs == whole.parts["train"].inputs[place]).all()
            assert (each[split].full == whole.parts["train"].full[place]).all()
    marks = {data.load("digits", **SMALL, fold=[n, m]).fingerprint for n, m in ((0, 2), (1, 2), (0, 3))}
    assert len(marks) == 3 and whole.fingerprint not in marks


def test_large_inputs_are_not_copied(monkeypatch):
    whole = data.load("digits", **SMALL).parts["train"]
    copied = data.load("digits", **SMALL, fold=[1, 3]).parts["test"].inputs
    monkeypatch.setattr(loading, "IN_MEMORY", 0)
    rows = data.load("digits", **SMALL, fold=[1, 3]).parts["test"].inputs
    assert rows.source.shape == whole.inputs.shape and rows.shape == copied.shape


@pytest.mark.parametrize("fold", [[5, 5], [-1, 5], [0, 1], [0, 61], [0], [0, 5, 1]])
def test_a_fold_that_does_not_exist(fold):
    with pytest.raises(OptionError, match="fold"):
        data.load("digits", **SMALL, fold=fold)


# Out-of-fold predictions.


def test_predictions_come_from_models_that_have_not_seen_the_image(small):
    labels = suggestions.out_of_fold(small, folds=3)
    given = small.labels("train")
    assert (labels.observed == given.observed).all() and labels.logits.shape == given.full.shape
    names = small.ids("train")
    assert names == list(data.load("digits", **SMALL).parts["train"].ids)
    made = [r for r in map(Run, small.path.parent.glob("digits-*")) if "fold" in r.config["data"]]
    assert len(made) == 3 and find("digits-an", small.path.parent) == small
    for each in made:
        held = folds.held_out(60, *each.config["data"]["fold"])
        trained = each.ids("train")
        assert not set(trained) & {names[n] for n in held}
        shown = given.observed[[names.index(name) for name in trained]]
        assert (each.labels("train").observed == shown).all()  # the labels that the run observed
        assert (labels.logits[held] == each.logits("test")).all()


def test_a_fold_is_trained_once(small, monkeypatch):
    first = suggestions.out_of_fold(small, folds=3).logits
    monkeypatch.setattr("spml_core.train.fit", None)
    assert (suggestions.out_of_fold(small, folds=3).logits == first).all()


def test_published_draws_and_unusual_schemes_keep_their_labels(tmp_path):
    settings = {"method": "an", "data": SMALL, "epochs": 1}
    for more in ({"protocol": "cole2021", "seed": 3}, {"observe": (1, 2)}):
        found = run(Experiment(**settings, **more), tmp_path, progress=False)
        labels = suggestions.out_of_fold(found, folds=2)
        assert (labels.observed == found.labels("train").observed).all()


def test_a_run_chosen_on_its_training_images_is_refused(tmp_path):
    watched = Experiment(method="an", data=SMALL | {"val_is_train": True}, epochs=1)
    found = run(watched, tmp_path, progress=False)
    with pytest.raises(ValueError, match="val_is_train: name a run without it"):
        suggestions.experiments(found)


def test_data_that_has_changed_is_noticed(small, tmp_path, monkeypatch):
    other = run(Experiment(method="an", data=SMALL | {"seed": 1}, epochs=1), tmp_path, progress=False)
    config = json.loads((other.path / "config.json").read_text())
    config["data"]["seed"] = 0
    (other.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"in conflict|has changed"):
        suggestions.out_of_fold(other, folds=2)


# The order.


def labelled() -> Labels:
    p = np.array([[0.9, 0.2, 0.8], [0.3, 0.95, 0.1]])
    observed = np.array([[1, 0, 0], [1, 0, -1]], np.int8)
    full = np.array([[1, 1, 0], [0, 1, 0]], np.int8)
    return Labels(observed, full, np.ones_like(full, bool), np.log(p / (1 - p)).astype(np.float32))


def test_missing_labels_by_probability_and_observed_ones_by_contradiction():
    table = suggestions.ranked(labelled())
    assert table["kind"].tolist() == ["missing"] * 3 + ["doubtful"] * 3
    cells = list(zip(table["row"], table["column"], strict=True))
    assert cells == [(1, 1), (0, 2), (0, 1), (1, 0), (0, 0), (1, 2)]
    assert table["probability"].tolist() == pytest.approx([0.95, 0.8, 0.2, 0.3, 0.9, 0.1])
    first = suggestions.ranked(labelled(), missing=1, doubtful=2)
    assert first["kind"].tolist() == ["missing", "doubtful", "doubtful"]


def test_the_truth_does_not_reach_the_order():
    labels = labelled()
    wrong = Labels(labels.observed, 1 - labels.full, labels.known, labels.logits)
    pd.testing.assert_frame_equal(suggestions.ranked(labels), suggestions.ranked(wrong))


def test_precision_of_the_first_suggestions():
    found = suggestions.judged(labelled(), (1, 2, 3, 4))
    assert [found[k] for k in (1, 2, 3)] == pytest.approx([1, 1 / 2, 2 / 3]) and np.isnan(found[4])
    known = np.array([[1, 1, 0], [1, 1, 1]], bool)  # the second suggestion is left out
    labels = labelled()
    found = suggestions.judged(Labels(labels.observed, labels.full, known, labels.logits), (1, 2, 3))
    assert (found[1], found[2]) == (1, 1) and np.isnan(found[3])


# The command, the page and the answers.


def suggested(found: Run, *more) -> tuple:
    """Return the CSV file, the page and the printed command that merges, of `spml data suggest`."""
    arguments = ["--runs-dir", found.path.parent, "--folds", 3, "--missing", 8, "--doubtful", 2, "--force"]
    *_, file, page, merge = spml("data", "suggest", found.path, *arguments, *more).splitlines()
    return file, page, shlex.split(merge.partition(": ")[2])[1:]


def answer(file: str, full: dict) -> None:
    """Fill the column present by the truth, `full`: image -> class names."""
    table = pd.read_csv(file, dtype={"class": str})
    rows = zip(table["image"], table["class"], strict=True)
    table.assign(present=[int(name in full[image]) for image, name in rows]).to_csv(file, index=False)


def truth(found: Run) -> dict:
    full = found.labels("train").full == 1
    return {
        image: {found.classes[c] for c in np.flatnonzero(row)}
        for image, row in zip(found.ids("train"), full, strict=True)
    }


def test_the_csv_has_the_order_and_no_truth(small):
    file, _, _ = suggested(small)
    table = pd.read_csv(file, dtype={"class": str})
    assert list(table) == ["kind", "image", "class", "observed", "probability", "present"]
    labels, names = suggestions.out_of_fold(small, folds=3), small.ids("train")
    expected = suggestions.ranked(labels, 8, 2)
    assert table["image"].tolist() == [names[n] for n in expected["row"]]
    assert table["class"].tolist() == [small.classes[c] for c in expected["column"]]
    assert table["probability"].tolist() == pytest.approx(expected["probability"].tolist(), abs=5e-5)
    assert table["present"].isna().all() and table["observed"].tolist() == [0] * 8 + [1] * 2


def test_the_page_shows_each_suggestion_without_the_network(small):
    file, page, _ = suggested(small)
    text = Path(page).read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == [] and len(parsed.all("figure")) == 10
    pictures = parsed.all("img")
    assert all(each["src"].startswith("data:image/jpeg;base64,") and each["alt"] for each in pictures)
    assert not re.search(r"https?:|@import|url\(", re.sub(r'src="data:[^"]*"', "", text))
    first = pd.read_csv(file, dtype=str).iloc[0]
    assert first["image"] in text and f"<h3>{first['class']}?</h3>" in text


def test_answers_become_observed_labels(small, tmp_path):
    file, _, merge = suggested(small)
    answer(file, truth(small))
    merge[merge.index("--output") + 1] = tmp_path / "more.csv"
    printed = spml(*merge)
    table, read = pd.read_csv(file, dtype={"class": str}), manifest.read(tmp_path / "more.csv", small.classes)
    merged, before = read.rows(small.ids("train"), "train"), small.labels("train").observed
    positive = int(((table["observed"] == 0) & (table["present"] == 1)).sum())
    assert (merged == 1).sum() == (before == 1).sum() + positive and f"{positive} positive" in printed
    assert (merged == -1).sum() == 8 - positive  # the suggestions that are not in the image
    val = small.labels("val").observed
    ids = [image for image, split in zip(read.ids, read.splits, strict=True) if split == "val"]
    assert (read.rows(ids, "val") == val).all()


def test_what_is_answered_is_not_overwritten(small):
    suggested(small)
    printed = spml("data", "suggest", small.path, "--runs-dir", small.path.parent, code=2)
    assert "already exists, perhaps with answers" in printed


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("train-0000,11,1", "'11' is not one of the 10 classes"),
        ("nowhere,1,1", "'nowhere' is not one of the 60 training images"),
        ("train-0000,1,maybe", "present is 'maybe'"),
        ("train-0000,1,1\ntrain-0000,1,0", "another row answers 1"),
    ],
)
def test_a_faulty_answer_is_named_with_its_line(tmp_path, rows, message):
    file = tmp_path / "answers.csv"
    file.write_text(f"image,class,present\n{rows}\n")
    ids = [f"train-{n:04d}" for n in range(60)]
    with pytest.raises(DataError, match=rf"(?s)line [23].*{message}"):
        manifest.merge(file, ids, np.zeros((60, 10), np.int8), tuple("0123456789"))


def test_answers_from_a_spreadsheet(tmp_path):
    rows = ["image,class,present", "a,dog,1.0", "b,dog,0", "b,cat,"]
    for separator, start in ((",", ""), (";", "\ufeff"), ("\t", "")):
        file = tmp_path / "answers.csv"
        file.write_text(start + "\r\n".join(row.replace(",", separator) for row in rows), encoding="utf-8")
        merged, _ = manifest.merge(file, ["a", "b"], np.zeros((2, 2), np.int8), ("cat", "dog"))
        assert merged.tolist() == [[0, 1], [0, -1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,class,present\na,dog,\n", "no answers.*folder of downloads"),
        ("image,label\na,dog\n", "no column class, present: its header is image,label"),
    ],
)
def test_a_file_without_answers(tmp_path, content, message):
    (tmp_path / "answers.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        manifest.merge(tmp_path / "answers.csv", ["a"], np.zeros((1, 1), np.int8), ("dog",))


def test_an_answer_against_the_truth_of_the_data_set(tmp_path):
    file = tmp_path / "answers.csv"
    full = data.load("digits", **SMALL).parts["train"].full
    absent = np.flatnonzero(full[0] == 0)[:2]
    file.write_text("image,class,present\n" + "".join(f"train-0000,{name},1\n" for name in absent))
    options = [word for name, number in SMALL.items() for word in ("-d", name, number)]
    printed = spml("data", "labels", "digits", *options, "--merge", file, code=1)
    assert "2 of 62 observed labels are in conflict with the data set" in printed
    assert all(
        f"image train-0000: class '{name}' is observed as positive, but absent" in printed for name in absent
    )


def test_a_folder_of_photographs(tmp_path):
    root = write_folder(tmp_path / "my photos", 48)
    settings = {"dataset": "folder", "root": str(root), "method": "an", "mode": "end_to_end", "epochs": 1}
    small = {"backbone": "digits_cnn", "data": {"size": 32}}
    found = run(Experiment(**settings, **small), tmp_path / "runs", progress=False)
    file, page, merge = suggested(found)
    assert Path(page).read_text(encoding="utf-8").count("data:image/jpeg") == 10
    answer(file, truth(found))
    merge[merge.index("--output") + 1] = tmp_path / "more.csv"
    spml(*merge)
    assert (manifest.read(tmp_path / "more.csv", found.classes).observed == -1).any()


@pytest.mark.slow
def test_answers_raise_the_test_map_of_the_next_run(tmp_path):
    sizes = [word for name, number in MANY.items() for word in ("-d", name, number)]
    training = ["train", "--method", "an", "--epochs", 8, *sizes, "--runs-dir", tmp_path]
    spml(*training)
    first = find("digits-an", tmp_path)
    spml("data", "suggest", first.path, "--runs-dir", tmp_path, "--folds", 2, "--missing", 1000)
    file = tmp_path / "suggestions" / f"{first.path.name}.csv"
    answer(file, truth(first))
    merged = ["--merge", file, "--output", tmp_path / "more.csv"]
    spml("data", "labels", "digits", *sizes, "--import", first.path / "labels.csv", *merged)
    spml(*training, "--manifest", tmp_path / "more.csv")
    (second,) = (
        each
        for each in map(Run, tmp_path.glob("digits-*"))
        if "fold" not in each.config["data"] and "manifest" in each.config["observe"]
    )
    assert second.summary["test_map"] > first.summary["test_map"] + 1
