"""CUB-200-2011 attributes: certainties, rows with extra fields, and the number of rows."""

import numpy as np
import pytest
from miniatures import write_cub

from spml_core.data import DataError, OptionError, load, read
from spml_core.data.sets import cub200

RNG = np.random.default_rng(0)
TRAIN = [1, 0, 1, 1, 0, 1, 1]
CERTAINTY = RNG.integers(1, 5, (7, 312))
PRESENT = (RNG.random((7, 312)) < 0.1).astype(int)


def test_attributes_and_order(tmp_path):
    names = write_cub(tmp_path, TRAIN, PRESENT, CERTAINTY, ragged=(5, 700))
    listing = cub200.read(tmp_path)
    assert listing.ids == names and len(listing.classes) == 312
    np.testing.assert_array_equal(listing.full, PRESENT)
    assert listing.known is None and not listing.missing()
    assert [split == "test" for split in listing.splits] == [not own for own in TRAIN]
    assert listing.splits.count("val") == 1
    assert cub200.read(tmp_path / "CUB_200_2011").ids == names


def test_rows_with_extra_fields_read_the_same(tmp_path):
    write_cub(tmp_path / "a", TRAIN, PRESENT, CERTAINTY)
    write_cub(tmp_path / "b", TRAIN, PRESENT, CERTAINTY, ragged=(0, 1, 2183))
    one, other = (cub200.read(tmp_path / name, not_visible="unknown") for name in "ab")
    np.testing.assert_array_equal(one.full, other.full)
    np.testing.assert_array_equal(one.known, other.known)


def test_not_visible_changes_exactly_the_cells_of_certainty_1(tmp_path):
    write_cub(tmp_path, TRAIN, PRESENT, CERTAINTY)
    listing = cub200.read(tmp_path, not_visible="unknown")
    np.testing.assert_array_equal(~listing.known, CERTAINTY == 1)
    np.testing.assert_array_equal(listing.full, PRESENT * (CERTAINTY != 1))
    assert listing.notes["not_visible_labels"] == (CERTAINTY == 1).sum()
    with pytest.raises(OptionError, match="'negative' or 'unknown'"):
        read("cub200", root=tmp_path, not_visible="drop")


def test_rows_are_images_times_312(tmp_path):
    write_cub(tmp_path, TRAIN, PRESENT, CERTAINTY)
    file = tmp_path / "CUB_200_2011" / "attributes" / "image_attribute_labels.txt"
    lines = file.read_text().splitlines()

    def refused(text, changed):
        file.write_text("\n".join(changed) + "\n")
        with pytest.raises(DataError, match=text):
            cub200.read(tmp_path)

    refused("2,183 rows; 7 images x 312 attributes are 2,184", lines[:-1])
    refused("line 2184.*", [*lines[:-1], "7 312 1 5 0.1"])
    refused("line 1:.*", ["8 1 1 4 0.1", *lines[1:]])
    refused("twice", [lines[1], *lines[1:]])
    refused("is not rows of image, attribute.*row 0", ["a b c d e", *lines[1:]])
    file.unlink()
    with pytest.raises(DataError, match="1 label file is missing"):
        cub200.read(tmp_path)


def test_311_attributes(tmp_path):
    write_cub(tmp_path, TRAIN, PRESENT, CERTAINTY)
    text = (tmp_path / "attributes.txt").read_text().splitlines()
    (tmp_path / "attributes.txt").write_text("\n".join(text[:-1]))
    with pytest.raises(DataError, match="311 classes, CUB-200-2011 has 312"):
        cub200.read(tmp_path)


def test_loaded(tmp_path):
    write_cub(tmp_path, TRAIN, PRESENT, CERTAINTY)
    data = load("cub200", root=tmp_path, size=8, cache_dir=tmp_path, not_visible="unknown")
    assert {name: len(part) for name, part in data.parts.items()} == {"train": 4, "val": 1, "test": 2}
    assert data.parts["test"].known.shape == (2, 312)
