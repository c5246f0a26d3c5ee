"""MS-COCO 2014: category ids by name, images without annotation, the order of the published draws."""

import json

import numpy as np
import pytest
from miniatures import write_coco

from spml_core.data import DataError, OptionError, labels, load, read
from spml_core.data.observe import draw_together
from spml_core.data.sets import coco2014

PERSON, DOG, BRUSH = (coco2014.CLASSES.index(name) for name in ("person", "dog", "toothbrush"))
ROWS = {
    "train": {
        9: ["dog", "dog", "person"],
        100: ["toothbrush"],
        25: ["person"],
        1000: [],
        30: ["dog"],
        581921: ["dog"],
    },
    "val": {42: ["person"], 73: []},
}


def test_matrix_order_and_ids(tmp_path):
    listing = coco2014.read(write_coco(tmp_path, ROWS))
    assert listing.ids == ["100", "25", "30", "581921", "9", "42"]  # as text
    assert [row.nonzero()[0].tolist() for row in listing.full] == [
        [BRUSH],
        [PERSON],
        [DOG],
        [DOG],
        [PERSON, DOG],
        [PERSON],
    ]
    assert listing.classes == coco2014.CLASSES and len(listing.classes) == 80
    assert listing.paths[4] == tmp_path / "train2014" / "COCO_train2014_000000000009.jpg"
    assert listing.splits[-1] == "test" and listing.splits.count("val") == 1
    assert not listing.extra and not listing.missing()


def test_policy_for_images_without_annotation(tmp_path):
    write_coco(
        tmp_path, {"train": {1: ["dog"], 2: ["person"], 3: []}, "val": {4: ["dog"], 5: ["dog"], 6: []}}
    )
    drop = coco2014.read(tmp_path)
    assert drop.notes["annotations"] == {"train": "3 images, 2 annotated", "test": "3 images, 2 annotated"}
    assert len(drop) == 4 and drop.notes["unannotated_dropped"] == 2
    keep = coco2014.read(tmp_path, unlabeled="keep")
    assert len(keep) == 6 and not keep.problems and keep.notes["unannotated_dropped"] == 0
    assert "2 of 6 images have no label" in coco2014.read(tmp_path, unlabeled="error").problems[0]
    with pytest.raises(OptionError, match="'error', 'drop' or 'keep'"):
        read("coco2014", root=tmp_path, unlabeled="ignore")


def test_crowds_count(tmp_path):
    listing = coco2014.read(write_coco(tmp_path, ROWS, crowd=(100,)))
    assert listing.full[0, BRUSH] == 1


def test_damaged_files(tmp_path):
    write_coco(tmp_path, ROWS)
    file = tmp_path / "annotations" / "instances_train2014.json"
    content = json.loads(file.read_text())

    def refused(text, **changes):
        file.write_text(json.dumps(content | changes))
        with pytest.raises(DataError, match=text):
            coco2014.read(tmp_path)

    refused("79 classes, COCO has 80.*toothbrush", categories=content["categories"][1:], annotations=[])
    refused("1 annotation.*\n.*image 77, category 1", annotations=[{"image_id": 77, "category_id": 1}])
    refused("6 different ids", images=[*content["images"], content["images"][0]])
    refused("not a COCO instances file", images=[{"id": 1}])
    file.write_text("{")
    with pytest.raises(DataError, match="not a COCO instances file"):
        coco2014.read(tmp_path)
    file.unlink()
    with pytest.raises(DataError, match=r"1 label file is missing.*\n.*instances_train2014.json"):
        coco2014.read(tmp_path)


def test_the_draw_runs_through_the_undivided_matrix(tmp_path):
    rows = {"train": {n: ["dog", "person", "car"][: 1 + n % 3] for n in range(1, 41)}, "val": {77: ["dog"]}}
    data = load("coco2014", root=write_coco(tmp_path, rows), size=4, cache_dir=tmp_path)
    listing = coco2014.read(tmp_path)
    train = [n for n, split in enumerate(listing.splits) if split != "test"]
    published = labels.single_positive(
        listing.full[train]
    )  # seed 1200, official train images in published order
    observed = draw_together(lambda part: labels.single_positive(part.full, ids=part.ids), data.parts)
    by_id = {listing.ids[n]: published[k].tolist() for k, n in enumerate(train)}
    for split in ("train", "val"):
        assert [by_id[name] for name in data.parts[split].ids] == observed[split].tolist()
    alone = labels.single_positive(data.parts["train"].full)
    assert not np.array_equal(alone, observed["train"])  # else the case would show nothing


def test_per_image_draws_survive_a_missing_image_and_another_order():
    rng = np.random.default_rng(0)
    full = (rng.random((50, 12)) < 0.3).astype(np.int8)
    full[np.arange(50), rng.integers(0, 12, 50)] = 1
    ids = [f"image-{n}" for n in range(50)]
    drawn = labels.single_positive(full, protocol="per_image", ids=ids)
    rows = rng.permutation([n for n in range(50) if n != 4])
    again = labels.single_positive(full[rows], protocol="per_image", ids=[ids[n] for n in rows])
    np.testing.assert_array_equal(again, drawn[rows])


def test_real_photographs(shared, tmp_path):
    """The 50 photographs load in the official layout with their published labels, including the gray one."""
    import gzip

    from PIL import Image

    photos = sorted((shared / "data" / "coco_images").glob("*.jpg"))
    with gzip.open(next((shared / "data" / "coco_labels").glob("*full*")), "rt") as text:
        truth = {int(line.split(",")[0]): [int(c) for c in line.split(",")[1].split()] for line in text}
    assert len(truth) == 82_081 and round(sum(map(len, truth.values())) / len(truth), 2) == 2.94
    numbers = [int(path.stem[-12:]) for path in photos]
    rows = {n: [coco2014.CLASSES[c] for c in truth.get(n, [])] for n in numbers}
    assert [n for n, found in rows.items() if not found] == [250]  # one of the 702 without annotation
    write_coco(tmp_path, {"train": rows, "val": {42: ["dog"]}})
    for path in photos:
        own = tmp_path / "train2014" / path.name
        own.unlink()
        own.symlink_to(path)
    gray = [str(int(path.stem[-12:])) for path in photos if Image.open(path).mode == "L"]
    assert len(photos) == 50 and gray
    data = load("coco2014", root=tmp_path, size=64, cache_dir=tmp_path, unlabeled="keep")
    assert {name: len(part) for name, part in data.parts.items()} == {"train": 40, "val": 10, "test": 1}
    assert "50 images, 49 annotated" in str(data.notes["annotations"])
    found = {name: (x, y) for s in ("train", "val") for name, x, y in _rows(data.parts[s])}
    x, y = found[gray[0]]
    assert (x[0] == x[1]).all() and (x[1] == x[2]).all() and x.float().std() > 10
    for name, (_, y) in found.items():
        assert y.nonzero()[0].tolist() == sorted(truth.get(int(name), []))


def test_published_sizes(shared):
    """82,081 annotated images, sorted as text, divided as published: 65,665 and 16,416."""
    import gzip

    with gzip.open(next((shared / "data" / "coco_labels").glob("*full*")), "rt") as text:
        ids = [line.split(",")[0] for line in text]
    assert tuple(map(len, labels.split(len(ids)))) == (65_665, 16_416)


def _rows(part):
    return zip(part.ids, part.inputs, part.full, strict=True)
