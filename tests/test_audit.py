"""`spml data check`: every kind of fault is found where it was planted, and nothing else is."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from miniatures import write_voc
from PIL import Image

from spml_core import data
from spml_core.cli import main
from spml_core.data import DataError, audit
from spml_core.data.files import decoding, loading

KINDS = ("missing", "zero-byte", "truncated", "unreadable")


def noise(seed, size=(48, 64, 3)):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Make a folder of 40 different JPEGs, 24 train, 8 val, 8 test: `make()` returns it; `rows` as given if given."""

    def make(rows=None, name="photos"):
        root = tmp_path / name
        (root / "images").mkdir(parents=True)
        splits = ["train"] * 24 + ["val"] * 8 + ["test"] * 8
        lines = [f"images/{n:02d}.jpg,{split},{'a' if n % 2 else 'b'}" for n, split in enumerate(splits)]
        for n in range(40):
            Image.fromarray(noise(n)).save(root / "images" / f"{n:02d}.jpg")
        (root / "labels.csv").write_text("\n".join(["image,split,labels", *(rows or lines)]) + "\n")
        return root

    return make


def check(listing):
    return SimpleNamespace(**audit.audit(listing))


def report_of(root, **options):
    return check(data.read("folder", root=root, **options))


def names(lines):
    return [line.partition(":")[0].rpartition("/")[2] for line in lines]


def test_nothing_is_said_of_a_good_folder(folder):
    report = report_of(folder())
    assert report.ok and not report.odd and not report.duplicates and not report.extra
    assert report.images == {"train": 24, "val": 8, "test": 8} and report.classes == 2
    assert report.problems == {kind: [] for kind in KINDS}
    assert report.unlabeled == report.no_positives == report.no_negatives == {k: [] for k in report.images}
    assert report.modes == {"RGB": 40} and report.formats == {"JPEG": 40}
    assert report.sizes == {"width": [64, 64, 64], "height": [48, 48, 48]}


def test_every_planted_file_fault_is_found(folder):
    root = folder()
    place = root / "images"
    for n in (3, 4):
        (place / f"{n:02d}.jpg").unlink()
    (place / "05.jpg").write_bytes(b"")
    (place / "06.jpg").write_bytes((place / "06.jpg").read_bytes()[:-800])
    (place / "07.jpg").write_text("<html>Photo unavailable</html>")
    Image.fromarray(noise(8)[:, :, 0].astype(np.float32)).save(place / "08.jpg", "TIFF")
    shutil.copy(place / "39.jpg", place / "00.jpg")  # a test image among the train images
    shutil.copy(place / "10.jpg", place / "09.jpg")
    Image.fromarray(noise(99)).save(place / "unnamed.png")
    (place / "notes.txt").write_text("no image")

    report = report_of(root)
    assert {kind: names(lines) for kind, lines in report.problems.items()} == {
        "missing": ["03.jpg", "04.jpg"],
        "zero-byte": ["05.jpg"],
        "truncated": ["06.jpg"],
        "unreadable": ["07.jpg", "08.jpg"],
    }
    assert "floating-point" in report.problems["unreadable"][1]
    assert names(report.extra) == ["unnamed.png"]
    found = [[(split, path[-6:]) for split, path in group] for group in report.duplicates]
    assert found == [[("train", "00.jpg"), ("test", "39.jpg")], [("train", "09.jpg"), ("train", "10.jpg")]]
    assert len(report.across_splits) == 1
    starts = [text.split(" of ")[0] for text in report.wrong]
    assert starts == ["2", "1", "1", "2", "1 group across splits: 1"]
    assert "1 of 16 val and test images has a copy in another split" in report.wrong[-1]
    assert sum(report.modes.values()) == 34


def test_a_rare_copy_across_splits_is_a_note(folder, monkeypatch):
    root = folder()
    shutil.copy(root / "images" / "39.jpg", root / "images" / "00.jpg")
    assert not report_of(root).ok
    monkeypatch.setattr(audit, "LEAK", 0.1)
    report = report_of(root)
    assert (
        report.ok and len(report.across_splits) == 1 and any("across splits" in text for text in report.odd)
    )


def test_equal_pixels_are_copies_whatever_the_file_says_of_them(folder):
    root = folder()
    exif = Image.Exif()
    exif[0x010E] = "another description"
    pixels = Image.fromarray(noise(50))
    pixels.save(root / "images" / "00.jpg", "PNG")
    pixels.save(root / "images" / "30.jpg", "PNG", exif=exif)
    report = report_of(root)
    assert names(path for _, path in report.across_splits[0]) == ["00.jpg", "30.jpg"]


def test_images_that_look_alike_small_are_no_copies(folder):
    """The quick look decodes a JPEG at an eighth of its size."""
    root = folder()
    flat = np.full((64, 64, 3), 128, np.uint8)
    for n in (0, 39):
        dotted = flat.copy()
        dotted[10, 10 + n] += 1 + n // 10
        Image.fromarray(dotted).save(root / "images" / f"{n:02d}.jpg", quality=98)
    looks = [audit.look_at(root / "images" / name)["look"] for name in ("00.jpg", "39.jpg")]
    assert looks[0] == looks[1]
    assert not report_of(root).duplicates


def test_labels_are_counted_for_each_split(folder):
    rows = [f"images/{n:02d}.jpg,train,a;b" for n in range(20)]
    rows += [f"images/{n:02d}.jpg,val,a{';b' * (n % 2)}" for n in range(20, 30)]
    rows += [f"images/{n:02d}.jpg,test,{'b' * (n % 2)}" for n in range(30, 40)]
    root = folder(rows)
    report = report_of(root, unlabeled="keep")
    assert report.no_positives == {"train": [], "val": [], "test": ["a"]}
    assert report.no_negatives == {"train": ["a", "b"], "val": ["a"], "test": []}
    assert report.unlabeled["test"] == [f"images/{n}.jpg" for n in (30, 32, 34, 36, 38)]
    assert report.ok and len(report.odd) == 4

    stops = report_of(root)
    assert not stops.ok and "images have no label" in stops.wrong[0]
    dropped = report_of(root, unlabeled="drop")
    assert dropped.ok and dropped.images == {"train": 20, "val": 10, "test": 5}


def test_a_class_without_a_train_positive_is_told_once(folder):
    rows = [f"images/{n:02d}.jpg,{'val' if n > 30 else 'train'},{'a' if n % 2 else 'b'}" for n in range(39)]
    report = report_of(folder([*rows, "images/39.jpg,val,owl"]))
    assert report.no_positives["train"] == ["owl"]
    assert [text for text in report.odd if "positive in train" in text] == [
        text for text in report.odd if "owl" in text
    ]
    assert len([text for text in report.odd if "owl" in text]) == 1


def test_unknown_labels_are_neither_positive_nor_negative(folder):
    lines = [
        f"images/{n:02d}.jpg,{'val' if n > 20 else 'train'},{n % 2},{'?' if n > 5 else 1}" for n in range(40)
    ]
    root = folder()
    (root / "labels.csv").write_text("\n".join(["image,split,a,b", *lines]))
    report = report_of(root, unlabeled="keep")
    assert report.no_positives == {"train": [], "val": ["b"]}
    assert report.no_negatives == {"train": ["b"], "val": []}
    assert report.unknown == {"train": 15, "val": 19}
    assert "15 of 42 train labels are unknown" in report.odd


def test_unknown_labels_are_on_the_screen(folder, tmp_path):
    rows = [f"images/{n:02d}.jpg,{('train', 'val')[n % 2]},a,{'b' if n < 3 else ''}" for n in range(40)]
    root = folder(rows)
    file = root / "labels.csv"
    file.write_text(
        file.read_text().replace("split,labels", "split,labels,unknown").replace("a,\n", "b,\n", 5)
    )
    result = CliRunner().invoke(
        main, ["data", "check", "folder", "--root", str(root), "--runs-dir", str(tmp_path / "runs")]
    )
    assert re.search(r"unknown labels, train +2\nunknown labels, val +1\n", result.output), result.output
    assert "2 of 40 train labels are unknown" in result.output


def test_without_validation_positives_nothing_can_be_chosen(folder):
    rows = [
        f"images/{n:02d}.jpg,{'val' if n > 30 else 'train'},{'' if n > 30 else 'ab'[n % 2]}"
        for n in range(40)
    ]
    report = report_of(folder(rows), unlabeled="keep")
    assert "no val image has a label" in report.wrong
    everything = report_of(folder(["images/00.jpg,train,a;b"], "other"))
    assert "there are no val images" in everything.wrong


def picture(mode, size=(48, 64)):
    """Return a picture of that mode."""
    colours, grey = Image.fromarray(noise(7, (*size, 3))), Image.fromarray(noise(8, size))
    if mode == "I;16":
        return Image.fromarray(noise(9, size).astype(np.uint16) * 257)
    if mode == "LA":
        grey.putalpha(Image.fromarray(noise(10, size)))
        return grey
    return colours.quantize(16) if mode == "P" else colours.convert(mode)


@pytest.fixture
def odd_files(tmp_path):
    """Return a folder with gray, CMYK, palette and 16-bit images, and two broken files."""
    root = tmp_path / "odd"
    root.mkdir()
    modes = {"L": "JPEG", "CMYK": "JPEG", "P": "PNG", "RGBA": "PNG", "LA": "PNG", "I;16": "PNG", "1": "PNG"}
    for mode, form in modes.items():
        picture(mode).save(root / f"{mode.replace(';', '')}.{form.lower()}", form)
    exif = Image.Exif()
    exif[0x0112] = 6
    picture("RGB").save(root / "rotated.jpeg", exif=exif)
    picture("RGB", (30, 30)).quantize(8).save(
        root / "moving.gif", save_all=True, append_images=[picture("L")]
    )
    picture("RGB").save(root / "zcut.jpeg")
    (root / "zcut.jpeg").write_bytes((root / "zcut.jpeg").read_bytes()[:-800])
    (root / "zempty.png").write_bytes(b"")
    files = sorted(path.name for path in root.iterdir())
    rows = [f"{name},{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n, name in enumerate(files)]
    (root / "labels.csv").write_text("\n".join(["image,split,labels", *rows]) + "\n")
    return root


def test_odd_images_are_read_and_broken_ones_reported_before_the_first_epoch(odd_files):
    report = report_of(odd_files)
    expected = {"L": 1, "CMYK": 1, "P": 2, "RGBA": 1, "LA": 1, "I;16": 1, "1": 1, "RGB": 1}
    assert report.modes == expected
    assert names(report.rotated) == ["rotated.jpeg"] and names(report.animated) == ["moving.gif"]
    assert names(report.problems["truncated"]) == ["zcut.jpeg"]
    assert names(report.problems["zero-byte"]) == ["zempty.png"]
    good = [path for path in sorted(odd_files.glob("[!lz]*.*"))]
    assert len(good) == 9
    for path in good:
        pixels = decoding.decode(path, 16)
        assert pixels.shape == (3, 16, 16) and pixels.dtype == np.uint8
        assert 90 < pixels.mean() < 200 and pixels.std() > 5  # 16 bits are scaled, not cut off
    with pytest.raises(DataError) as error:
        data.load("folder", root=odd_files, size=16)
    assert str(odd_files / "zcut.jpeg") in str(error.value) and str(odd_files / "zempty.png") in str(
        error.value
    )
    assert "moving.gif" not in str(error.value)

    everything = decoding.Files([*good, odd_files / "zcut.jpeg"], 16)
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read:\n.*zcut\.jpeg"):  # during an epoch
        list(loading.batches(everything, torch.arange(10).split(5), "cpu"))


def test_command_prints_a_table_writes_json_and_says_whether_training_is_right(folder, odd_files, tmp_path):
    def command(root, *more):
        line = ["data", "check", "folder", "--root", str(root), "--runs-dir", str(tmp_path / "runs"), *more]
        return CliRunner().invoke(main, line)

    good = command(folder())
    assert "unknown labels" not in good.output
    assert good.exit_code == 0, good.output
    assert "24 train, 8 val, 8 test images; 2 classes" in good.output and "fit for training" in good.output
    assert json.loads((tmp_path / "runs" / "audit" / "photos.json").read_text())["ok"] is True

    bad = command(odd_files, "-d", "min_images", "0")
    assert bad.exit_code == 1
    for text in (
        "zcut.jpeg",
        "zempty.png",
        "16 bits: scaled to 8",
        "first frame is read",
        "rotated as EXIF says",
    ):
        assert text in bad.output
    content = json.loads((tmp_path / "runs" / "audit" / "odd.json").read_text())
    assert not content["ok"] and content["modes"]["CMYK"] == 1 and len(content["wrong"]) == 2

    unknown = command(odd_files, "-d", "min_image", "3")
    assert unknown.exit_code == 2 and "has no option min_image. It has: root, min_images" in unknown.output
    digits = CliRunner().invoke(main, ["data", "check", "digits", "--root", "x"])
    assert digits.exit_code == 2 and "has no files" in digits.output
    typo = CliRunner().invoke(main, ["data", "check", "coco2015", "--root", "x"])
    assert typo.exit_code == 2 and "'coco2014'" in typo.output


def test_missing_files_with_another_suffix_are_pointed_at(folder):
    root = folder()
    (root / "images" / "03.jpg").rename(root / "images" / "03.JPG")
    (root / "images" / "05.jpg").rename(root / "images" / "b\u00e4r.jpg")
    table = root / "labels.csv"
    table.write_text(table.read_text().replace("05.jpg", "ba\u0308r.jpg"))
    report = report_of(root)
    assert any("03.JPG" in text and "2 extra files named like a missing one" in text for text in report.odd)


def test_benchmark_layouts_are_checked_with_their_options(tmp_path):
    train = {f"2008_{n:06d}": {("cat", "dog")[n % 2]: 1} for n in range(20)}
    train["2008_000003"] = {"cat": 0}  # difficult objects only
    val = {f"2009_{n:06d}": {"cat": 1} for n in range(5)}
    base = write_voc(tmp_path, {"train": train, "val": val})
    (base / "JPEGImages" / "2009_000002.jpg").unlink()
    report = check(data.read("voc2012", root=tmp_path, unlabeled="drop", difficult="ignore"))
    assert report.images == {"train": 15, "val": 4, "test": 5}
    assert names(report.problems["missing"]) == ["2009_000002.jpg"] and names(report.extra) == [
        "2007_000027.jpg"
    ]
    assert report.wrong[0] == "1 of 24 images is missing"
    assert "cat" in report.no_negatives["test"] and "dog" in report.no_positives["test"]
    allowed = check(data.read("voc2012", root=tmp_path, unlabeled="drop", allow_missing=True))
    assert allowed.images["test"] == 4 and not any(allowed.problems.values())
    assert any("1 row left out" in text for text in allowed.odd)


def test_real_photographs_raise_no_alarm(shared):
    report = check(data.read("folder", root=shared / "data" / "corel5k", min_images=20, unlabeled="drop"))
    assert report.ok and not any(report.problems.values())
    assert not report.extra and not report.duplicates and not report.rotated
    assert report.modes == {"RGB": 4984}  # 15 images have rare labels only


def test_images_without_a_label_are_named_by_line(folder):
    rows = [
        f"images/{n:02d}.jpg,{'val' if n > 30 else 'train'},{'' if n in (3, 35) else 'ab'[n % 2]}"
        for n in range(40)
    ]
    root = folder(rows[::-1])  # 03 is in line 38 then, 35 in line 6
    report = report_of(root)
    assert (
        "2 of 40 images have no label:\n  labels.csv line 6 (images/35.jpg)\n  labels.csv line 38 (images/03.jpg)"
        in (report.wrong[0])
    )
    assert report.lines == {"images/03.jpg": 38, "images/35.jpg": 6}
    assert (root / "labels.csv").read_text().splitlines()[38 - 1].startswith("images/03.jpg,")
    kept = report_of(root, unlabeled="keep")
    assert kept.odd[0] == "1 of 31 train images has no label: labels.csv line 38 (images/03.jpg)"
    with pytest.raises(DataError, match=r"labels.csv line 38 \(images/03.jpg\)"):
        data.load("folder", root=root, size=8)


@pytest.mark.parametrize(
    "names, differ",
    [
        (("Cat", "cat"), True),
        (("hot dog", "hot_dog"), True),
        (("caf\u00e9", "cafe"), True),
        (("dog", "dogs"), True),
        (("box", "boxes"), True),
        (("berry", "berries"), True),
        (("gas", "ga"), False),
        (("grass", "gras"), False),
        (("sun", "sunset"), False),
    ],
)
def test_classes_that_are_probably_one_are_a_note(folder, names, differ, recwarn):
    rows = [f"images/{n:02d}.jpg,{('train', 'val')[n % 2]},{names[n // 2 % 2]}" for n in range(40)]
    report = report_of(folder(rows))
    assert report.ok and report.similar_classes == ([sorted(names)] if differ else [])
    assert len(report.odd) == differ and not recwarn.list
    if differ:
        assert (
            report.odd[0].startswith("1 group of classes differs in case") and repr(names[0]) in report.odd[0]
        )


def test_numbers_other_than_published_are_a_note(tmp_path):
    train = {f"2008_{n:06d}": {("cat", "dog")[n % 2]: 1} for n in range(12)}
    write_voc(tmp_path, {"train": train, "val": {"2009_000001": {"cat": 1}}})
    listing = data.read("voc2012", root=tmp_path)
    report = check(listing)
    assert any("5,717 train expected, 12 here; 5,823 test expected, 1 here" in text for text in report.odd)
    assert not any("expected" in text for text in report.wrong)
    assert report.published == {
        "train": {"expected": 5717, "here": 12},
        "test": {"expected": 5823, "here": 1},
    }
    assert (
        data.load("voc2012", root=tmp_path, size=4)
        .notes["not_as_published"]
        .startswith("5,717 train expected")
    )


def test_published_numbers_are_those_of_the_papers():
    from spml_core.data.sets import coco2014, cub200, nuswide, voc2012

    table = pd.read_csv(Path(__file__).parents[1] / "data" / "published_statistics.csv")
    table = table[table.source == "GR Table 5"].set_index("dataset")
    sizes = {"voc2012": voc2012.SIZES, "coco2014": coco2014.ANNOTATED, "cub200": cub200.SIZES}
    sizes["nuswide"] = dict(zip(("train", "test"), nuswide.VARIANTS["official"], strict=True))
    for name, own in sizes.items():
        row = table.loc[name]
        assert own == {"train": row.train + row.val, "test": row.test}, name
