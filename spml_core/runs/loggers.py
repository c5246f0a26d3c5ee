"""Send each epoch of a training to TensorBoard, a CSV file, Weights & Biases or MLflow (`spml train --log`).

A tracker is imported only if it is asked for. Logging changes no result, so it is not part of a run's key.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

from spml_core import extra
from spml_core.words import check_name

# Tracker -> what it needs; lightning-fabric, which has the first two loggers, is always there.
TRACKERS = {"csv": "lightning_fabric", "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
PROJECT = "spml"  # of Weights & Biases, and experiment of MLflow


def check(tracker: str | None) -> None:
    """Raise an error, before any training, if this tracker cannot be used; None is no tracker.

    Raises:
        ValueError: an unknown name.
        MissingExtra: its package is not installed; says how to install it.
    """
    if tracker is None:
        return
    check_name("tracker", tracker, TRACKERS)
    with extra(tracker, pinned=False):
        import_module(TRACKERS[tracker])


@contextmanager
def logging(
    tracker: str | None, path: Path, config: dict, on_epoch: Callable[[dict], None] | None
) -> Iterator[Callable[[dict], None]]:
    """Yield a function that logs the numbers of an epoch and calls `on_epoch`; the first epoch opens the tracker.

    CSV and TensorBoard files are in `logs/<name of the run>` beside the run. If a training is resumed, CSV files
    continue in the next `version_N`; TensorBoard, Weights & Biases and MLflow continue the same curves.

    Args:
        tracker: a name in `TRACKERS`, or None.
        path: of the run; its name is the name of the log.
        config: settings of the run, which Weights & Biases and MLflow show beside the curves.
    """
    logs = []
    with ExitStack() as opened:

        def report(row: dict) -> None:
            step, numbers = row["epoch"], {k: v for k, v in row.items() if k != "epoch"}
            if tracker is not None and not logs:
                log, close = OPEN[tracker](path, config, step)
                logs.append(log)
                opened.callback(close)
            for log in logs:
                log(numbers, step)
            if on_epoch is not None:
                on_epoch(row)

        yield report


# One function for each tracker: opens the log of a run whose first epoch is `step`, and returns (log, close).


def _csv(path: Path, _config: dict, _step: int):
    from lightning_fabric.loggers import CSVLogger

    logger = CSVLogger(path.parent / "logs", path.name, flush_logs_every_n_steps=1)
    return logger.log_metrics, lambda: logger.finalize("success")


def _tensorboard(path: Path, _config: dict, step: int):
    from lightning_fabric.loggers import TensorBoardLogger

    # In one folder, where the epochs that a resumed training repeats replace those before the interruption.
    logger = TensorBoardLogger(path.parent / "logs", path.name, version="", purge_step=step, flush_secs=1)
    return logger.log_metrics, lambda: logger.finalize("success")


def _wandb(path: Path, config: dict, _step: int):
    import wandb

    folder = path.parent / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(project=PROJECT, name=str(path), id=path.name, resume="allow", config=config, dir=folder)
    return run.log, run.finish


def _mlflow(path: Path, config: dict, step: int):
    from mlflow import MlflowClient, set_experiment

    client, experiment = MlflowClient(), set_experiment(PROJECT).experiment_id
    # A training that starts with its first epoch is a new run; a resumed one continues the last of its name.
    same = client.search_runs([experiment], f"attributes.run_name = '{path}'") if step > 1 else []
    run = (same or [client.create_run(experiment, run_name=str(path))])[0].info.run_id

    def log(numbers: dict, epoch: int) -> None:
        for name, value in numbers.items():
            client.log_metric(run, name, value, step=epoch)

    if not same:
        for name, value in config.items():
            client.log_param(run, name, value)
    return log, lambda: client.set_terminated(run)


OPEN = {"csv": _csv, "tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
