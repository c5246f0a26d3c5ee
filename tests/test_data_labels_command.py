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
    assert "train  4,000   1.4897              1.0000" in drawn.output
    read = spml("digits", "--import", tmp_path / "one.csv")
    assert (
        manifest.digest(TRACKED) in read.output
        and read.output.splitlines()[:5] == drawn.output.splitlines()[:5]
    )


@pytest.mark.parametrize("convention", ["partial", "em"])
def test_the_command_exchanges_matrices(tmp_path, convention):
    file, back = tmp_path / "m.npy", tmp_path / "back.csv"
    out = spml("digits", "--num-neg", 1, "--output", file, "--convention", convention)
    assert out.exit_code == 0, out.output
    names = np.load(tmp_path / "m_images.npy")
    order = np.random.default_rng(0).permutation(len(names))  # rows are found by name
    np.save(file, np.load(file)[order])
    np.save(tmp_path / "m_images.npy", names[order])
    asked = ["--import", file, "--images", tmp_path / "m_images.npy", "--num-neg", 1, "--output", back]
    if convention != "em":
        refused = spml("digits", *asked)
        assert refused.exit_code == 2 and "Name the convention" in refused.output and not back.exists()
    result = spml("digits", *asked, "--convention", convention)
    assert result.exit_code == 0, result.output
    assert hashlib.sha256(file.read_bytes()).hexdigest() in result.output
    assert "val: not in the file, drawn by per_image, seed 0" in result.output
    spml("digits", "--num-neg", 1, "--output", tmp_path / "direct.csv")
    assert back.read_bytes() == (tmp_path / "direct.csv").read_bytes()


def test_the_command_needs_names_where_rows_do_not_fit(tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((7, 10)))
    assert "7 rows, the data set 4000 train images" in spml("digits", "--import", tmp_path / "m.npy").output
    np.save(tmp_path / "m.npy", np.zeros((4000, 9)))
    assert "9 classes, the data set 10" in spml("digits", "--import", tmp_path / "m.npy").output


BAD_ARGUMENTS = [
    (["digit"], "did you mean 'digits'"),
    (["digits", "--drop", 0.5, "--num-pos", 1], "leave out --num-pos"),
    (["digits", "--weights", "frequency", "--num-neg", 1], "leave out --num-neg"),
    (["digits", "--output", "x.txt"], "ends in .csv"),
    (["digits", "--output", "x.npy", "--convention", "hill"], "unknown convention 'hill'"),
    (["digits", "--import", "nowhere.csv"], "there is no file"),
    (["digits", "-d", "sed", 1], "sed"),
]


@pytest.mark.parametrize("arguments, match", BAD_ARGUMENTS)
def test_bad_arguments_of_the_command(arguments, match):
    result = spml(*arguments)
    assert result.exit_code == 2 and match in result.output
