"""Open Images: absent is not present, machine labels are unknown, and memory stays bounded."""

import tracemalloc

import numpy as np
import pytest
from miniatures import write_open_images

from spml_core.data import DataError, OptionError, load, read
from spml_core.data.sets import openimages

ROWS = [
    ("train", "000a", "/m/01", 1),
    ("train", "000a", "/m/02", 0),
    ("train", "000a", "/m/03", 0.7),
    ("train", "000b", "/m/02", 1),
    ("train", "000b", "/m/02", 1),  # two people agree
    ("train", "000c", "/m/03", 1),
    ("train", "000c", "/m/01", 0),
    ("train", "000d", "/m/01", 0),  # nothing present
    ("validation", "000e", "/m/01", 1),
    ("test", "000f", "/m/02", 1),
]
CAT, DOG, TREE = range(3)


def test_confidences(tmp_path):
    listing = openimages.read(write_open_images(tmp_path, ROWS))
    assert listing.classes == ("Cat", "Dog", "Tree") and listing.ids == [
        "000a",
        "000b",
        "000c",
        "000e",
        "000f",
    ]
    assert listing.splits == ["train"] * 3 + ["val", "test"]
    assert listing.full.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert listing.known[0].tolist() == [True, True, False]  # present, absent, 0.7: unknown
    assert listing.known[2].tolist() == [True, False, True]
    assert listing.notes["neither_0_nor_1"] == 1 and not listing.problems and not listing.missing()
    assert listing.paths[3] == tmp_path / "validation" / "000e.jpg"
    assert listing.full.dtype == np.int8 and listing.known.dtype == bool


def test_images_without_a_positive(tmp_path):
    write_open_images(tmp_path, ROWS)
    keep = openimages.read(tmp_path, unlabeled="keep")
    assert (
        keep.ids[3] == "000d"
        and keep.full[3].tolist() == [0, 0, 0]
        and keep.known[3].tolist() == [True, False, False]
    )
    assert "1 of 6" in openimages.read(tmp_path, unlabeled="error").problems[0]


def test_conflicts(tmp_path):
    write_open_images(
        tmp_path,
        [*ROWS, ("train", "000a", "/m/01", 0), ("train", "000a", "/m/03", 1), ("train", "000b", "/m/01", 1)],
    )
    listing = openimages.read(tmp_path)
    assert listing.problems[0].startswith("1 label verified both") and "000a: Cat" in listing.problems[0]
    with pytest.raises(DataError, match="000a: Cat"):
        load("openimages", root=tmp_path, size=4, cache_dir=tmp_path)
    data = load("openimages", root=tmp_path, size=4, cache_dir=tmp_path, conflicts="unknown")
    part = data.parts["train"]
    assert part.full[0].tolist() == [0, 0, 1] and part.known[0].tolist() == [False, True, True]
    assert data.notes["conflicts"] == 1


def test_machine_labels_fill_what_no_person_saw(tmp_path):
    machine = [
        ("train", "000a", "/m/03", 0.9),
        ("train", "000a", "/m/02", 0.9),  # a person said no
        ("train", "000b", "/m/01", 0.4),
        ("validation", "000e", "/m/02", 0.8),
        ("test", "000f", "/m/03", 0.1),
    ]
    write_open_images(tmp_path, ROWS, machine)
    assert not openimages.read(tmp_path).known[0, TREE]
    listing = openimages.read(tmp_path, machine_threshold=0.8)
    assert listing.full.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert listing.known[1].tolist() == [False, True, False]


def test_choice_of_classes(tmp_path):
    write_open_images(tmp_path, ROWS)
    assert openimages.read(tmp_path, classes=["Cat", "/m/02"]).classes == ("Cat", "Dog")
    assert read("openimages", root=tmp_path, classes=["Cat"]).ids == ["000a", "000e"]
    with pytest.raises(OptionError, match="option classes of data set 'openimages' is 'Cat'"):
        read("openimages", root=tmp_path, classes="Cat")
    with pytest.raises(
        DataError, match=r"2 of the requested classes[\s\S]*'Cta' is the name of 0 classes[\s\S]*'Fish'"
    ):
        openimages.read(tmp_path, classes=["Cta", "Fish"])
    with pytest.raises(DataError, match="min_images=2 positive training images; most: 1"):
        openimages.read(tmp_path, min_images=2)


def test_files(tmp_path):
    write_open_images(tmp_path, ROWS)
    (tmp_path / "train-annotations-human-imagelabels-boxable.csv").write_text(
        "ImageID,LabelName,Confidence\n"
    )
    with pytest.raises(DataError, match="2 files match train-annotations-human-imagelabels"):
        openimages.read(tmp_path)
    (tmp_path / "train-annotations-human-imagelabels-boxable.csv").unlink()
    file = tmp_path / "oidv6-train-annotations-human-imagelabels.csv"
    file.write_text("ImageID,LabelName\n000a,/m/01\n")
    with pytest.raises(DataError, match="no column Confidence"):
        openimages.read(tmp_path)
    (tmp_path / "elsewhere" / "images").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no \*class-descriptions\*[\s\S]*elsewhere holds images/"):
        openimages.read(tmp_path / "elsewhere")


def test_most_images_missing(tmp_path):
    write_open_images(tmp_path, ROWS)
    (tmp_path / "train" / "000b.jpg").unlink()
    with pytest.raises(DataError, match="1 of 5 images is missing"):
        load("openimages", root=tmp_path, size=4, cache_dir=tmp_path)
    data = load("openimages", root=tmp_path, size=4, cache_dir=tmp_path, allow_missing=True)
    assert data.parts["train"].ids == ("000a", "000c")


def test_memory_is_two_bytes_an_image_and_class(tmp_path):
    """20,000 images x 1,000 classes: the documented bound, below what a float32 matrix alone would take."""
    rng = np.random.default_rng(0)
    num, classes, rows = 20_000, 1000, 40_000
    names = [(f"/m/{c:04d}", f"class {c}") for c in range(classes)]
    write_open_images(tmp_path, [], names=names)
    image = np.append(rng.integers(0, num, rows), np.arange(num))
    label = rng.integers(0, classes, rows + num)
    text = "".join(f"{i:016x},verification,/m/{c:04d},1\n" for i, c in zip(image, label, strict=True))
    (tmp_path / "train-annotations-human-imagelabels.csv").write_text(
        "ImageID,Source,LabelName,Confidence\n" + text
    )
    openimages.read(tmp_path, classes=["class 0"])  # imports are not counted
    tracemalloc.start()
    listing = openimages.read(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert listing.full.shape == (num, classes) and listing.full.sum() == len(
        np.unique(image * classes + label)
    )
    assert peak < 2 * num * classes + 130 * (rows + num) + 1000 * num
    assert peak < 4 * num * classes


def test_too_many_classes_stop_before_memory_is_taken(tmp_path, monkeypatch):
    write_open_images(tmp_path, ROWS)
    monkeypatch.setattr(openimages, "DENSE", 20)
    with pytest.raises(DataError, match="5 images x 3 classes"):
        openimages.read(tmp_path)
