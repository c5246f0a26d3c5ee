"""`spml data labels`."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from spml_core.cli import main
from spml_core.data import manifest

ROOT = Path(__file__).parents[1]
TRACKED = ROOT / "data" / "draws" / "digits-single-positive-seed0.csv"


def spml(*arguments):
    return CliRunner().invoke(main, ["data", "labels", *map(str, arguments)])


# The command.


def test_the_command_draws_writes_and_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    drawn = spml("digits", "--output", tmp_path / "one.csv")
    assert drawn.exit_code == 0, drawn.output
    assert (
        manifest.digest(TRACKED) in drawn.output
        and (tmp_path / "one.csv").read_bytes() == TRACKED.read_bytes()
    )
    assert "train  4,000   1.4897               1.0000" in drawn.output
    read = spml("digits", "--import", tmp_path / "one.csv")
    assert (
        manifest.digest(TRACKED) in read.output
        and read.output.splitlines()[:5] == drawn.output.splitlines()[:5]
    )


@pytest.mark.parametrize("convention", ["partial", "em"])
def test_the_command_reads_matrices(tmp_path, convention):
    file, direct, back = (tmp_path / name for name in ("m.npy", "direct.csv", "back.csv"))
    out = spml("digits", "--observe", "[1, 1]", "--output", direct)
    assert out.exit_code == 0, out.output
    drawn = manifest.read(direct, tuple("0123456789"))
    train = [n for n, split in enumerate(drawn.splits) if split == "train"]
    order = np.random.default_rng(0).permutation(train)  # rows are found by name
    np.save(file, manifest.to_convention(drawn.observed[order], convention))
    np.save(tmp_path / "m_images.npy", np.array(drawn.ids)[order])
    asked = ["--import", file, "--images", tmp_path / "m_images.npy", "--observe", "[1, 1]", "--output", back]
    if convention != "em":
        refused = spml("digits", *asked)
        assert refused.exit_code == 1 and "Name the convention" in refused.output and not back.exists()
    result = spml("digits", *asked, "--convention", convention)
    assert result.exit_code == 0, result.output
    assert hashlib.sha256(file.read_bytes()).hexdigest() in result.output
    assert "val: not in the file, drawn by per_image, seed 0" in result.output
    assert back.read_bytes() == direct.read_bytes()


def test_the_rows_of_a_matrix_need_names(tmp_path):
    file, names = tmp_path / "m.npy", tmp_path / "names.npy"
    np.save(file, np.zeros((7, 10)))
    unnamed = spml("digits", "--import", file)
    assert unnamed.exit_code == 2 and "--images FILE.npy" in unnamed.output
    np.save(names, np.array(["a", "b"]))
    assert (
        "7 rows and 10 columns, but there are 2 image names and 10 classes"
        in spml("digits", "--import", file, "--images", names).output
    )


BAD_ARGUMENTS = [
    (["digit"], "did you mean 'digits'"),
    (["digits", "--observe", "[1]"], "observe is (num_pos, num_neg)"),
    (["digits", "--observe", "often"], "got 'often'"),
    (["digits", "--output", "x.npy"], "must end in .csv"),
    (["digits", "-d", "sed", 1], "sed"),
]


@pytest.mark.parametrize("arguments, match", BAD_ARGUMENTS)
def test_bad_arguments_of_the_command(arguments, match):
    result = spml(*arguments)
    assert result.exit_code == 2 and match in result.output


def test_a_file_that_is_not_there():
    result = spml("digits", "--import", "nowhere.csv")
    assert result.exit_code == 1 and "there is no file" in result.output


def test_a_matrix_is_no_manifest(tmp_path):
    file = tmp_path / "observed.npy"
    np.save(file, np.zeros((3, 10)))
    (tmp_path / "renamed.csv").write_bytes(file.read_bytes())
    (tmp_path / "table.csv").write_text("image,split,labels\n")
    for name in ("observed.npy", "renamed.csv"):
        result = CliRunner().invoke(main, ["train", "--manifest", str(tmp_path / name)])
        assert result.exit_code == 1 and "is a matrix, not a manifest" in result.output
        assert f"spml data labels NAME --import {name} --output labels.csv" in result.output
    other = CliRunner().invoke(main, ["train", "--manifest", str(tmp_path / "table.csv")])
    assert other.exit_code == 1 and "image,split,positive,negative" in other.output


def test_the_help_of_drop_is_true():
    from spml_core.data import labels

    text = " ".join(spml("--help").output.split())
    assert "Of 5 positives, 0 leaves 5, 0.5 leaves 3, 0.8 leaves 2, 1 leaves 1." in text
    assert [int(labels.num_kept([5], ratio)[0]) for ratio in (0, 0.5, 0.8, 1)] == [5, 3, 2, 1]


def test_options_of_training_may_stand(tmp_path):
    (tmp_path / "labels.csv").write_text("image,split,labels\na.jpg,train,cat\nb.jpg,val,dog\n")
    result = spml("folder", "--root", tmp_path, "-d", "size", 64)
    assert result.exit_code == 0 and "2 classes" in result.output, result.output


def test_what_is_there_is_not_replaced(tmp_path):
    """One such file is the labels.csv of the data set itself."""
    file = tmp_path / "labels.csv"
    file.write_text("mine")
    command = ["data", "labels", "digits", "-d", "train", "20", "-d", "val", "5", "--output", str(file)]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2 and "already exists" in refused.output and file.read_text() == "mine"
    assert CliRunner().invoke(main, [*command, "--force"]).exit_code == 0 and file.read_text() != "mine"
