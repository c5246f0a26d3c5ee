"""Folders with a labels.csv: what is read, what is refused, and whether each refusal says where and what to do."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from miniatures import picture
from PIL import Image

from spml_core.data import DataError, load, read
from spml_core.data.files import decoding, digests, table

PHOTOS = Path(__file__).parents[2] / "shared" / "data" / "corel5k"
BLOCKS = np.array([[[200, 30, 40], [20, 180, 60]], [[30, 50, 220], [240, 240, 20]]], np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Make a folder: `make(rows, header)` writes labels.csv and, for each row, a picture of its own."""

    def make(rows, header="image,split,labels", name="data", encoding="utf-8"):
        root = tmp_path / name
        root.mkdir()
        (root / "labels.csv").write_text("\n".join([header, *rows]) + "\n", encoding=encoding)
        for n, row in enumerate(rows):
            if image := row.split(",")[0].strip():
                Image.new("RGB", (12, 8), (n, 2 * n, 7)).save(root / image)
        return root

    return make


def simple(num=20):
    """Return rows of which every fifth is a test image; every image shows a cat, every third one also a dog."""
    return [f"{n:02d}.png,{'test' if n % 5 == 0 else 'train'},cat{';dog' * (n % 3 == 0)}" for n in range(num)]


def refused(root, *texts, **options):
    with pytest.raises(DataError) as error:
        load("folder", root=root, size=8, **options)
    for text in texts:
        assert text in str(error.value)
    return str(error.value)


def test_images_labels_and_parts(folder):
    data = load("folder", root=folder(simple()), size=8)
    assert data.classes == ("cat", "dog")
    assert {name: len(part) for name, part in data.parts.items()} == {"train": 13, "val": 3, "test": 4}
    test = data.parts["test"]
    assert test.ids == ("00.png", "05.png", "10.png", "15.png")
    assert test.full.tolist() == [[1, 1], [1, 0], [1, 0], [1, 1]] and test.full.dtype == np.int8
    assert test.inputs.shape == (4, 3, 8, 8) and str(test.inputs.dtype) == "torch.uint8"
    assert test.inputs[:, :, 0, 0].tolist() == [[n, 2 * n, 7] for n in (0, 5, 10, 15)]
    assert len({name for part in data.parts.values() for name in part.ids}) == 20
    assert data.notes["images"] == {"train": 13, "val": 3, "test": 4}


def test_validation_rows_are_taken_as_given(folder):
    data = load("folder", root=folder(["a.png,val,x", "b.png,train,x", "c.png,train,y"]), size=8)
    assert {name: part.ids for name, part in data.parts.items()} == {
        "train": ("b.png", "c.png"),
        "val": ("a.png",),
    }


def test_without_split_column_all_images_are_for_training(folder):
    data = load("folder", root=folder([f"{n}.png,cat;dog" for n in range(10)], header="image,labels"), size=8)
    assert {name: len(part) for name, part in data.parts.items()} == {"train": 8, "val": 2}


def test_bom_blanks_extra_columns_empty_labels_backslashes_and_accents(folder):
    rows = [" a.png , train , cat ; hot dog ;; , x", "b.png,val,cafe\u0301;caf\u00e9,", "c.png,train,cat,"]
    root = folder(rows, header=" image ,split,labels,remark", encoding="utf-8-sig")
    (root / "deep").mkdir()
    (root / "c.png").rename(root / "deep" / "c.png")
    content = (root / "labels.csv").read_text(encoding="utf-8").replace("c.png", ".\\deep\\c.png")
    (root / "labels.csv").write_text(content, encoding="utf-8")
    data = load("folder", root=root, size=8)
    assert data.classes == ("caf\u00e9", "cat", "hot dog")
    assert data.parts["train"].ids == ("a.png", "deep/c.png")
    assert data.parts["train"].full.tolist() == [[0, 1, 1], [0, 1, 0]]


def test_classes_txt_fixes_the_order(folder):
    root = folder(simple())
    (root / "classes.txt").write_text("dog\n\n cat \n")
    data = load("folder", root=root, size=8)
    assert data.classes == ("dog", "cat")
    assert data.parts["test"].full[1].tolist() == [0, 1]
    (root / "classes.txt").write_text("dog\ncat\nunicorn\n")
    assert load("folder", root=root, size=8, min_images=0).classes == ("dog", "cat", "unicorn")
    (root / "classes.txt").write_text("dog\nCat\n")
    refused(root, "line 2", "'cat'", "2 classes", "classes.txt", "'Cat'")
    (root / "classes.txt").write_text("dog\ncat\ndog\n")
    refused(root, "'dog' more than once")


@pytest.mark.parametrize(
    ("rows", "header", "texts"),
    [
        (["a.png,train,x"], "file,split,labels", ["no column image", "file,split,labels", "Expected"]),
        (["a.png,train"], "image,split", ["no column labels", "Expected"]),
        ([], "image,split,labels", ["no rows"]),
        (
            ["a.png,train,x", "b.png,validation,x"],
            None,
            ["line 3", "'validation'", "'val'", "train, val, test"],
        ),
        (["a.png,train,x", "b.png,,x"], None, ["line 3", "''", "train, val, test"]),
        (["a.png,train,x", "a.png,train,y"], None, ["line 3", "'a.png'", "line 2"]),
        (["a.png,train,x", "./a.png,train,y"], None, ["line 3", "'a.png'", "line 2"]),
        (["a.png,train,cat,dog"], None, ["line 2", "';'"]),
        (["a.png,train"], None, ["line 2", "fields"]),
        ([",train,x"], None, ["line 2", "''", "images/1.jpg"]),
        (["a.png,train,x", "../a.png,val,x"], None, ["line 3", "'../a.png' is not a path below the folder"]),
        (["a.png,train,x", "b.png,test,y"], None, ["no val images"]),
        (["a.png,val,x", "b.png,test,y"], None, ["no train images"]),
    ],
)
def test_bad_tables(folder, rows, header, texts):
    refused(folder(rows, header=header or "image,split,labels"), *texts)


def test_tables_that_are_no_tables(folder, tmp_path):
    root = folder(simple())
    (root / "labels.csv").write_bytes("image,split,labels\na.png,train,caf\u00e9\n".encode("latin-1"))
    refused(root, "labels.csv", "UTF-8")
    (root / "labels.csv").write_bytes(b"")
    refused(root, "empty", "Expected")
    (root / "labels.csv").write_text(f"image,labels\n{root / '00.png'},cat\n")
    refused(root, "line 2", "below the folder")
    (root / "labels.csv").rename(root / "labels.txt")
    refused(root, "1 label file is missing", "Expected", "holds 00.png, 01.png", "and 9 more")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"unlabeled": "ignore"}, "'error', 'drop' or 'keep'"),
        ({"fractions": (0.7, 0.2)}, "(train, val, test)"),
        ({"fractions": (0.7, 0.2, 0.2)}, "summing to 1"),
        ({"fractions": (1.2, 0.0, -0.2)}, ">= 0"),
        ({"fractions": (1.0, 0.0, 0.0)}, "no val images"),
        ({"min_images": 21}, "'cat', has 20"),
        ({"min_images": -1}, "option min_images of data set 'folder' is -1"),
    ],
)
def test_bad_options(folder, options, text):
    refused(folder(simple()), text, **options)


def test_fractions_ignore_column_and_row_order(folder):
    rows = [row.replace("train", "nonsense") for row in simple()]
    one = load("folder", root=folder(rows), size=8, fractions=(0.7, 0.1, 0.2))
    other = load("folder", root=folder(rows, name="again"), size=8, fractions=[0.7, 0.1, 0.2])
    assert {name: len(part) for name, part in one.parts.items()} == {"train": 14, "val": 2, "test": 4}
    assert {name for part in one.parts.values() for name in part.ids} == {row[:6] for row in rows}
    assert one.parts["test"].ids != tuple(sorted(row[:6] for row in rows)[-4:])  # not simply the last ones

    root = folder(rows, name="shuffled")
    (root / "labels.csv").write_text("\n".join(["image,split,labels", *reversed(rows)]))
    shuffled = load("folder", root=root, size=8, fractions=(0.7, 0.1, 0.2))
    assert one.fingerprint == other.fingerprint == shuffled.fingerprint
    assert one.parts["test"].ids == shuffled.parts["test"].ids
    assert "test" not in load("folder", root=root, size=8, fractions=(0.8, 0.2, 0)).parts


def test_rare_classes_and_images_without_label(folder):
    rows = [*simple(), "20.png,train,rare", "21.png,test,", "22.png,val,cat"]
    root = folder(rows)
    message = refused(
        root, "2 of 23", "20.png", "21.png", "drop", "keep", "error", "-d unlabeled", min_images=5
    )
    assert "min_images=5 removed 1 class" in message
    assert "22.png" not in message

    drop = load("folder", root=root, size=8, min_images=5, unlabeled="drop")
    keep = load("folder", root=root, size=8, min_images=5, unlabeled="keep")
    assert drop.classes == keep.classes == ("cat", "dog")
    assert (len(drop.parts["train"]), len(drop.parts["test"])) == (16, 4)
    assert (len(keep.parts["train"]), len(keep.parts["test"])) == (17, 5)
    assert keep.parts["test"].full[-1].tolist() == [0, 0]
    for data, policy in ((drop, "drop"), (keep, "keep")):
        assert data.notes["images_without_label"] == {"train": 1, "val": 0, "test": 1}
        assert (data.notes["unlabeled"], data.notes["classes_dropped"]) == (policy, 1)
    assert drop.fingerprint != keep.fingerprint


def test_fingerprint_follows_content_not_place(folder, tmp_path):
    root = folder(simple())
    first = load("folder", root=root, size=8).fingerprint
    assert load("folder", root=shutil.copytree(root, tmp_path / "elsewhere"), size=8).fingerprint == first
    assert load("folder", root=root, size=9).fingerprint != first

    content = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(content.replace("07.png,train,cat", "07.png,train,dog"))
    assert load("folder", root=root, size=8).fingerprint != first
    (root / "labels.csv").write_text(content)
    assert load("folder", root=root, size=8).fingerprint == first

    before = (root / "07.png").stat().st_size
    Image.new("RGB", (12, 8), (8, 14, 7)).save(root / "07.png")
    assert (root / "07.png").stat().st_size == before  # an edit that the file's size does not show
    assert load("folder", root=root, size=8).fingerprint != first


def test_missing_and_empty_files_are_one_report(folder):
    root = folder(simple())
    for name in ("03.png", "04.png", "11.png"):
        (root / name).unlink()
    (root / "05.png").write_bytes(b"")
    message = refused(
        root, "3 of 20", str(root), "03.png", "04.png", "11.png", "1 of 20", "05.png", "labels.csv"
    )
    assert "06.png" not in message


def test_unreadable_images_are_all_reported_by_path(folder):
    root = folder(simple())
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(root / "whole.jpg")
    (root / "03.png").write_bytes((root / "whole.jpg").read_bytes()[:-800])
    (root / "08.png").write_text("<html>not found</html>")
    Image.fromarray(noise[:, :, 0].astype(np.float32)).save(root / "09.png", "TIFF")
    message = refused(
        root, "3 of 20", str(root / "03.png"), "truncated", str(root / "08.png"), "floating-point"
    )
    assert "02.png" not in message
    with pytest.raises(DataError, match="3 of 20"):  # the check that stands before a long computation
        decoding.check([root / f"{n:02d}.png" for n in range(20)])


def test_problems_of_several_kinds_are_one_report(folder):
    root = folder([*simple(), "20.png,train,"])
    (root / "03.png").unlink()
    (root / "05.png").write_bytes(b"")
    (root / "08.png").write_text("<html>not found</html>")
    refused(
        root, "1 of 21 images has no label", "labels.csv line 22 (20.png)", "1 of 21 images is missing", "03.png",
        "1 of 21 images is an empty file", "05.png", "cannot be read", "08.png",
    )  # fmt: skip


def test_all_faulty_rows_are_one_report(folder):
    root = folder(["a.png,train,x", "b.png,tain,x", "a.png,val,y", ",val,y", "c.png,val,x,y"])
    message = refused(root, "4 of 5 rows", "line 3", "'train'", "line 4", "line 2", "line 5", "line 6")
    assert message.count("\n") == 4


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_tables_as_spreadsheets_write_them(folder, tmp_path, delimiter):
    """A byte order mark, CRLF, a column separator other than the decimal sign, names with any characters."""
    images = [
        "Urlaub 2023/Strand & Meer.JPG",
        "B\u00e4r, gro\u00df.jpg",
        "a;b.jpg",
        'dq".jpeg',
        "50%.png",
        "stra\u00dfe.png",
    ]
    root = folder([])
    (root / "Urlaub 2023").mkdir()
    for n, name in enumerate(images):
        Image.new("RGB", (8, 8), (n, n, n)).save(root / name, "PNG")
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(["image", "split", "Stra\u00dfe", "hot dog"])
    for n, name in enumerate(images):
        writer.writerow(
            [name, ("train", "train", "val")[n % 3], ("1", "1.0", "FALSE")[n % 3], ("0", "", "TRUE")[n % 3]]
        )
    writer.writerow([""] * 4)
    (root / "labels.csv").write_bytes(("\ufeff" + lines.getvalue()).encode())
    data = load("folder", root=root, size=8)
    assert data.classes == ("Stra\u00dfe", "hot dog")
    assert sorted([*data.parts["train"].ids, *data.parts["val"].ids]) == sorted(images)
    assert (data.parts["train"].full.sum(0) == [4, 0]).all() and (
        data.parts["val"].full.sum(0) == [0, 2]
    ).all()
    assert data.parts["train"].known.sum(0).tolist() == [4, 2]

    (root / "labels.csv").write_text("image;split;a;b\n50%.png;train;2;3\nstra\u00dfe.png;train;1;1\n")
    refused(root, "1 of 2 rows", "'2' in column 'a'", "'3' in column 'b'")
    (root / "labels.csv").write_text("image;split;labels\n50%.png;train;sky;sea\n")
    refused(root, "line 2", 'in quotes: "sky;sea"')
    (root / "labels.csv").write_text('image;split;labels\n50%.png;train;"sky;sea"\nstra\u00dfe.png;val;sky\n')
    assert load("folder", root=root, size=8).classes == ("sea", "sky")


def test_a_header_in_capitals_is_named(folder):
    root = folder(simple())
    (root / "labels.csv").write_text("Image;Split;Labels\n00.png;train;cat\n")
    refused(root, "has no column image, only 'Image': its header is Image,Split,Labels")


def test_a_column_for_each_class(folder):
    rows = ["a.png,train,1,0,?", "b.png,train,,1,0", "c.png,val,0,1,1", "d.png,test,1,1,0"]
    data = load("folder", root=folder(rows, header="image,split,sky,sea, boat "), size=8)
    assert data.classes == ("boat", "sea", "sky")
    train = data.parts["train"]
    assert train.full.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert train.known.tolist() == [[False, True, True], [True, True, False]]


def test_minus_one_is_absent_and_zero_must_be_named_beside_it(folder):
    header = "image,split,sky,sea"
    plain = load("folder", root=folder(["a.png,train,1,-1", "b.png,val,-1,1"], header=header), size=8)
    assert plain.parts["train"].full.tolist() == [[0, 1]] and plain.parts["train"].known is None
    root = folder(["a.png,train,1,-1", "b.png,val,0,1"], header=header, name="both")
    refused(root, "both 0 and -1", "zero='absent'", "zero='unknown'")
    absent, unknown = (load("folder", root=root, size=8, zero=zero) for zero in ("absent", "unknown"))
    assert absent.parts["val"].known is None
    assert unknown.parts["val"].known.tolist() == [[True, False]]
    assert absent.fingerprint != unknown.fingerprint


def test_columns_that_are_no_classes(folder):
    root = folder(["a.png,train,1,0,dusk", "b.png,val,1,1,dawn"], header="image,split,sky,sea,remark")
    refused(root, "line 2: 'dusk' in column 'remark'", "line 3: 'dawn'", "classes.txt")
    (root / "classes.txt").write_text("sky\nsea\n")
    assert load("folder", root=root, size=8).classes == ("sky", "sea")
    (root / "classes.txt").write_text("sky\nsun\n")
    refused(root, "no column for 1 class of", "sun")


def test_unknown_labels_in_a_joined_table(folder):
    rows = ["a.png,train,sky,sea", "b.png,train,sea,*", "c.png,val,boat,", "d.png,val,sky;sea,"]
    root = folder(rows, header="image,split,labels,unknown")
    data = load("folder", root=root, size=8)
    assert data.classes == ("boat", "sea", "sky")
    assert data.parts["train"].known.tolist() == [[True, False, True], [False, True, False]]
    assert data.parts["train"].full.tolist() == [[0, 0, 1], [0, 1, 0]]
    refused(
        folder(["a.png,train,sky,sky"], header="image,split,labels,unknown", name="x"),
        "both in labels and in unknown",
    )


def test_a_label_that_is_only_unknown_is_named(folder):
    """It may be misspelt, and the intended label would then count as absent."""
    rows = ["a.png,train,sky,", "b.png,train,sea,sky", "c.png,val,sea,skj"]
    root = folder(rows, header="image,split,labels,unknown")
    expected = (
        r"1 label unknown for some image and positive for none: skj \(labels.csv line 4\). did you mean 'sky'"
    )
    with pytest.warns(UserWarning, match=expected):
        load("folder", root=root, size=8)
    assert "skj" in read("folder", root=root).odd[0]


@pytest.mark.parametrize("pair", ["Circle;circle", "hot dog;hotdog", "caf\u00e9;cafe"])
def test_near_duplicate_classes_are_named(folder, pair):
    with pytest.warns(UserWarning, match=" / ".join(map(repr, sorted(pair.split(";"))))):
        data = load("folder", root=folder([f"a.png,train,{pair}", "b.png,val,tree"]), size=8)
    assert data.notes["similar_classes"] == [sorted(pair.split(";"))]


def test_a_single_class_is_named(folder):
    with pytest.warns(UserWarning, match="only one class is left, 'cat'"):
        load("folder", root=folder(simple()), size=8, min_images=15)


def test_missing_images_can_be_left_out(folder):
    root = folder(simple())
    (root / "03.png").unlink()
    data = load("folder", root=root, size=8, allow_missing=True)
    assert sum(map(len, data.parts.values())) == 19 and data.notes["missing_images"]["first"] == ["03.png"]
    refused(root, "03.png", "set the option allow_missing")
    (root / "04.png").write_bytes(b"")  # case 59: no advice that is followed already
    assert "allow_missing" not in refused(root, "04.png", allow_missing=True)


def test_files_no_row_names(folder):
    root = folder(simple())
    Image.new("RGB", (4, 4)).save(root / "extra.jpg")
    assert read("folder", root=root).extra == [root / "extra.jpg"]


def test_an_unchanged_file_is_read_once(folder, tmp_path, monkeypatch):
    root = folder(simple())
    for path in root.glob("*.png"):
        os.utime(path, (1, 1))
    monkeypatch.setattr(digests, "WORTH", 0)
    monkeypatch.setattr(digests, "SETTLED", -(10**12))  # all files count as old
    first = load("folder", root=root, size=8, cache_dir=tmp_path).fingerprint
    hashed, digest = [], digests.digest
    monkeypatch.setattr(digests, "digest", lambda path: hashed.append(path.name) or digest(path))
    assert load("folder", root=root, size=8, cache_dir=tmp_path).fingerprint == first and not hashed
    Image.new("RGB", (12, 8), (9, 9, 9)).save(root / "07.png")
    assert load("folder", root=root, size=8, cache_dir=tmp_path).fingerprint != first and hashed == ["07.png"]
    next(tmp_path.glob("digests-*.json")).write_text("{")
    hashed.clear()
    load("folder", root=root, size=8, cache_dir=tmp_path)
    assert len(hashed) == 20


def test_long_reports_are_cut():
    lines = table.bullets([str(n) for n in range(50)]).split("\n")
    assert len(lines) == 22 and lines[-1].strip() == "... and 30 more"


def blocks(mode):
    """Return a 2x2 picture in that mode, and the RGB values it must decode to."""
    colours = Image.fromarray(BLOCKS)
    grey = np.array([[0, 85], [170, 255]], np.uint8)
    grey_rgb = np.repeat(grey[:, :, None], 3, 2)
    white = np.full(3, 255, np.uint8)
    if mode == "RGBA":
        colours.putalpha(Image.fromarray(np.array([[255, 255], [255, 0]], np.uint8)))
        return colours, np.stack([BLOCKS[0], [BLOCKS[1, 0], white]])
    if mode == "LA":
        image = Image.fromarray(grey)
        image.putalpha(Image.fromarray(np.array([[0, 255], [255, 255]], np.uint8)))
        return image, np.stack([[white, grey_rgb[0, 1]], grey_rgb[1]])
    if mode == "P":
        return colours.quantize(4), BLOCKS
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) * 257), grey_rgb
    if mode == "1":
        return Image.fromarray(grey).point(lambda v: v > 100, mode="1"), (grey_rgb > 100).astype(
            np.uint8
        ) * 255
    if mode == "L":
        return Image.fromarray(grey), grey_rgb
    return colours.convert(mode), BLOCKS


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *[(mode, "PNG") for mode in ("RGB", "L", "LA", "P", "RGBA", "I;16", "1")],
        *[(mode, "TIFF") for mode in ("CMYK", "I;16", "L")],
        ("I", "PPM"),
    ],
)
def test_colour_modes_become_rgb(tmp_path, mode, form):
    image, expected = blocks("I;16" if mode == "I" else mode)
    image.convert(mode).save(tmp_path / "x", form) if mode == "I" else image.save(tmp_path / "x", form)
    with Image.open(tmp_path / "x") as stored:
        assert stored.mode == mode  # else the case would test another mode
    np.testing.assert_array_equal(decoding.decode(tmp_path / "x", 2).transpose(1, 2, 0), expected)


def test_palette_with_a_transparent_colour_lies_on_white(tmp_path):
    image, _ = blocks("P")
    image.save(tmp_path / "x.png", transparency=image.getpixel((1, 0)))
    pixels = decoding.decode(tmp_path / "x.png", 2).transpose(1, 2, 0)
    assert pixels[0, 1].tolist() == [255, 255, 255] and pixels[0, 0].tolist() == BLOCKS[0, 0].tolist()


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(BLOCKS).save(tmp_path / "x.png", exif=exif)
    pixels = decoding.decode(tmp_path / "x.png", 2).transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels, np.rot90(BLOCKS, -1))


def test_whole_image_is_resized_to_a_square(tmp_path):
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 20:] = 255
    Image.fromarray(wide).save(tmp_path / "x.png")
    pixels = decoding.decode(tmp_path / "x.png", 10)
    assert (pixels[:, :, :4] == 0).all() and (pixels[:, :, 6:] == 255).all()


def test_photographs(tmp_path):
    if not PHOTOS.is_dir():
        pytest.skip(f"the photographs are absent: {PHOTOS}")
    with open(PHOTOS / "labels.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::50]
    (tmp_path / "images").symlink_to(PHOTOS / "images")
    lines = [f"{row['image']},{row['split']},{row['labels']}" for row in rows]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *lines]))
    data = load("folder", root=tmp_path, size=32, cache_dir=tmp_path)
    assert data.parts["train"].inputs.float().std() > 40
    assert sum(len(part) for part in data.parts.values()) == len(rows) == 100
    truth = {row["image"]: set(row["labels"].split(";")) for row in rows}
    for part in data.parts.values():
        for name, row in zip(part.ids, part.full, strict=True):
            assert {data.classes[c] for c in np.flatnonzero(row)} == truth[name]


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [("allow_missing", "no", "bool"), ("min_images", "ten", "int"), ("size", 64.5, "int"), ("fractions", 0.8, "a list"),
     ("zero", 0, "absent")],
)  # fmt: skip
def test_an_option_of_another_type(option, value, kind, tmp_path):
    with pytest.raises(DataError, match=f"option {option} of data set 'folder' is {value!r}: .*{kind}"):
        load("folder", root=tmp_path, **{option: value})


# --- a wrong separator, case 37 ---


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("dog|cat", ["'dog|cat' looks like 'dog' and 'cat', joined by '|'", "';'"]),
        ('"cat, dog"', ["'cat' and 'dog', joined by ','"]),
        ("cat/dog", ["'cat' and 'dog', joined by '/'"]),
        ("cat dog", ["'cat' and 'dog', joined by ' '"]),
        ("bird;dog|cat", ["'dog|cat'"]),
        ("cat|", ["'cat|' looks like 'cat'"]),
        ("\"['cat', 'dog']\"", ["looks like a list", "here cat;dog"]),  # as pandas writes it
        ("['cat' 'dog']", ["looks like a list", "here cat;dog"]),  # as NumPy does
        ('"[""cat"", ""dog""]"', ["looks like a list", "here cat;dog"]),
        ("[cat]", ["looks like a list", "here cat"]),
    ],
)
def test_labels_joined_by_another_separator_are_faulty_rows(folder, cell, texts):
    root = folder(["a.png,train,cat;dog", f"b.png,train,{cell}", "c.png,val,bird"])
    message = refused(root, "1 of 3 rows is faulty", "line 3", *texts)
    assert message.count("\n") == 1


def test_labels_that_never_stand_alone_are_joined_as_well(folder):
    refused(
        folder(['a.png,train,"sky, sea"', 'b.png,train,"sea, tree"', 'c.png,val,"tree, sky"']), "3 of 3 rows"
    )


def test_names_that_merely_contain_a_separator_are_classes(folder):
    names = ["and/or", "bear", "bow, tie", "brown bear", "grizzly (brown)", "polar bear", "polar fox", "tie"]
    rows = [f'{n}.png,{("train", "val")[n % 2]},"{name}"' for n, name in enumerate(names)]
    assert list(load("folder", root=folder(rows), size=8).classes) == names
    root = folder(["a.png,train,fire;truck", "b.png,val,fire truck"], name="trucks")
    refused(root, "line 3", "'fire truck'", "classes.txt")
    (root / "classes.txt").write_text("fire\ntruck\nfire truck\n")
    assert len(load("folder", root=root, size=8).classes) == 3
    (root / "classes.txt").write_text("fire\ntruck\n")
    refused(root, "line 3", "looks like 'fire' and 'truck'")


# --- a class that training never shows, case 38 ---


def test_a_class_without_a_positive_in_train_is_named_before_training(folder):
    rows = [*simple(), "20.png,test,owl", "21.png,test,owl;cat", "22.png,val,cat"]
    with pytest.warns(
        UserWarning, match=r"1 class without a positive in train.*: owl \(0 train, 0 val, 2 test\)"
    ):
        data = load("folder", root=folder(rows), size=8)
    assert data.notes["classes_without_train_positive"] == {"owl": {"train": 0, "val": 0, "test": 2}}
    assert (
        "classes_without_train_positive" not in load("folder", root=folder(simple(), name="y"), size=8).notes
    )


# --- an image outside the folder, case 41 ---


@pytest.mark.parametrize(
    "image", ["../../../etc/passwd", "a/../../b.png", "..", "/etc/passwd", "C:\\b.png", "..\\b.png"]
)
def test_an_image_outside_the_folder_is_a_faulty_row(folder, image):
    root = folder(["a.png,train,x", "b.png,val,x"])
    (root / "labels.csv").write_text(f"image,split,labels\na.png,train,x\n{image},val,x\n")
    refused(root, "1 of 2 rows is faulty", "line 3", "is not a path below the folder")


# --- label files in other formats ---

PETS = {"1.jpg": ["cat", "dog"], "2.jpg": ["dog"], "3.jpg": []}


def lists_of(form, pets=PETS):
    """Return a Hugging Face metadata file with a list of labels for each image."""
    if form == "jsonl":
        return "\n".join(json.dumps({"file_name": k, "labels": v, "width": 8}) for k, v in pets.items())
    written = {"csv": str, "numpy": lambda v: str(np.array(v)), "json": json.dumps, "joined": ";".join}[form]
    lines = io.StringIO()
    csv.writer(lines).writerows([["file_name", "labels"], *([k, written(v)] for k, v in pets.items())])
    return lines.getvalue()


@pytest.mark.parametrize("form", ["jsonl", "csv", "json", "numpy", "joined"])
def test_metadata_files_of_each_split(tmp_path, form):
    for split in ("train", "validation", "test"):
        for n, image in enumerate(PETS):
            picture(tmp_path / split / image, n)
        suffix = "jsonl" if form == "jsonl" else "csv"
        (tmp_path / split / f"metadata.{suffix}").write_text(lists_of(form))
    data = load("folder", root=tmp_path, size=8, unlabeled="keep")
    assert data.classes == ("cat", "dog")
    assert data.parts["val"].ids == ("validation/1.jpg", "validation/2.jpg", "validation/3.jpg")
    assert data.parts["train"].full.tolist() == [[1, 1], [0, 1], [0, 0]] and len(data.parts["test"]) == 3


def test_a_metadata_file_for_all_images(tmp_path):
    images = [f"{split}/{n}.jpg" for split in ("train", "valid") for n in range(3)]
    for n, image in enumerate(images):
        picture(tmp_path / image, n)
    (tmp_path / "metadata.jsonl").write_text(lists_of("jsonl", {image: ["a", image[0]] for image in images}))
    listing = read("folder", root=tmp_path)
    assert listing.splits == ["train"] * 3 + ["val"] * 3 and listing.classes == ("a", "t", "v")
    assert listing.where(4) == "metadata.jsonl line 5 (valid/1.jpg)" and not listing.missing()
    assert "folders" in listing.notes["division"]
    picture(tmp_path / "more" / "7.jpg")
    with open(tmp_path / "metadata.jsonl", "a") as file:
        file.write('\n{"file_name": "more/7.jpg", "labels": ["a"]}')
    refused(tmp_path, "1 of 7 rows", "metadata.jsonl", "line 7: unknown split ''")
    assert len(read("folder", root=tmp_path, fractions=(0.5, 0.5, 0))) == 7


def test_columns_can_be_chosen_and_a_wrong_guess_names_them(tmp_path):
    content = ["name,caption,tags", "1.jpg,a cat,\"['cat', 'dog']\"", "2.jpg,a dog,['dog']"]
    (tmp_path / "metadata.csv").write_text("\n".join(content))
    seen = "its header is name,caption,tags"
    refused(tmp_path, "metadata.csv has no column file_name", seen, "image_column")
    refused(tmp_path, "no column labels", seen, "-d label_column NAME", image_column="name")
    refused(tmp_path, "no column tag", seen, "label_column", image_column="name", label_column="tag")
    listing = read("folder", root=tmp_path, image_column="name", label_column="tags")
    assert listing.classes == ("cat", "dog") and listing.ids == ["1.jpg", "2.jpg"]
    with pytest.raises(DataError, match=r"none of the images exists.*-d images FOLDER"):
        load("folder", root=tmp_path, size=8, image_column="name", label_column="tags")


def test_faulty_lines_of_metadata(tmp_path):
    rows = [
        {"file_name": "1.jpg", "labels": ["cat", "dog"]},
        {"file_name": "../2.jpg", "labels": ["cat"]},
        {"file_name": "3.jpg", "labels": {"boxes": []}},
        {"file_name": "1.jpg", "labels": ["cat|dog"]},
        {"file_name": "5.jpg", "labels": [["cat"]]},
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    message = refused(
        tmp_path, "4 of 5 rows", "line 2: image '../2.jpg'", 'line 3: {"boxes": []} is not a list',
        "line 4: image '1.jpg' is already in line 1", "line 4: label 'cat|dog'", "line 5",
    )  # fmt: skip
    assert message.count("\n") == 5
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "1.jpg"\n[1]\n')
    refused(tmp_path, "2 of 2 rows", "line 1: is not a JSON object", "line 2")


def coco_file(path, pets=PETS, **changes):
    names = sorted({name for found in pets.values() for name in found})
    content = {
        "images": [{"id": 10 + n, "file_name": name, "height": 8} for n, name in enumerate(pets)],
        "categories": [{"id": 3 * n, "name": name} for n, name in enumerate(names)],
        "annotations": [
            {"id": 1, "image_id": 10 + n, "category_id": 3 * names.index(name), "bbox": [0, 0, 4, 4]}
            for n, found in enumerate(pets.values())
            for name in [*found, *found]
        ],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content | changes))


def test_coco_files_of_ones_own(tmp_path):
    for split in ("train", "val"):
        coco_file(tmp_path / "annotations" / f"instances_{split}2017.json")
        for n, image in enumerate(PETS):
            picture(tmp_path / f"{split}2017" / image, n)
    files = [f"annotations/instances_{split}2017.json" for split in ("train", "val")]
    refused(tmp_path, "1 label file is missing", "file=annotations.json")
    refused(tmp_path, "3 of 3 rows", f"{tmp_path / files[0]} image 10", "set the option images", file=files)
    refused(tmp_path, "none of the images exists", "images", file=files[0])
    options = {"file": files, "images": ["train2017", "val2017"], "unlabeled": "drop"}
    data = load("folder", root=tmp_path, size=8, **options)
    assert data.classes == ("cat", "dog") and data.parts["train"].full.tolist() == [[1, 1], [0, 1]]
    assert data.parts["val"].ids == ("val2017/1.jpg", "val2017/2.jpg")
    one = read("folder", root=tmp_path, file=files[0], images="train2017", unlabeled="keep")
    assert sorted(one.splits) == ["train", "train", "val"] and one.where(0) == "train2017/1.jpg"
    refused(tmp_path, "2 folders", "1 label file", file=files[0], images=["train2017", "val2017"])


def test_faulty_coco_files(tmp_path):
    file = tmp_path / "own.json"
    coco_file(file, {"1.jpg": ["cat", "dog", "cat/dog"], "../2.jpg": ["cat"]})
    refused(
        tmp_path,
        "2 of 2 rows",
        "own.json",
        "image 10: label 'cat/dog'",
        "image 11: image '../2.jpg'",
        file="own.json",
    )
    coco_file(file, annotations=[{"image_id": 77, "category_id": 0}])
    refused(tmp_path, "1 annotation of images or categories", "image 77", file="own.json")
    refused(tmp_path, "image_column and label_column are for tables", file="own.json", label_column="name")
    form = "Expected COCO's format: images (id, file_name)"
    coco_file(file, categories=[{"id": 0, "title": "cat"}])
    refused(tmp_path, "not a COCO instances file (no 'name')", form, file="own.json")
    for content, reason in (('{"images": [', "not JSON: "), ("[1, 2]", "not lists of objects")):
        file.write_text(content)
        refused(tmp_path, f"not a COCO instances file ({reason}", form, file="own.json")
    file.write_text(json.dumps({"pictures": [], "tags": []}))
    refused(tmp_path, "not a COCO instances file", "Its keys are pictures, tags", file="own.json")
    for outside in ("../own.json", "/etc/own.json"):
        refused(tmp_path, "is not a path below", file=outside)
    refused(tmp_path, "1 label file is missing", "holds own.json", file="other.json")
