"""Experiment -> Run: what a training run is, and the directory that holds it.

    r = run(Experiment(dataset="digits", method="gr", seed=0))
    r.history, r.summary, r.logits("val", epoch=0)

A run that exists is loaded, one that does not is trained, one that was interrupted goes on from its last epoch. The
directory's name ends in a key of everything that determines the result, and the directory appears in one rename when it
is complete; until then checkpoints lie in `partial/<name>`. The traceback of one that failed is `failed/<name>.txt`.
"""

from __future__ import annotations

import copy
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from tqdm.auto import tqdm

from spml_core import data, methods, metrics, models, train
from spml_core.data import observe as scheme
from spml_core.paths import locate
from spml_core.runs import executors, locks, symptoms
from spml_core.runs.experiment import DEFAULTS, FORMAT, Experiment, stream
from spml_core.runs.protocols import protocol
from spml_core.runs.record import Run, table, to_json, versions, write_failure, write_json, write_result
from spml_core.train import checkpoints, distributed
from spml_core.train.checkpoints import Checkpoints

__all__ = ["DEFAULTS", "FORMAT", "Experiment", "Run", "protocol", "run", "run_all", "table", "versions"]


def run(
    experiment: Experiment,
    root: str | Path = "runs",
    *,
    fresh: bool = False,
    progress: bool = True,
    on_epoch: Callable[[dict], None] | None = None,
) -> Run:
    """Load the run of an experiment, or train it, from its last epoch if it was interrupted.

    Under `fabric run` or `torchrun` all processes call this with the same experiment and train it together
    (`spml_core.train.distributed`); `root` is then on a disk that all of them see.

    Args:
        root: folder of all runs; a relative one lies in the project folder.
        fresh: train again even if the run exists; the old one stays until the new one is complete.
        progress: show a bar, where there is a terminal or a notebook.
        on_epoch: called with the row of `Run.history` after each epoch that is trained. What it raises interrupts the
            training; `train.Abandoned` deletes what was trained, too.

    Raises:
        ValueError: unknown method, data set, option or value, before any work.
        OSError: there is no room for checkpoints and results, before training.
    """
    return _run(experiment.resolved(), locate(root), fresh, progress, Experiment.load_data, on_epoch)


def run_all(
    experiments: Iterable[Experiment],
    executor: Executor | None = None,
    root: str | Path = "runs",
    *,
    fresh: bool = False,
    progress: bool = True,
) -> list[Run]:
    """`run` for each experiment, in order, here or by an executor. All are checked first; equal ones run once.

    Args:
        executor: of `concurrent.futures`, or one that submits like them: Dask, MPI, submitit (see docs/clusters.md).
            None = here, where a data set is loaded once, before the first training, for all that share it.

    Raises:
        ValueError: as `run`, before any work.
        RunFailures: some experiments failed; raised when all others are finished, lists each with its reason.
    """
    wanted, root = list(experiments), locate(root)
    names = [to_json(dataclasses.asdict(experiment.resolved())) for experiment in wanted]
    distinct = dict(zip(names, wanted, strict=True))
    if executor is None:
        load = _load_once()
        for experiment in distinct.values():
            load(experiment.resolved(), root / "cache")

        def one(experiment: Experiment) -> Run:
            return _run(experiment.resolved(), root, fresh, progress, load)

    else:
        one = partial(run, root=root, fresh=fresh, progress=False)

    shown = progress and (len(distinct) > 1 or executor is not None)  # a single training has a bar of its own
    options = {"desc": "runs", "unit": "run", "leave": False, "disable": None if shown else True}
    found = {}
    with tqdm(total=len(distinct), **options) as bar:
        for n, outcome in executors.outcomes(one, list(distinct.values()), executor):
            found[n] = outcome
            bar.update()
    results = {name: found[n] for n, name in enumerate(distinct)}
    failed = {name: error for name, error in results.items() if isinstance(error, Exception)}
    if failed:
        finished = [results[name] for name in names if name not in failed]
        lost = [distinct[name] for name in failed]
        raise executors.failures(lost, list(failed.values()), finished, root / "failed")
    return [results[name] for name in names]


def _load_once() -> Callable[[Experiment, Path], data.Dataset]:
    loaded = {}

    def load(experiment: Experiment, cache: Path) -> data.Dataset:
        names = ("dataset", "root", "data", "mode", "backbone")
        wanted = to_json([getattr(experiment, name) for name in names], sort_keys=True)
        if wanted not in loaded:
            loaded[wanted] = experiment.load_data(cache)
        return loaded[wanted]

    return load


def _run(
    experiment: Experiment,
    root: Path,
    fresh: bool,
    progress: bool,
    load: Callable,
    on_epoch: Callable[[dict], None] | None = None,
) -> Run:
    distributed.start(experiment.accelerator)
    dataset = load(experiment, root / "cache")
    name = f"{experiment.dataset}-{experiment.method}-s{experiment.seed}-{experiment.key(dataset)[:12]}"
    path, draft = root / name, root / "partial" / name
    if distributed.broadcast(path.exists()) and not fresh:
        return Run(path)
    # Another process that asks for the same run waits here, then loads it. Of those that train it together, the first
    # has the lock.
    with locks.alone(root, name) if distributed.rank() == 0 else nullcontext():
        if distributed.broadcast(path.exists()) and not fresh:
            return Run(path)
        if fresh and distributed.rank() == 0:
            shutil.rmtree(draft, ignore_errors=True)
        try:
            _train(experiment, dataset, draft, progress, on_epoch)
            if distributed.rank() == 0:
                if path.exists():
                    shutil.rmtree(path)
                (draft / "result").replace(path)
                shutil.rmtree(draft)
                (root / "failed" / f"{name}.txt").unlink(missing_ok=True)
        except train.Abandoned:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        except Exception as error:
            if distributed.rank() == 0:
                write_failure(root / "failed" / f"{name}.txt", error)
            raise
        finally:
            if distributed.rank() == 0:
                _remove_empty(draft)
        distributed.broadcast(None)  # nobody reads before it is there
    return Run(path)


def _remove_empty(draft: Path) -> None:
    """What an interruption before the first checkpoint leaves; what another process is at is not touched."""
    own = [*sorted(draft.rglob("*/"), reverse=True), draft]
    for path in (*own, draft.parent, draft.parent.parent / "failed"):
        with suppress(OSError):  # it is not empty, or not there
            path.rmdir()


def _train(
    experiment: Experiment,
    dataset: data.Dataset,
    draft: Path,
    progress: bool,
    on_epoch: Callable[[dict], None] | None,
) -> None:
    """Train and write `draft/result`; what an interruption may need lies in `draft/checkpoints` meanwhile."""
    wall, processor = time.perf_counter(), time.process_time()
    parts = dataset.parts
    observed = scheme.draw(experiment.observe, parts, dataset.classes, experiment.seed, experiment.protocol)
    fitted, first = _fit(experiment, dataset, observed, draft / "checkpoints", progress, on_epoch)
    scores = fitted.predict(parts["test"].inputs) if "test" in parts else None
    if distributed.rank() > 0:
        return
    folder = draft / "result"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted while writing
    checkpoints.make(folder)
    write_result(experiment, dataset, observed, fitted, scores, folder)
    if first is not None:
        pd.DataFrame(first.history).to_csv(folder / "history_linear.csv", index=False)
    test = (
        None if scores is None else metrics.average_precision(scores, parts["test"].full, parts["test"].known)
    )
    summary = {
        "val_map": fitted.history[fitted.best_epoch]["val_map"],
        "test_map": None if test is None or np.isnan(test.mean) else 100 * test.mean,
        "test_map_zero_filled": None if test is None else 100 * test.mean_zero_filled,
        "test_undefined_classes": None if test is None else [dataset.classes[c] for c in test.undefined],
        "definition": metrics.STEP,
        "best_epoch": fitted.best_epoch,
        "val_labels": experiment.val_labels,
        "stop_rule": "never"
        if experiment.stop_drop is None
        else f"more than {experiment.stop_drop:g} mAP points below the best",
        "tuned_on": experiment.tuned_on,
        "linear_val_map": None if first is None else first.history[first.best_epoch]["val_map"],
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "device": fitted.device,
        "precision": fitted.precision,
        "processes": distributed.world_size(),
        "data": dataset.notes
        | {"fingerprint": dataset.fingerprint, "sizes": {k: len(v) for k, v in parts.items()}},
        "warnings": symptoms.of(fitted, experiment, len(observed["train"]), first),
        "manifest_sha256": scheme.write_manifest(folder / "labels.csv", parts, observed, dataset.classes),
        "versions": versions(),
    }
    write_json(folder / "summary.json", summary)


def _fit(
    experiment: Experiment,
    dataset: data.Dataset,
    observed: dict,
    folder: Path,
    progress: bool,
    on_epoch: Callable[[dict], None] | None,
) -> tuple[train.Fitted, train.Fitted | None]:
    """The training, and its first phase if there is one."""
    parts, classes = dataset.parts, dataset.classes
    val = parts["val"]
    targets = (val.full, val.known)
    if experiment.val_labels == "observed":
        targets = ((observed["val"] == 1).astype(np.int8), None)
    shown = torch.from_numpy(observed["train"])
    common = {"names": train.Names(parts["train"].ids, classes), "progress": progress}
    title = f"{experiment.method} on {experiment.dataset}, seed {experiment.seed}"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(stream(experiment.seed, "weights"))
        inputs = parts["train"].inputs
        model = models.build(
            experiment.backbone,
            experiment.mode,
            len(classes),
            inputs,
            experiment.pretrained,
            experiment.head,
        )
        method = methods.build(experiment.method, len(classes), len(inputs), **experiment.params)
        if distributed.rank() == 0:
            checkpoints.check_space(folder, _bytes_needed(model, method, val.full.size, experiment))
        first = None
        if experiment.linear_epochs:
            seen = _frozen_features(model, parts, experiment, folder)
            first = train.fit(
                model.head,
                method,
                (seen["train"], shown),
                (seen["val"], *targets),
                experiment.linear_training,
                checkpoints=Checkpoints(folder / "linear"),
                title=f"{title}, head",
                **common,
            )
        fitted = train.fit(
            model,
            method,
            (inputs, shown),
            (val.inputs, *targets),
            experiment.training,
            checkpoints=Checkpoints(folder / "main"),
            carried=None if first is None else copy.deepcopy(method.state_dict()),
            title=title,
            on_epoch=on_epoch,
            **common,
        )
    return fitted, first


def _frozen_features(model, parts: dict, experiment: Experiment, folder: Path) -> dict[str, torch.Tensor]:
    """(N, D) float32 of train and val, made once; an interrupted training finds them again."""
    file, device = folder / "features.safetensors", distributed.fabric(experiment.accelerator).device
    if distributed.rank() == 0 and not file.exists():
        backbone = models.Features(model).to(device)
        seen = {
            k: torch.from_numpy(train.predict(backbone, parts[k].inputs, device)) for k in ("train", "val")
        }
        checkpoints.make(folder)
        save_weights(seen, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    distributed.broadcast(None)
    return load_weights(file)


def _bytes_needed(model, method, val_labels: int, experiment: Experiment) -> int:
    """Upper estimate: checkpoints with weights, Adam's two moments, best weights and average; then the result."""
    weights, state = (checkpoints.size_of([*m.parameters(), *m.buffers()]) for m in (model, method))
    logits = 4 * val_labels * (experiment.epochs + experiment.linear_epochs + 2)
    return (checkpoints.KEEP + 1) * (5 * weights + 4 * state + logits) + weights + state + logits
