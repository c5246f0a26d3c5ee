"""What `spml train` prints of data and results."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from spml_core.cli import main

OPTIONS = ["--mode", "end_to_end", "--backbone", "digits_cnn", "--epochs", "1", "-d", "size", "32"]


@pytest.fixture
def train(tmp_path):
    """`train(rows, *options)` writes 30 pictures and labels.csv with these rows, trains, and returns the output."""

    def run(rows, *options):
        for n in range(30):
            pixels = np.random.default_rng(n).integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{n:02d}.png")
        (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *rows]) + "\n")
        line = ["train", "--dataset", "folder", "--root", str(tmp_path), "--runs-dir", str(tmp_path / "runs")]
        result = CliRunner().invoke(main, [*line, *OPTIONS, *options])
        assert result.exit_code == 0, result.output
        return result.output

    return run


def table_of(output):
    lines = output.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("method"))
    return [line.split("  ") for line in lines[start : start + 2]]


def test_without_test_images_the_validation_map_is_shown(train):
    rows = [
        f"{n:02d}.png,{'val' if n > 19 else 'train'},{'ab'[n % 2]}{';c' if n == 3 else ''}" for n in range(30)
    ]
    output = train(rows)
    head, row = ([cell.strip() for cell in line if cell.strip()] for line in table_of(output))
    assert head == ["method", "val mAP", "seeds", "best epochs"] and 0 < float(row[1]) <= 100
    assert "val: 1 of 3 classes has no AP (no positive, or no label that is known to be absent): c." in output
    assert "No test images" in output


def test_undefined_classes_of_both_splits_are_said(train):
    rows = [f"{n:02d}.png,{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n in range(30)]
    rows[0] += ";c;d"
    rows[1] += ";c"
    output = train(rows, "--seed", "0", "--seed", "1")
    head, row = ([cell.strip() for cell in line if cell.strip()] for line in table_of(output))
    assert head == ["method", "val mAP", "test mAP", "seeds", "best epochs"]
    assert all("±" in cell for cell in row[1:3]) and row[3] == "2"
    assert "Mean ± standard deviation over the seeds." in output
    assert "val: 1 of 4 classes has no AP (no positive, or no label that is known to be absent): d." in output
    assert (
        "test: 2 of 4 classes have no AP (no positive, or no label that is known to be absent): c, d."
        in output
    )


def test_methods_are_compared_with_the_first(train):
    rows = [f"{n:02d}.png,{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n in range(30)]
    output = train(rows, "--method", "gr", "--method", "em", *["--seed", "0", "--seed", "1"] * 2)
    head, first, second = (line for line in output.splitlines() if line.startswith(("method", "gr", "em")))
    assert head.endswith("minus gr") and first.endswith("--")
    assert re.search(r"  [-+][\d.]+ \[-?[\d.]+, [\d.]+\]$", second)
    assert "Differences of test mAP are paired by seed" in output


def test_training_images_with_one_label_may_have_more(train):
    rows = [f"{n:02d}.png,{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n in range(30)]
    with pytest.warns(UserWarning) as told:
        train([row + ";b" * (",train" not in row and n % 2 == 0) for n, row in enumerate(rows)])
    assert any(
        "each training image has one label, but val and test images may have several" in str(w.message)
        for w in told
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train(rows)


def test_what_was_read_is_said(train):
    rows = [f"{n:02d}.png,{('train', 'val', 'test')[n % 3]},{'ab'[n // 3 % 2]}" for n in range(30)]
    output = train(rows)
    assert (
        "folder: 10 train, 10 val, 10 test images; 2 classes; decoded from files at 32 pixels, into memory; "
        in output
    )


def test_similar_classes_are_one_line_of_warning(tmp_path, train):
    rows = [f"{n:02d}.png,{('train', 'val')[n % 2]},{('Cat', 'cat')[n // 2 % 2]}" for n in range(30)]
    with pytest.warns(UserWarning, match="'Cat' / 'cat'"):
        train(rows)


def test_a_warning_is_a_line_of_text(capsys):
    import subprocess
    import sys

    code = """
import click, warnings
from spml_core.cli import main
@main.command()
def warn():
    warnings.warn("two of them")
main(["warn"])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stderr == "Warning: two of them\n"


def test_a_terminal_without_a_width_gets_a_bar(tmp_path):
    """Without a width, tqdm would draw nothing."""
    pytest.importorskip("pty")
    command = [sys.executable, "-c", "from spml_core.cli import main; main()", "train", "--epochs", "1"]
    for split in ("train", "val", "test"):
        command += ["-d", split, "40"]
    # in a process of its own, since pty.spawn forks, and torch has threads here
    code = f"import pty, sys; sys.exit(pty.spawn({[*command, '--runs-dir', str(tmp_path)]!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, stdin=subprocess.DEVNULL, text=True
    )
    assert "batch/s" in done.stdout, done
