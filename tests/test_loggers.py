"""`--log` sends each epoch to a tracker that is imported only when asked for, and changes nothing else."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from spml_core import MissingExtra
from spml_core.cli import main
from spml_core.runs import Experiment, loggers, run, run_all

FIELDS = {"data": {"train": 60, "val": 30, "test": 30}, "epochs": 3}
NUMBERS = {"train_loss", "val_map", "seconds", "learning_rate"}


def train(root, log, **more):
    return run(Experiment(**FIELDS | more), root, progress=False, log=log)


def events(folder: Path) -> dict:
    """Return what TensorBoard itself reads from a log: name -> [(epoch, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    return {name: [(e.step, e.value) for e in read.Scalars(name)] for name in read.Tags()["scalars"]}


@pytest.fixture
def interrupted(tmp_path):
    """Return a folder in which a training has been interrupted after its second epoch."""

    def interrupt(log):
        def stop(row):
            if row["epoch"] == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(Experiment(**FIELDS), tmp_path, progress=False, log=log, on_epoch=stop)
        return tmp_path

    return interrupt


def test_tensorboard_reads_every_epoch_of_an_interrupted_training_once(interrupted):
    root = interrupted("tensorboard")
    found = train(root, "tensorboard")
    logged = events(root / "logs" / found.path.name)
    assert logged.keys() == NUMBERS
    history = found.history.set_index("epoch").loc[1:]
    for name in NUMBERS - {"learning_rate"}:
        assert [epoch for epoch, _ in logged[name]] == [1, 2, 3]
        assert [value for _, value in logged[name]] == pytest.approx(history[name].tolist(), rel=1e-6)
    assert [value for _, value in logged["learning_rate"]] == pytest.approx([3e-3] * 3)


def test_csv_keeps_what_was_logged_before_an_interruption(interrupted):
    root = interrupted("csv")
    found = train(root, "csv")
    files = sorted((root / "logs" / found.path.name).glob("*/metrics.csv"))
    rows = [row for file in files for row in csv.DictReader(file.open())]
    assert [int(row["step"]) for row in rows] == [1, 2, 3] and len(files) == 2
    assert [float(row["val_map"]) for row in rows] == pytest.approx(found.history["val_map"][1:].tolist())


def test_the_learning_rate_follows_its_schedule(tmp_path):
    seen = []
    run(
        Experiment(**FIELDS, schedule="one_cycle", batch_size=6),
        tmp_path,
        progress=False,
        on_epoch=seen.append,
    )
    rates = [row["learning_rate"] for row in seen]
    assert rates[0] > rates[1] > rates[2] and rates[2] < 1e-4


def test_a_log_is_no_part_of_the_run(tmp_path):
    plain, logged = train(tmp_path / "a", None), train(tmp_path / "b", "csv")
    assert plain.path.name == logged.path.name and plain.config == logged.config
    assert plain.history["val_map"].equals(logged.history["val_map"])
    assert list(plain.history) == list(logged.history)
    for file in (tmp_path / "b" / "logs").rglob("metrics.csv"):
        file.unlink()
    assert train(tmp_path / "b", "csv").path == logged.path  # loaded, so nothing is logged
    assert not list((tmp_path / "b" / "logs").rglob("metrics.csv"))


def test_each_of_several_runs_has_its_own_log(tmp_path):
    runs = run_all(
        [Experiment(**FIELDS, seed=seed) for seed in (0, 1)], root=tmp_path, progress=False, log="csv"
    )
    assert {file.parts[-3] for file in (tmp_path / "logs").rglob("metrics.csv")} == {
        r.path.name for r in runs
    }


def test_no_tracker_is_imported_unless_asked(tmp_path):
    code = f"""
import json, sys
from spml_core.runs import Experiment, run
run(Experiment(**{FIELDS}), {str(tmp_path)!r}, progress=False)
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in ("tensorboard", "wandb", "mlflow")
                  or name == "torch.utils.tensorboard"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named_before_training(tmp_path, tracker, monkeypatch):
    monkeypatch.setitem(sys.modules, tracker, None)  # as if it were not installed
    arguments = ["train", "--log", tracker, "--runs-dir", str(tmp_path), "--epochs", "1", "-d", "train", "60"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1 and f"pip install '.[{tracker}]'" in result.output
    assert not list(tmp_path.iterdir())
    with pytest.raises(MissingExtra, match=tracker):
        run_all([Experiment(**FIELDS)], root=tmp_path, log=tracker)


def test_an_unknown_tracker(tmp_path):
    with pytest.raises(ValueError, match=r"did you mean 'tensorboard'\?"):
        train(tmp_path, "tensorbord")
    help = CliRunner().invoke(main, ["train", "--help"]).output
    assert "|".join(loggers.TRACKERS) in help and loggers.TRACKERS.keys() == loggers.OPEN.keys()


def test_mlflow_continues_an_interrupted_training(interrupted, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    found = train(interrupted("mlflow"), "mlflow")
    client = mlflow.MlflowClient()
    (logged,) = client.search_runs([client.get_experiment_by_name("spml").experiment_id])
    assert logged.info.run_name == str(found.path) and logged.data.params["method"] == "gr"
    assert [each.step for each in client.get_metric_history(logged.info.run_id, "val_map")] == [1, 2, 3]


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    found = train(tmp_path, "wandb")
    (file,) = (tmp_path / "logs").rglob("*.wandb")
    assert found.path.name in file.name and b"val_map" in file.read_bytes()


def test_the_command_says_what_it_did_not_log(tmp_path):
    command = ["train", "--runs-dir", str(tmp_path), "--epochs", "1"]
    command += [word for name, value in FIELDS["data"].items() for word in ("-d", name, str(value))]
    spml = CliRunner()
    assert "not logged" not in spml.invoke(main, [*command, "--log", "csv"]).output
    again = spml.invoke(main, [*command, "--seed", "0", "--seed", "1", "--log", "csv"]).output
    assert "1 of 2 runs is not logged" in again and "--force" in again
    assert len(list((tmp_path / "logs").rglob("metrics.csv"))) == 2
