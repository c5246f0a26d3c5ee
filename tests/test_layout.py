"""Every loader first reports a folder that is not a data set, and says what it is."""

import pytest
from click.testing import CliRunner
from miniatures import write_voc

from spml_core import data
from spml_core.cli import main
from spml_core.data import DATASETS, DataError, OptionError

NAMES = [name for name in DATASETS if name != "digits"]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Change to a working directory outside any project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", [data.read, data.load])
def test_a_root_that_is_none(name, function, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for root, text in (
        ("nowhere", "does not exist"),
        ("file", "is a file, not a folder"),
        ("empty", "is empty"),
    ):
        with pytest.raises(OptionError) as error:
            function(name, root=tmp_path / root)
        assert str(error.value).startswith(f"{tmp_path / root} {text}; give --root FOLDER.")


@pytest.mark.parametrize("name", NAMES)
def test_another_layout_says_what_was_looked_for_and_what_there_is(name, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError) as error:
        data.read(name, root=tmp_path)
    assert not isinstance(error.value, OptionError)
    assert "Expected" in str(error.value) and f"{tmp_path} holds notes.txt, photos/." in str(error.value)


def test_the_folder_that_is_meant_is_named(tmp_path):
    deep = tmp_path / "archive" / "photos"
    (deep / "images").mkdir(parents=True)
    (deep / "labels.csv").write_text("image,labels\n")
    for root in (tmp_path, tmp_path / "archive", deep / "images"):
        with pytest.raises(
            DataError, match=f"Did you mean {deep}" if root != deep / "images" else "is empty"
        ):
            data.read("folder", root=root)
    (deep / "images" / "a.jpg").write_text("x")
    with pytest.raises(DataError, match=f"Did you mean {deep}"):
        data.read("folder", root=deep / "images")
    base = write_voc(
        tmp_path / "voc", {"train": {"2008_000001": {"cat": 1}}, "val": {"2008_000002": {"cat": 1}}}
    )
    with pytest.raises(DataError, match=f"Did you mean {base}"):
        data.read("voc2012", root=base / "JPEGImages")


def test_relative_paths_say_where_they_start(outside):
    with pytest.raises(OptionError, match=f"{outside / 'mine'} does not exist.*starts at {outside}"):
        data.read("folder", root="mine")


def test_a_relative_path_that_was_meant_from_here(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    (tmp_path / "below" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(
        OptionError, match=f"starts at {tmp_path}. {tmp_path / 'below' / 'mine'} exists: pass the full path"
    ):
        data.read("folder", root="mine")


@pytest.mark.parametrize("command", ["check", "prepare", "labels"])
def test_wrong_usage_exits_with_2_and_bad_data_with_1(command, outside):
    def code(*line):
        result = CliRunner().invoke(main, ["data", command, *line])
        assert "Traceback" not in result.output
        return result.exit_code

    (outside / "photos").mkdir()
    (outside / "photos" / "labels.csv").write_text("image,split,labels\na.jpg,train,cat,dog\n")
    assert code("folder", "--root", "nowhere") == 2
    assert code("folder", "--root", "photos", "--nonsense") == 2
    assert code("folder", "--root", "photos", "-d", "min_image", "2") == 2
    assert code("folder", "--root", "photos", "-d", "min_images", "no") == 2
    assert code("folder", "--root", "photos", "-d", "unlabeled", "no") == 2
    assert code("voc2021", "--root", "photos") == 2
    assert code("folder", "--root", "photos") == 1  # a comma in place of a semicolon
    assert code("voc2012", "--root", "photos") == 1
