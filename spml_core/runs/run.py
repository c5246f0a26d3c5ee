"""Run experiments: train them, or load what was trained.

    r = run(Experiment(dataset="digits", method="gr", seed=0))
    r.history, r.summary, r.logits("val", epoch=0)

A finished run is loaded, an interrupted one resumes from its last epoch, and any other is trained. Each run is a
directory, whose name ends in a key of everything that determines the result. It appears in one rename when it is
complete; until then, checkpoints are in `partial/<name>`. The traceback of a failed run is in `failed/<name>.txt`.
"""

import copy
import errno
import shutil
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from filelock import FileLock
from tqdm.auto import tqdm

from spml_core import data, methods, models, train
from spml_core.data import observe
from spml_core.paths import locate, write_whole
from spml_core.runs import executors, loggers
from spml_core.runs.experiment import Experiment, stream
from spml_core.runs.predictions import choosing_labels
from spml_core.runs.record import Run, to_json, write_result
from spml_core.train import checkpoints, distributed


def run(
    experiment: Experiment,
    root: str | Path = "runs",
    *,
    fresh: bool = False,
    progress: bool = True,
    on_epoch: Callable[[dict], None] | None = None,
    log: str | None = None,
) -> Run:
    """Load the run of an experiment, or train it; an interrupted run resumes from its last epoch.

    Under `fabric run` or `torchrun` all processes call this with the same experiment and train it together
    (`spml_core.train.distributed`); `root` must then be on a disk that they share.

    Args:
        root: folder of all runs; a relative path starts at the project folder.
        fresh: train again even if the run exists; the old one stays until the new one is complete.
        progress: show a progress bar, in a terminal or a notebook.
        on_epoch: called after each epoch that is trained, with the row of `Run.history` and what `train.fit` adds. An
            exception from it interrupts the training; `train.Abandoned` also deletes what was trained.
        log: send each epoch to a tracker: "csv", "tensorboard", "wandb" or "mlflow"; see `loggers`. It does not change
            the run. A run that is loaded logs nothing.

    Raises:
        ValueError: unknown method, data set, option or value, before any work.
        MissingExtra: the tracker is not installed, before any work.
        OSError: there is no room for checkpoints and results, before training.
    """
    loggers.check(log)
    return _run(experiment.resolved(), locate(root), fresh, progress, log, on_epoch)


def run_all(
    experiments: Iterable[Experiment],
    executor: Executor | None = None,
    root: str | Path = "runs",
    *,
    fresh: bool = False,
    progress: bool = True,
    log: str | None = None,
) -> list[Run]:
    """Run all experiments, here or on an executor, and return the runs in order.

    All are checked first; equal ones run once.

    Args:
        executor: of `concurrent.futures`, or one that submits like them: Dask, MPI, submitit (see docs/clusters.md).
            None = here; each data set is then loaded once, before the first training.
        root, fresh, progress, log: as for `run`.

    Raises:
        ValueError, MissingExtra: as `run`, before any work.
        RunFailures: some experiments failed; raised when all others are finished; lists each with its reason.
    """
    loggers.check(log)
    given, root = list(experiments), locate(root)
    resolved = [experiment.resolved() for experiment in given]
    names = [to_json(asdict(experiment)) for experiment in resolved]
    wanted, distinct = dict(zip(names, resolved, strict=True)), dict(zip(names, given, strict=True))
    one = partial(_run, root=root, fresh=fresh, progress=progress and executor is None, log=log)
    if executor is None:
        load = partial(_load_once, loaded={})
        one = partial(one, load=load)
        for experiment in wanted.values():
            load(experiment, root / "cache")

    shown = progress and (len(wanted) > 1 or executor is not None)  # a single training has a bar of its own
    options = {"desc": "runs", "unit": "run", "leave": False, "disable": None if shown else True}
    outcomes = executors.outcomes(one, list(wanted.values()), executor)
    found = dict(tqdm(outcomes, total=len(wanted), **options))
    results = {name: found[n] for n, name in enumerate(wanted)}
    failed = {name: error for name, error in results.items() if isinstance(error, Exception)}
    if failed:
        finished = [results[name] for name in names if name not in failed]
        lost = [distinct[name] for name in failed]
        raise executors.RunFailures(list(failed.values()), lost, finished, root / "failed")
    return [results[name] for name in names]


def _load_once(experiment: Experiment, cache: Path, loaded: dict[str, data.Dataset]) -> data.Dataset:
    """Return the data set of an experiment, from those that are `loaded`, or load it and add it to them."""
    names = ("dataset", "root", "data", "mode", "backbone")
    wanted = to_json([getattr(experiment, name) for name in names], sort_keys=True)
    if wanted not in loaded:
        loaded[wanted] = experiment.load_data(cache)
    return loaded[wanted]


def _run(
    experiment: Experiment,
    root: Path,
    fresh: bool,
    progress: bool,
    log: str | None,
    on_epoch: Callable[[dict], None] | None = None,
    load: Callable = Experiment.load_data,
) -> Run:
    """Load or train a resolved experiment. A run is complete or absent: it is made in `partial` and then moved."""
    distributed.start(experiment.accelerator)
    dataset = load(experiment, root / "cache")
    experiment = experiment.counted(dataset)
    name = f"{experiment.dataset}-{experiment.method}-s{experiment.seed}-{experiment.key(dataset)[:12]}"
    path, draft, failure = root / name, root / "partial" / name, root / "failed" / f"{name}.txt"
    first = distributed.rank() == 0
    if distributed.broadcast(path.exists()) and not fresh:
        return Run(path)
    # Another process that needs the same run waits here, then loads it, on every machine that shares the disk. Of
    # processes that train it together, the first holds the lock; the system releases it if that process is killed.
    with FileLock(root / ".locks" / f"{name}.lock") if first else nullcontext():
        if distributed.broadcast(path.exists()) and not fresh:
            return Run(path)
        if fresh and first:
            shutil.rmtree(draft, ignore_errors=True)
        try:
            with loggers.logging(log if first else None, path, asdict(experiment), on_epoch) as report:
                _write(experiment, dataset, {"progress": progress, "on_epoch": report}, draft)
        except train.Abandoned:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        except Exception as error:
            if first:
                with suppress(OSError):  # it would hide the error itself
                    write_whole(failure, "".join(traceback.format_exception(error)))
            raise
        if first:
            if path.exists():
                shutil.rmtree(path)
            (draft / "result").replace(path)
            shutil.rmtree(draft)
            failure.unlink(missing_ok=True)
        distributed.broadcast(None)  # nobody reads it before it is complete
    return Run(path)


def _write(experiment: Experiment, dataset: data.Dataset, watch: dict, draft: Path) -> None:
    """Train and write `draft/result`; until then, checkpoints are in `draft/checkpoints`.

    `watch`: the options of `train.fit` that report progress.
    """
    wall, processor = time.perf_counter(), time.process_time()
    parts = dataset.parts
    observed = observe.draw(experiment.observe, parts, dataset.classes, experiment.seed, experiment.protocol)
    fitted, first = _fit(experiment, dataset, observed, watch, draft / "checkpoints")
    test_logits = fitted.predict(parts["test"].inputs) if "test" in parts else None
    if distributed.rank() > 0:
        return
    folder = draft / "result"
    shutil.rmtree(folder, ignore_errors=True)  # left by an interruption while writing
    folder.mkdir(parents=True)
    seconds = round(time.perf_counter() - wall, 2)
    spent = {"seconds": seconds, "processor_seconds": round(time.process_time() - processor, 2)}
    write_result(folder, experiment, dataset, observed, fitted, first, test_logits, **spent)


def _fit(
    experiment: Experiment, dataset: data.Dataset, observed: dict, watch: dict, folder: Path
) -> tuple[train.Trainer, train.Trainer | None]:
    """Return the training, and its first phase if there is one."""
    parts, classes = dataset.parts, dataset.classes
    inputs, val = parts["train"].inputs, parts["val"]
    targets = choosing_labels(experiment.val_labels, observed["val"], val.full, val.known)
    shown = torch.from_numpy(observed["train"])
    title = f"{experiment.method} on {experiment.dataset}, seed {experiment.seed}"
    common, first = {"names": (parts["train"].ids, classes), **watch}, None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(stream(experiment.seed, "weights"))
        kind = (experiment.pretrained, experiment.head)
        model = models.build(experiment.backbone, experiment.mode, len(classes), inputs, *kind)
        method = methods.build(experiment.method, len(classes), len(inputs), **experiment.params)
        _check_space(folder, model, method, val.full.size, experiment)
        if experiment.linear_epochs:
            # Each process computes all features; after an interruption they are computed again.
            device = distributed.fabric(experiment.accelerator).device
            backbone = model.with_head(torch.nn.Identity()).to(device)
            seen = [torch.from_numpy(train.predict(backbone, x, device)) for x in (inputs, val.inputs)]
            own = common | {"checkpoints": folder / "linear", "title": f"{title}, head", "on_epoch": None}
            rows, val_rows = (seen[0], shown), (seen[1], *targets)
            first = train.fit(model.head, method, rows, val_rows, experiment.linear_training, **own)
            common["carried"] = copy.deepcopy(method.state_dict())
        common |= {"checkpoints": folder / "main", "title": title}
        rows, val_rows = (inputs, shown), (val.inputs, *targets)
        return train.fit(model, method, rows, val_rows, experiment.training, **common), first


def _check_space(folder: Path, model, method, val_labels: int, experiment: Experiment) -> None:
    """Raise OSError if there is no room for the result and the checkpoints.

    A checkpoint holds weights, Adam's two moments, the best weights and their average.
    """
    weights, state = (sum(t.nbytes for t in [*m.parameters(), *m.buffers()]) for m in (model, method))
    logits = 4 * val_labels * (experiment.epochs + experiment.linear_epochs + 2)
    needed = (checkpoints.KEEP + 1) * (5 * weights + 4 * state + logits) + weights + state + logits
    free = shutil.disk_usage(next(place for place in folder.parents if place.exists())).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"about {needed / 1e6:.0f} MB are needed for checkpoints and results, {free / 1e6:.0f} MB are free: make "
            "room, or choose another folder for runs (root=..., spml train --runs-dir)",
            str(folder),
        )
