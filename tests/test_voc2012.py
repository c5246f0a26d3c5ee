"""PASCAL VOC 2012: difficult objects, the published division, and the errors for a damaged copy."""

import numpy as np
import pytest
from miniatures import write_voc

from spml_core.data import DataError, load, read
from spml_core.data.sets import voc2012

COLUMN = {name: c for c, name in enumerate(voc2012.CLASSES)}
CAT, DOG = COLUMN["cat"], COLUMN["dog"]
ROWS = {
    "train": {
        "2008_000008": {"cat": 1},
        "2008_000002": {"cat": 1, "dog": 0},
        "2009_000010": {"dog": 1},
        "2009_000011": {"dog": 0, "person": 1},
        "2011_000100": {"cat": 1, "dog": 1},
    },
    "val": {"2008_000001": {"cat": 1}, "2008_000003": {"dog": 1, "cat": 0}},
}


@pytest.mark.parametrize("below", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_layout_and_order(tmp_path, below):
    write_voc(tmp_path, ROWS)
    listing = voc2012.read(tmp_path / below)
    assert listing.ids == [*sorted(ROWS["train"]), *sorted(ROWS["val"])]
    assert sorted(listing.splits) == ["test"] * 2 + ["train"] * 4 + ["val"]
    assert listing.full[0].nonzero()[0].tolist() == [CAT]
    assert listing.full[4].nonzero()[0].tolist() == [CAT, DOG]
    assert [path.name for path in listing.extra] == ["2007_000027.jpg"]
    assert not listing.problems and not listing.missing()


@pytest.mark.parametrize(
    ("difficult", "value", "known"), [("negative", 0, 1), ("ignore", 0, 0), ("positive", 1, 1)]
)
def test_difficult_objects(tmp_path, difficult, value, known):
    write_voc(tmp_path, ROWS)
    listing = voc2012.read(tmp_path, difficult=difficult)
    row = listing.ids.index("2008_000002")
    assert listing.full[row, [CAT, DOG]].tolist() == [1, value]
    assert (listing.known is None) == (difficult != "ignore")
    if difficult == "ignore":
        assert bool(listing.known[row, DOG]) == bool(known)
        assert (~listing.known).sum() == 3
    assert listing.notes["difficult_labels"] == 3


def test_image_with_difficult_objects_only_is_reported(tmp_path):
    rows = {"train": ROWS["train"] | {"2011_000200": {"boat": 0}}, "val": ROWS["val"]}
    write_voc(tmp_path, rows)
    listing = voc2012.read(tmp_path)
    assert listing.notes["only_difficult"] == {"count": 1, "first": ["2011_000200"]}
    assert "1 of 8" in listing.problems[0] and "2011_000200" in listing.problems[0]
    with pytest.raises(DataError, match="2011_000200"):
        load("voc2012", root=tmp_path, size=8)
    assert not voc2012.read(tmp_path, difficult="positive").problems
    assert len(voc2012.read(tmp_path, unlabeled="drop")) == 7


def test_published_division(tmp_path, golden):
    names = {f"2008_{n:06d}": {"person": 1} for n in range(57)}
    base = write_voc(tmp_path, {"train": names, "val": ROWS["val"]})
    assert base.is_dir()
    listing = voc2012.read(tmp_path)
    expected = [f"2008_{n:06d}" for n in golden["split"]["57"]["val"]]
    assert [
        name for name, split in zip(listing.ids, listing.splits, strict=True) if split == "val"
    ] == expected


def test_faults_in_class_files_are_one_report(tmp_path):
    base = write_voc(tmp_path, ROWS)
    lists = base / "ImageSets" / "Main"
    (lists / "cat_train.txt").write_text(
        (lists / "cat_train.txt").read_text().replace("2009_000010 -1\n", "")
    )
    (lists / "dog_train.txt").write_text((lists / "dog_train.txt").read_text() + "2010_1 2\n2008_000008 -1\n")
    with pytest.raises(DataError) as error:
        voc2012.read(tmp_path)
    for text in (
        "cat_train.txt: no row for 1",
        "dog_train.txt, line 6",
        "2010_1 2",
        "2008_000008 is listed twice",
    ):
        assert text in str(error.value)
    (lists / "sofa_val.txt").unlink()
    with pytest.raises(DataError, match=r"1 label file is missing.*\n.*sofa_val.txt"):
        voc2012.read(tmp_path)
    (tmp_path / "elsewhere" / "photos").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no ImageSets/Main[\s\S]*elsewhere holds photos/"):
        voc2012.read(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="'negative', 'ignore' or 'positive'"):
        read("voc2012", root=tmp_path, difficult="drop")


def test_missing_images(tmp_path):
    base = write_voc(tmp_path, ROWS)
    (base / "JPEGImages" / "2008_000008.jpg").unlink()
    (base / "JPEGImages" / "2009_000010.jpg").write_bytes(b"")
    with pytest.raises(DataError) as error:
        load("voc2012", root=tmp_path, size=8)
    assert "1 of 7 images is missing" in str(error.value) and "1 of 7 images is an empty file" in str(
        error.value
    )
    (base / "JPEGImages" / "2009_000010.jpg").unlink()
    data = load("voc2012", root=tmp_path, size=8, allow_missing=True, cache_dir=tmp_path)
    assert sum(map(len, data.parts.values())) == 5
    assert data.notes["missing_images"] == {"count": 2, "of": 7, "first": ["2008_000008", "2009_000010"]}


def test_loaded(tmp_path):
    write_voc(tmp_path, ROWS)
    data = load("voc2012", root=tmp_path, size=8, difficult="ignore", cache_dir=tmp_path)
    assert data.classes == voc2012.CLASSES and len(data.parts["test"]) == 2
    assert data.parts["train"].inputs.shape == (4, 3, 8, 8)
    assert not data.parts["test"].known[1, CAT]
    assert sorted(np.concatenate([data.parts[k].rows for k in ("train", "val")])) == [0, 1, 2, 3, 4]


def test_failed_download_says_what_to_do(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.VOCDetection", offline)
    with pytest.raises(DataError, match=r"no route to host.*VOCtrainval_11-May-2012.tar"):
        voc2012.read(tmp_path, download=True)
