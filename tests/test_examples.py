"""Example images are chosen without looking at predictions, and drawn with right and wrong predictions."""

import matplotlib
import numpy as np
import pytest
from PIL import Image

from spml_core import data
from spml_core.data import DataError
from spml_core.data.files.pictures import pictures
from spml_core.runs import Experiment, run
from spml_core.studies import examples

SMALL = {"train": 60, "val": 30, "test": 20}


def test_chosen_by_a_rule_and_a_seed():
    full = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1]] * 10)
    observed = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 1]] * 10)  # of the last nothing is missing
    rows = examples.choose(full, observed, num_images=8, seed=3)
    assert set(rows % 4) <= {1, 2} and len(set(rows)) == 8
    assert rows[:3].tolist() == examples.choose(full, observed, num_images=3, seed=3).tolist()
    assert rows.tolist() != examples.choose(full, observed, num_images=8, seed=4).tolist()
    assert set(examples.choose(full, num_images=99) % 4) == {1, 2, 3}
    with pytest.raises(ValueError, match="none of 4 images"):
        examples.choose(np.eye(4), num_images=1)


def test_bars_of_an_image():
    full, observed = np.array([[1, 1, 0, 0, 0]]), np.array([[0, 1, 0, 0, 0]])
    probs = {"an": np.array([[0.2, 0.9, 0.1, 0.6, 0.0]]), "gr": np.array([[0.7, 0.4, 0.3, 0.2, 0.0]])}
    bars = examples.table(probs, full, observed, images=["a.jpg"], classes="vwxyz", labels=4)
    an, gr = (bars[bars["method"] == method] for method in ("an", "gr"))
    assert (
        an["class"].tolist() == gr["class"].tolist() == list("wvyx")
    )  # y before x, by the mean over methods
    assert an["kind"].tolist() == ["annotated", "missing", "negative", "negative"]
    assert an["right"].tolist() == [True, False, False, True]
    assert gr["right"].tolist() == [False, True, True, True]
    few = examples.table(probs, full, images=["a.jpg"], classes="vwxyz", labels=1)
    assert few["kind"].tolist() == ["positive"] * 4  # true labels are never left out


def test_summary_of_missing_positives():
    full = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [1, 1, 0, 0]])
    observed = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    probs = np.array([[0.1, 0.4, 0.3, 0.2], [0.9, 0.6, 0.8, 0.1], [0.9, 0.6, 0.6, 0.0]])
    found = examples.summary(probs, full, observed)  # 0.4; 0.8 and 0.1; 0.6, which a negative equals
    assert found == pytest.approx({"mean": 1.9 / 4, "found": 2 / 4, "first": 2 / 4})


def test_drawn_and_predicted_as_trained(tmp_path):
    experiment = Experiment(method="an", data=SMALL, epochs=2)
    found, dataset = run(experiment, tmp_path, progress=False), data.load("digits", **SMALL)
    rows = np.array([7, 2])
    probs = examples.predict(found, dataset, "val", rows)
    np.testing.assert_allclose(probs, found.labels("val").probs[rows], atol=1e-6)
    observed, full = found.labels("train").observed, found.labels("train").full
    rows = examples.choose(full, observed, num_images=2)
    by_method = {name: examples.predict(found, dataset, "train", rows) for name in ("an", "unheard_of")}
    names = [dataset.parts["train"].ids[n] for n in rows]
    bars = examples.table(by_method, full[rows], observed[rows], images=names, classes=dataset.classes)
    fig = examples.draw(bars, pictures(names, "digits", **SMALL))
    axes = np.reshape(fig.axes, (2, 3))
    assert [len(ax.patches) for ax in axes[:, 1:].flat] == [6] * 4 and not axes[0, 0].patches
    own = bars[(bars["image"] == names[1]) & (bars["method"] == "an")]
    np.testing.assert_allclose([bar.get_width() for bar in axes[1, 1].patches], own["prob"])
    (crosses,) = (line for line in axes[1, 1].lines if line.get_marker() == "x")
    assert crosses.get_ydata().tolist() == np.flatnonzero(~own["right"]).tolist()
    matplotlib.pyplot.close(fig)


def test_many_methods_go_below_each_other():
    full, observed = np.array([[1, 1, 0]] * 2), np.array([[1, 0, 0]] * 2)
    probs = {f"method{n}": np.full((2, 3), n / 25) for n in range(25)}
    bars = examples.table(probs, full, observed, images=["a", "b"], classes="xyz")
    fig = examples.draw(bars, [np.zeros((4, 4), np.uint8)] * 2)
    assert [ax.get_title() for ax in fig.axes if ax.get_title()] == list(probs)
    assert sum(len(ax.patches) for ax in fig.axes) == len(bars)
    assert fig.get_size_inches()[0] < 7.1
    matplotlib.pyplot.close(fig)


def test_photographs_keep_their_shape(tmp_path):
    lines = ["image,split,labels"]
    for n, split in enumerate(["train", "train", "train", "train", "train", "test"]):
        Image.new("RGB", (300, 200), (n, 0, 0)).save(tmp_path / f"{n}.png")
        lines.append(f"{n}.png,{split},cat;dog")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    options = {"root": tmp_path, "size": 16}
    (shown,) = pictures(["5.png"], "folder", **options, val_is_train=True)
    assert shown.shape == (107, 160, 3) and (shown == [5, 0, 0]).all()
    (tmp_path / "labels.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match=r"image '5\.png' is no longer in the label files"):
        pictures(["5.png"], "folder", root=tmp_path)
