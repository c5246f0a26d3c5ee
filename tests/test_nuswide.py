"""NUS-WIDE: its forms are never mixed, missing images and images without a concept are counted."""

import numpy as np
import pytest
from miniatures import nus_names, write_nus_arrays, write_nus_homepage, write_nus_list

from spml_core.data import DataError, load
from spml_core.data.sets import nuswide

NUM = len(nuswide.CLASSES)


def table(*rows):
    full = np.zeros((len(rows), NUM), np.int8)
    for n, found in enumerate(rows):
        full[n, list(found)] = 1
    return full


TRAIN, TEST = table([0], [1, 80], [2], [3], [4, 5], [6]), table([7], [8, 9])


def test_official_arrays(tmp_path):
    names = write_nus_arrays(tmp_path, TRAIN, TEST)
    listing = nuswide.read(tmp_path)
    assert listing.ids == names["train"] + names["val"]
    np.testing.assert_array_equal(listing.full, np.concatenate([TRAIN, TEST]))
    assert listing.classes[0] == "airport" and listing.classes[80] == "zebra" and len(listing.classes) == 81
    assert listing.notes["listed"] == {"train": 6, "test": 2}
    assert not listing.missing()


def test_homepage_files(tmp_path):
    names = write_nus_homepage(tmp_path, TRAIN, TEST)
    listing = nuswide.read(tmp_path, variant="homepage")
    assert listing.ids == names["Train"] + names["Test"] and not listing.missing()  # lists have backslashes
    np.testing.assert_array_equal(listing.full, np.concatenate([TRAIN, TEST]))


def test_list119k(tmp_path):
    rows = [
        ("0001.jpg", ["sky", "zebra"], "train"),
        ("0002.jpg", ["dog"], "train"),
        ("0003.jpg", ["sky"], "val"),
    ]
    listing = nuswide.read(write_nus_list(tmp_path, rows), variant="list119k")
    assert listing.ids[0] == "images/0001.jpg" and listing.splits[-1] == "test"
    assert [nuswide.CLASSES[c] for c in listing.full[0].nonzero()[0]] == ["sky", "zebra"]
    assert not listing.missing()


def test_other_numbers_than_published_are_noted(tmp_path):
    """Arrays of images that were fetched from Flickr again."""
    write_nus_arrays(tmp_path, TRAIN, TEST)
    listing = nuswide.read(tmp_path)
    assert "150,000 train expected, 6 here; 60,260 test expected, 2 here" in listing.odd[0]


def test_forms_are_not_mixed(tmp_path, monkeypatch):
    write_nus_list(tmp_path, [("1.jpg", ["sky"], "train"), ("2.jpg", ["dog"], "val")])
    with pytest.raises(DataError, match=r"4 label files are missing[\s\S]*files of variant 'list119k'"):
        nuswide.read(tmp_path)
    write_nus_arrays(tmp_path, TRAIN, TEST)
    monkeypatch.setitem(nuswide.VARIANTS, "list119k", (6, 2))  # the sizes that name a form, in small
    with pytest.raises(
        DataError, match="6 train and 2 test images belong to the form 'list119k', not 'official'"
    ):
        nuswide.read(tmp_path)


def test_wrong_number_of_classes(tmp_path):
    write_nus_arrays(tmp_path / "a", TRAIN[:, :21], TEST[:, :21])
    with pytest.raises(DataError, match="has 21 classes, NUS-WIDE has 81"):
        nuswide.read(tmp_path / "a")
    write_nus_homepage(tmp_path / "b", TRAIN, TEST, nuswide.CLASSES[:21])
    with pytest.raises(DataError, match="has 21 classes, NUS-WIDE has 81"):
        nuswide.read(tmp_path / "b", variant="homepage")
    write_nus_list(tmp_path / "c", [("1.jpg", ["sky", "unicorn"], "train")])
    with pytest.raises(DataError, match=r"2 classes, of which 1 are not among the 81.*unicorn"):
        nuswide.read(tmp_path / "c", variant="list119k")


def test_missing_images_are_one_report_or_a_subset(tmp_path):
    train = table(*[[n] for n in range(8)])
    write_nus_arrays(tmp_path, train, TEST)
    whole = load("nuswide", root=tmp_path, size=4, cache_dir=tmp_path)
    for name in nus_names(3):
        (tmp_path / "Flickr" / name).unlink()
    with pytest.raises(DataError) as error:
        load("nuswide", root=tmp_path, size=4, cache_dir=tmp_path)
    assert "3 of 10 images are missing" in str(error.value)
    assert all(str(tmp_path / "Flickr" / name) in str(error.value) for name in nus_names(3))
    subset = load("nuswide", root=tmp_path, size=4, cache_dir=tmp_path, allow_missing=True)
    assert sum(map(len, subset.parts.values())) == 7
    assert subset.notes["missing_images"]["count"] == 3 and subset.notes["missing_images"]["of"] == 10
    assert subset.fingerprint != whole.fingerprint
    divided = {name: split for split, part in whole.parts.items() for name in part.ids}
    assert all(divided[name] == split for split, part in subset.parts.items() for name in part.ids)


@pytest.mark.parametrize(("policy", "number"), [("keep", 8), ("drop", 6)])
def test_images_without_a_concept(tmp_path, policy, number):
    write_nus_arrays(tmp_path, table([0], [1], [], [3], [4, 5], [6]), table([7], []))
    listing = nuswide.read(tmp_path)
    assert "2 of 8 images have no label" in listing.problems[0]
    assert f"\n  {listing.ids[2]}\n" in listing.problems[0]
    with pytest.raises(DataError, match="drop leaves them out"):
        load("nuswide", root=tmp_path, size=4, cache_dir=tmp_path)
    chosen = load("nuswide", root=tmp_path, size=4, cache_dir=tmp_path, unlabeled=policy)
    assert sum(map(len, chosen.parts.values())) == number
    assert chosen.notes["unlabeled"] == policy and sum(chosen.notes["images_without_label"].values()) == 2


def test_label_files_that_do_not_fit(tmp_path):
    write_nus_homepage(tmp_path, TRAIN, TEST)
    file = tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_bear_Train.txt"
    file.write_text("1\n0\n")
    with pytest.raises(DataError, match=r"Labels_bear_Train\.txt: 2 values, 6 images"):
        nuswide.read(tmp_path, variant="homepage")
    write_nus_arrays(tmp_path, TRAIN, TEST)
    np.save(tmp_path / "formatted_val_labels.npy", TRAIN)
    with pytest.raises(DataError, match="6 rows for the 2 images"):
        nuswide.read(tmp_path)
    write_nus_arrays(tmp_path, np.tile(TRAIN, 1) * 2, TEST)
    with pytest.raises(DataError, match=r"formatted_train_labels\.npy: row 0, column 0 holds 2"):
        nuswide.read(tmp_path)
