"""Experiment -> Run: what a training run is, and the directory that holds it.

    r = run(Experiment(dataset="digits", method="gr", seed=0))
    r.history, r.summary, r.logits("val", epoch=0)

A run that exists is loaded, one that does not is trained, one that was interrupted goes on from its last epoch. The
directory's name ends in a key of everything that determines the result, and the directory appears in one rename when it
is complete; until then checkpoints lie in `partial/<name>`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from tqdm.auto import tqdm

from spml_core import checkpoints, data, distributed, methods, metrics, models, train
from spml_core.checkpoints import Checkpoints
from spml_core.data import labels, scheme
from spml_core.paths import locate
from spml_core.protocols import protocol
from spml_core.records import Run, table, to_json, versions, write_json, write_result

__all__ = ["DEFAULTS", "Experiment", "Run", "protocol", "run", "run_all", "table", "versions"]

# Part of every key: raise it when a change of trainer, models or label draw changes results. Methods and data sets
# need no such care, since the key covers their code and content.
FORMAT = 2
# Where and how fast a training runs: the same experiment, up to rounding.
NOT_IN_KEY = ("root", "accelerator", "threads", "compile", "channels_last", "tf32", "tuned_on")

_PLAIN = {"pretrained": False, "flip": False}
DEFAULTS = {
    "digits": {"mode": "end_to_end", "backbone": "digits_cnn", "batch_size": 64, "lr": 3e-3, "threads": 1}
    | _PLAIN,
    "folder": {
        "mode": "linear",
        "backbone": "tf_efficientnet_lite0",
        "batch_size": 16,
        "lr": 1e-3,
        "threads": 1,
    }
    | _PLAIN,
}
# GR's Table 6: a pretrained ResNet-50 at 448 pixels, Adam without weight decay. Batch and rate by validation.
_PAPER = {
    "mode": "end_to_end",
    "backbone": "resnet50.tv_in1k",
    "pretrained": True,
    "flip": True,
    "batch_size": 16,
    "lr": 1e-5,
}
DEFAULTS |= {
    "voc2012": _PAPER | {"batch_size": 8},
    "coco2014": _PAPER,
    "nuswide": _PAPER,
    "cub200": _PAPER | {"batch_size": 8, "lr": 5e-5},
    "openimages": _PAPER,
}
VAL_LABELS = ("clean", "observed")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that determines a training run. None means: the data set's own default (`DEFAULTS`).

    Args:
        dataset: one of `data.DATASETS`; `root` is its folder, `data` further options of `spml_core.data.<name>.load`.
        method: a registered name; `params` are its hyperparameters.
        seed: of label draw, initial weights and order of examples (three separate streams).
        observe: (num_pos, num_neg) labels shown per image, -1 = all. None = what the method asks for: (1, 0) for all
            but oracles. Or {"drop": 0.8}, Hill's missing ratio; {"weights": "inverse_frequency"}, a biased draw;
            {"manifest": path}, the labels of a file, whose SHA-256 is part of the key. See `data.scheme`.
        protocol: of the label draw, "per_image" or "cole2021" (see `labels.observe`).
        val_labels: "clean" or "observed": the validation labels that choose the epoch.
        mode: "end_to_end", or "linear" on frozen features of `backbone`.
        pretrained: start "end_to_end" from the ImageNet weights of `backbone` (see `models.build`).
        linear_epochs: a first phase, before the `epochs` end to end: the head alone, on features that the backbone,
            in evaluation mode, makes once (Cole et al., CVPR 2021, "LinearInit"). Its best head and the method's state
            of that epoch, such as ROLE's label estimates, are carried over. Each phase counts its own epochs. There are
            no flips in it, and the rate is `linear_lr` (None = `lr` times `head_lr_factor`).
        head_lr_factor: None = 10 for a pretrained backbone (GR's released code), else 1.
        tuned_on: a note for the record: on what settings were chosen, e.g. "val, clean"; None = not tuned.
        epochs, batch_size, accumulate, lr, weight_decay, schedule, ema, linear_init, flip, stop_drop, threads,
            precision, accelerator, tf32, channels_last, compile: see `train.Training`.
    """

    dataset: str = "digits"
    method: str = "gr"
    params: dict = field(default_factory=dict)
    seed: int = 0
    root: str | None = None
    data: dict = field(default_factory=dict)
    observe: tuple[int, int] | dict | None = None
    protocol: str = "per_image"
    val_labels: str = "clean"
    mode: str | None = None
    backbone: str | None = None
    pretrained: bool | None = None
    epochs: int = 10
    linear_epochs: int = 0
    linear_lr: float | None = None
    linear_init: int = 0
    batch_size: int | None = None
    accumulate: int = 1
    lr: float | None = None
    head_lr_factor: float | None = None
    weight_decay: float = 0.0
    schedule: str = "constant"
    ema: float | None = None
    flip: bool | None = None
    stop_drop: float | None = None
    threads: int | None = None
    precision: str = "auto"
    accelerator: str = "auto"
    tf32: bool = True
    channels_last: bool = True
    compile: bool = False
    tuned_on: str | None = None

    def resolved(self) -> Experiment:
        """The same with every default filled in.

        Raises:
            ValueError: a name, option or value that cannot be; raised before any work.
        """
        data.check_name(self.dataset)
        # The number of classes is not known yet: large enough for any expected number of positives.
        chosen = methods.build(self.method, num_classes=10_000, num_examples=1, **self.params)
        if self.val_labels not in VAL_LABELS:
            raise ValueError(f"unknown val_labels {self.val_labels!r}: use one of {', '.join(VAL_LABELS)}")
        if self.protocol not in labels.PROTOCOLS:
            raise ValueError(f"unknown protocol {self.protocol!r}: use one of {', '.join(labels.PROTOCOLS)}")
        # A linear head on frozen features is the same task on every data set of images.
        own = "folder" if self.mode == "linear" and self.dataset != "digits" else self.dataset
        filled = {k: v for k, v in DEFAULTS.get(own, {}).items() if getattr(self, k) is None}
        observe = chosen.observes if self.observe is None else self.observe
        if "root" in self.data:
            raise ValueError(
                "data holds 'root': give it as Experiment(root=...), so that it stays out of the key"
            )
        plain = {
            "params": chosen.hyperparameters,
            "data": json.loads(to_json(self.data)),
            "observe": scheme.check(observe),
        }
        full = dataclasses.replace(self, **plain, **filled)
        if full.head_lr_factor is None:
            full = dataclasses.replace(full, head_lr_factor=10.0 if full.pretrained else 1.0)
        models.check(full.backbone, full.mode, full.pretrained)
        full._check_phases()
        if full.dataset == "digits" and full.mode == "linear":
            raise ValueError("dataset 'digits' has no frozen features: mode 'linear' needs images")
        if full.mode == "linear" and full.backbone == "digits_cnn":
            raise ValueError(
                "backbone 'digits_cnn' has no frozen features: use mode 'end_to_end', or a timm model"
            )
        full.training  # noqa: B018  checks the numbers
        chosen.check(full.epochs)
        if full.linear_epochs:
            chosen.check(full.linear_epochs)
        return full

    def _check_phases(self) -> None:
        if not isinstance(self.linear_epochs, Integral) or self.linear_epochs < 0:
            raise ValueError(f"linear_epochs must be a whole number >= 0, got {self.linear_epochs!r}")
        if self.linear_lr is not None and not (isinstance(self.linear_lr, Real) and self.linear_lr > 0):
            raise ValueError(f"linear_lr must be a number > 0, or None, got {self.linear_lr!r}")
        for name in ("pretrained", "flip", "linear_epochs", "linear_init"):
            if self.mode == "linear" and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} needs mode 'end_to_end': in mode 'linear' features are frozen, "
                    "pretrained, and made once"
                )

    @property
    def training(self) -> train.Training:
        names = [f.name for f in dataclasses.fields(train.Training) if f.name != "seed"]
        return train.Training(seed=_stream(self.seed, "order"), **{k: getattr(self, k) for k in names})

    @property
    def linear_training(self) -> train.Training:
        """The first phase, of `linear_epochs` on frozen features."""
        lr = self.lr * self.head_lr_factor if self.linear_lr is None else self.linear_lr
        plain = {"head_lr_factor": 1.0, "linear_init": 0, "flip": False}
        return dataclasses.replace(self.training, epochs=self.linear_epochs, lr=lr, **plain)

    def load_data(self, cache: Path) -> data.Dataset:
        """The data set of a resolved experiment; `cache` is the folder for frozen features."""
        options = dict(self.data) | ({} if self.root is None else {"root": self.root})
        if self.dataset != "digits":
            options |= {"backbone": self.backbone if self.mode == "linear" else None, "cache_dir": cache}
        return data.load(self.dataset, **options)

    def key(self, dataset: data.Dataset) -> str:
        """SHA-256 of a resolved experiment: fields, content of the data, code of the method. Not: where things lie."""
        fields = dataclasses.asdict(self) | dict.fromkeys(NOT_IN_KEY)
        if "manifest" in self.observe:
            fields["observe"] = {"manifest": self.observe["sha256"]}
        parts = [FORMAT, fields, dataset.fingerprint, methods.source_digest(self.method)]
        if self.pretrained:
            from spml_core.data import features

            parts.append(features.weights_id(self.backbone))
        same = json.loads(to_json(parts), parse_int=float)  # alpha=1 and alpha=1.0 are one experiment
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def run(
    experiment: Experiment, root: str | Path = "runs", *, fresh: bool = False, progress: bool = True
) -> Run:
    """Load the run of an experiment, or train it, from its last epoch if it was interrupted.

    Under `fabric run` or `torchrun` all processes call this with the same experiment and train it together
    (`spml_core.distributed`); `root` is then on a disk that all of them see.

    Args:
        root: folder of all runs; a relative one lies in the project folder.
        fresh: train again even if the run exists; the old one stays until the new one is complete.
        progress: show a bar, where there is a terminal or a notebook.

    Raises:
        ValueError: unknown method, data set, option or value, before any work.
        OSError: there is no room for checkpoints and results, before training.
    """
    return _run(experiment.resolved(), locate(root), fresh, progress, Experiment.load_data)


def run_all(
    experiments: Iterable[Experiment],
    executor: Executor | None = None,
    root: str | Path = "runs",
    *,
    fresh: bool = False,
    progress: bool = True,
) -> list[Run]:
    """`run` for each experiment, in order, here or by any `concurrent.futures` executor. All are checked first.

    Here, a data set is loaded once for all experiments that share it.
    """
    experiments, root = [experiment.resolved() for experiment in experiments], locate(root)
    if executor is None:
        one = partial(_run, root=root, fresh=fresh, progress=progress, load=_load_once())
        results = map(one, experiments)
    else:
        results = executor.map(partial(run, root=root, fresh=fresh, progress=False), experiments)
    options = {"desc": "runs", "unit": "run", "leave": False, "disable": None if progress else True}
    return list(tqdm(results, total=len(experiments), **options))


def _load_once() -> Callable[[Experiment, Path], data.Dataset]:
    loaded = {}

    def load(experiment: Experiment, cache: Path) -> data.Dataset:
        names = ("dataset", "root", "data", "mode", "backbone")
        wanted = to_json([getattr(experiment, name) for name in names], sort_keys=True)
        if wanted not in loaded:
            loaded[wanted] = experiment.load_data(cache)
        return loaded[wanted]

    return load


def _run(experiment: Experiment, root: Path, fresh: bool, progress: bool, load: Callable) -> Run:
    distributed.start(experiment.accelerator)
    dataset = load(experiment, root / "cache")
    name = f"{experiment.dataset}-{experiment.method}-s{experiment.seed}-{experiment.key(dataset)[:12]}"
    path, draft = root / name, root / "partial" / name
    if distributed.broadcast(path.exists()) and not fresh:
        return Run(path)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with _alone(draft):
        if distributed.broadcast(path.exists()) and not fresh:
            return Run(path)
        if fresh and distributed.rank() == 0:
            shutil.rmtree(draft, ignore_errors=True)
        _train(experiment, dataset, draft, progress)
        if distributed.rank() == 0:
            if path.exists():
                shutil.rmtree(path)
            (draft / "result").replace(path)
            shutil.rmtree(draft)
        distributed.broadcast(None)  # nobody reads before it is there
    return Run(path)


@contextmanager
def _alone(draft: Path):
    """A second process asking for the same run waits here, then loads it."""
    if distributed.rank() > 0:  # the first of the processes that train together has the lock
        yield
        return
    with FileLock(f"{draft}.lock") as lock:
        try:
            yield
        finally:
            if os.name == "posix":  # who waited for a file that is gone looks for it again
                Path(lock.lock_file).unlink(missing_ok=True)


def _train(experiment: Experiment, dataset: data.Dataset, draft: Path, progress: bool) -> None:
    """Train and write `draft/result`; what an interruption may need lies in `draft/checkpoints` meanwhile."""
    wall, processor = time.perf_counter(), time.process_time()
    parts = dataset.parts
    observed = scheme.draw(experiment.observe, parts, dataset.classes, experiment.seed, experiment.protocol)
    fitted, first = _fit(experiment, dataset, observed, draft / "checkpoints", progress)
    scores = fitted.predict(parts["test"].inputs) if "test" in parts else None
    if distributed.rank() > 0:
        return
    folder = draft / "result"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted while writing
    folder.mkdir()
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
        "manifest_sha256": scheme.write_manifest(folder / "labels.csv", parts, observed, dataset.classes),
        "versions": versions(),
    }
    write_json(folder / "summary.json", summary)


def _fit(
    experiment: Experiment, dataset: data.Dataset, observed: dict, folder: Path, progress: bool
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
        torch.manual_seed(_stream(experiment.seed, "weights"))
        inputs = parts["train"].inputs
        model = models.build(
            experiment.backbone, experiment.mode, len(classes), inputs, experiment.pretrained
        )
        method = methods.build(experiment.method, len(classes), len(inputs), **experiment.params)
        if distributed.rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
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
        save_weights(seen, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    distributed.broadcast(None)
    return load_weights(file)


def _bytes_needed(model, method, val_labels: int, experiment: Experiment) -> int:
    """Upper estimate: checkpoints with weights, Adam's two moments, best weights and average; then the result."""
    weights, state = (checkpoints.size_of([*m.parameters(), *m.buffers()]) for m in (model, method))
    logits = 4 * val_labels * (experiment.epochs + experiment.linear_epochs + 2)
    return (checkpoints.KEEP + 1) * (5 * weights + 4 * state + logits) + weights + state + logits


def _stream(seed: int, purpose: str) -> int:
    """A seed for one purpose, so that a change of the model does not change the order of examples."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{seed}".encode()).digest()[:6], "big")
