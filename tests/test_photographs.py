"""`benchmarks.photographs` on a few pictures: results are written as they come, and nothing is trained twice."""

import pandas as pd
import pytest
from click.testing import CliRunner
from miniatures import write_folder

from benchmarks import photographs


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    """Run the benchmark on small pictures; returns its output, the written rows, and the names of all runs."""
    monkeypatch.setitem(photographs.DATA, "min_images", 1)
    monkeypatch.setitem(photographs.FINETUNING, "data", photographs.DATA | {"size": 32})
    folder, runs, file = write_folder(tmp_path / "my_photos", 64), tmp_path / "runs", tmp_path / "results.csv"
    fixed = ["--jobs", "1", "--runs-dir", str(runs), "--output", str(file)]

    def benchmark(*arguments, root=folder):
        given = ["--root", str(root)] if root else []
        done = CliRunner().invoke(photographs.main, [*given, *fixed, *arguments])
        assert done.exit_code == 0, done.output + repr(done.exception)
        return done.output, pd.read_csv(file), sorted(path.name for path in runs.glob("folder-*"))

    return benchmark


@pytest.mark.slow
def test_frozen_features(benchmark):
    small = ("--methods", "an,pr", "--trials", "1", "--epochs", "1")
    output, rows, runs = benchmark(*small, "--seeds", "2")
    assert list(zip(rows.setting, rows.method, rows.seed, strict=True)) == [
        ("published", "an", 0), ("published", "an", 1), ("published", "pr", 0), ("published", "pr", 1),
        ("searched", "an", 0), ("searched", "an", 1),
    ]  # fmt: skip
    assert len(runs) == len(rows)  # the trial is one of those that the choice is trained with
    assert set(rows.dataset) == {"my_photos"} and rows.test_map.between(0, 100).all()
    assert "| method | published | searched |" in output and "| AN |" in output and "±" in output
    again, same, trained = benchmark(*small, "--seeds", "2")
    assert same.equals(rows) and trained == runs and again.splitlines()[-10:] == output.splitlines()[-10:]
    assert benchmark(root=None)[0].strip() in output  # the tables alone


@pytest.mark.slow
def test_end_to_end_chooses_one_rate_for_all(benchmark):
    output, rows, _ = benchmark("--mode", "end_to_end", "--methods", "an,em", "--epochs", "1", "--seeds", "1")
    judged = rows[rows.method.isin(photographs.JUDGES)].groupby("setting").val_map.mean()
    assert set(judged.index) == {f"lr {rate:g}" for rate in photographs.RATES}
    assert set(rows[rows.method == "em"].setting) == {judged.idxmax()}
    assert f"| method | {judged.idxmax()} | minutes a run |" in output
    assert "GR > EM > AN: not judged" in output


def test_an_unknown_method_is_refused():
    done = CliRunner().invoke(photographs.main, ["--methods", "an,grr"])
    assert done.exit_code == 2 and "no grr in bce, gr" in done.output
