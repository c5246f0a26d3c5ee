"""Experiment -> Run: what a training run is, and the directory that holds it.

    r = run(Experiment(dataset="digits", method="gr", seed=0))
    r.history, r.summary, r.logits("val", epoch=0)

A run that exists is loaded, one that does not is trained. The directory's name ends in a key of everything that
determines the result, and the directory appears in one rename when it is complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from tqdm.auto import tqdm

from spml_core import __version__, data, methods, metrics, models, train
from spml_core.data import labels, scheme
from spml_core.paths import locate

# Part of every key: raise it when a change of trainer, models or label draw changes results. Methods and data sets
# need no such care, since the key covers their code and content.
FORMAT = 1

DEFAULTS = {
    "digits": {"mode": "end_to_end", "backbone": "digits_cnn", "batch_size": 64, "lr": 3e-3, "threads": 1},
    "folder": {
        "mode": "linear",
        "backbone": "tf_efficientnet_lite0",
        "batch_size": 16,
        "lr": 1e-3,
        "threads": 1,
    },
}
# GR's Table 6: a pretrained ResNet-50 at 448 pixels, Adam without weight decay. Batch and rate by validation.
_PAPER = {"mode": "end_to_end", "backbone": "resnet50", "batch_size": 16, "lr": 1e-5}
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
        epochs, batch_size, lr, stop_drop, threads, precision, accelerator: see `train.Training`.
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
    epochs: int = 10
    batch_size: int | None = None
    lr: float | None = None
    stop_drop: float | None = None
    threads: int | None = None
    precision: str = "32-true"
    accelerator: str = "auto"

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
            "data": json.loads(_json(self.data)),
            "observe": scheme.check(observe),
        }
        full = dataclasses.replace(self, **plain, **filled)
        models.check(full.backbone, full.mode)
        if full.dataset == "digits" and full.mode == "linear":
            raise ValueError("dataset 'digits' has no frozen features: mode 'linear' needs images")
        if full.mode == "linear" and full.backbone == "digits_cnn":
            raise ValueError(
                "backbone 'digits_cnn' has no frozen features: use mode 'end_to_end', or a timm model"
            )
        full.training  # noqa: B018  checks the numbers
        chosen.check(full.epochs)
        return full

    @property
    def training(self) -> train.Training:
        names = [f.name for f in dataclasses.fields(train.Training) if f.name != "seed"]
        return train.Training(seed=_stream(self.seed, "order"), **{k: getattr(self, k) for k in names})

    def load_data(self, cache: Path) -> data.Dataset:
        """The data set of a resolved experiment; `cache` is the folder for frozen features."""
        options = dict(self.data) | ({} if self.root is None else {"root": self.root})
        if self.dataset != "digits":
            options |= {"backbone": self.backbone if self.mode == "linear" else None, "cache_dir": cache}
        return data.load(self.dataset, **options)

    def key(self, dataset: data.Dataset) -> str:
        """SHA-256 of a resolved experiment: fields, content of the data, code of the method. Not: where things lie."""
        fields = dataclasses.asdict(self) | dict.fromkeys(("root", "accelerator", "threads"))
        if "manifest" in self.observe:
            fields["observe"] = {"manifest": self.observe["sha256"]}
        parts = [FORMAT, fields, dataset.fingerprint, methods.source_digest(self.method)]
        same = json.loads(_json(parts), parse_int=float)  # alpha=1 and alpha=1.0 are one experiment
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Run:
    """A finished run on disk. Everything is read when asked for."""

    path: Path

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))

    @property
    def config(self) -> dict:
        """The resolved experiment."""
        return self._json("config.json")

    @property
    def summary(self) -> dict:
        """val_map and test_map (percent, at the best validation epoch; test_map is None without a test split),
        test_map_zero_filled, test_undefined_classes, best_epoch, seconds, processor_seconds, device, data (what the
        data set noted, its fingerprint and sizes), manifest_sha256, versions."""
        return self._json("summary.json")

    @property
    def history(self) -> pd.DataFrame:
        """A row for each epoch, from 0 = before training: epoch, train_loss, val_map (percent), seconds."""
        return pd.read_csv(self.path / "history.csv")

    @property
    def classes(self) -> list[str]:
        return self._json("classes.json")

    def logits(self, split: str, epoch: int | None = None) -> np.ndarray:
        """(N, C) float32. "val": any epoch, 0 = before training. "test": the best epoch only. None = the best epoch.

        Raises:
            KeyError: logits of that split and epoch were not kept; names those that were.
        """
        best = self.summary["best_epoch"]
        name = f"{split}/{best if epoch is None else epoch}"
        arrays = load_file(self.path / "logits.safetensors")
        if name not in arrays:
            raise KeyError(
                f"no logits {name!r} (split/epoch); kept: {', '.join(sorted(arrays))} (best: {best})"
            )
        return arrays[name]

    def probs(self, split: str, epoch: int | None = None) -> np.ndarray:
        """sigmoid(logits) in float64."""
        return 1 / (1 + np.exp(-self.logits(split, epoch).astype(np.float64)))

    def observed(self, split: str) -> np.ndarray:
        """(N, C) int8 in {1, 0, -1}: what training saw; for "val", a draw by the same protocol."""
        return self._labels(f"{split}/observed")

    def full(self, split: str) -> np.ndarray:
        """(N, C) int8 in {1, 0}: the whole truth."""
        return self._labels(f"{split}/full")

    def weights(self) -> dict:
        """State of the model at the best epoch."""
        return load_weights(self.path / "model.safetensors")

    def method_state(self) -> dict:
        """State of the method at the best epoch: label estimates, pseudo-labels, ...; empty if it keeps none."""
        path = self.path / "method.safetensors"
        return load_weights(path) if path.exists() else {}

    def _labels(self, name: str) -> np.ndarray:
        arrays = load_file(self.path / "labels.safetensors")
        if name not in arrays:
            raise KeyError(f"no labels {name!r}; kept: {', '.join(sorted(arrays))}")
        return arrays[name]

    def _json(self, name: str):
        return json.loads((self.path / name).read_text())


def run(
    experiment: Experiment, root: str | Path = "runs", *, fresh: bool = False, progress: bool = True
) -> Run:
    """Load the run of an experiment, or train it.

    Args:
        root: folder of all runs; a relative one lies in the project folder.
        fresh: train again even if the run exists; the old one stays until the new one is complete.
        progress: show a bar, where there is a terminal or a notebook.

    Raises:
        ValueError: unknown method, data set, option or value, before any work.
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
        wanted = _json([getattr(experiment, name) for name in names], sort_keys=True)
        if wanted not in loaded:
            loaded[wanted] = experiment.load_data(cache)
        return loaded[wanted]

    return load


def _run(experiment: Experiment, root: Path, fresh: bool, progress: bool, load: Callable) -> Run:
    dataset = load(experiment, root / "cache")
    name = f"{experiment.dataset}-{experiment.method}-s{experiment.seed}-{experiment.key(dataset)[:12]}"
    path, draft = root / name, root / "partial" / name
    if path.exists() and not fresh:
        return Run(path)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{draft}.lock"):  # a second process asking for the same run waits, then loads it
        if path.exists() and not fresh:
            return Run(path)
        shutil.rmtree(draft, ignore_errors=True)  # left by an interrupted run; it is trained anew
        draft.mkdir()
        _train(experiment, dataset, draft, progress)
        if path.exists():
            shutil.rmtree(path)
        draft.replace(path)
    return Run(path)


def _train(experiment: Experiment, dataset: data.Dataset, folder: Path, progress: bool) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    parts, classes = dataset.parts, dataset.classes
    observed = scheme.draw(experiment.observe, parts, classes, experiment.seed, experiment.protocol)
    val_labels = (
        parts["val"].full if experiment.val_labels == "clean" else (observed["val"] == 1).astype(np.int8)
    )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_stream(experiment.seed, "weights"))
        model = models.build(experiment.backbone, experiment.mode, len(classes), parts["train"].inputs)
        method = methods.build(experiment.method, len(classes), len(parts["train"]), **experiment.params)
        fitted = train.fit(
            model,
            method,
            (parts["train"].inputs, torch.from_numpy(observed["train"])),
            (parts["val"].inputs, val_labels),
            experiment.training,
            title=f"{experiment.method} on {experiment.dataset}, seed {experiment.seed}",
            progress=progress,
        )
    logits = {f"val/{epoch}": scores for epoch, scores in enumerate(fitted.val_logits)}
    test = None
    if "test" in parts:
        device = next(fitted.model.parameters()).device
        logits[f"test/{fitted.best_epoch}"] = scores = train.predict(
            fitted.model, parts["test"].inputs, device
        )
        test = metrics.average_precision(scores, parts["test"].full)

    truth = {f"{k}/full": part.full for k, part in parts.items()}
    save_file(logits, folder / "logits.safetensors")
    save_file(truth | {f"{k}/observed": v for k, v in observed.items()}, folder / "labels.safetensors")
    save_weights(fitted.model.state_dict(), folder / "model.safetensors")
    if state := fitted.method.state_dict():
        save_weights(state, folder / "method.safetensors")
    pd.DataFrame(fitted.history).to_csv(folder / "history.csv", index=False)
    manifest_sha256 = scheme.write_manifest(folder / "labels.csv", parts, observed, classes)
    _write_json(folder / "classes.json", list(classes))
    _write_json(folder / "config.json", dataclasses.asdict(experiment))
    summary = {
        "val_map": fitted.history[fitted.best_epoch]["val_map"],
        "test_map": None if test is None or np.isnan(test.mean) else 100 * test.mean,
        "test_map_zero_filled": None if test is None else 100 * test.mean_zero_filled,
        "test_undefined_classes": None if test is None else [classes[c] for c in test.undefined],
        "definition": metrics.STEP,
        "best_epoch": fitted.best_epoch,
        "val_labels": experiment.val_labels,
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "device": fitted.device,
        "data": dataset.notes
        | {"fingerprint": dataset.fingerprint, "sizes": {k: len(v) for k, v in parts.items()}},
        "manifest_sha256": manifest_sha256,
        "versions": versions(),
    }
    _write_json(folder / "summary.json", summary)


def versions() -> dict:
    """Python, machine and the packages that numbers depend on."""
    packages = ("torch", "numpy", "scikit-learn", "scipy", "lightning-fabric", "timm")
    own = {"spml-core": __version__, "python": platform.python_version(), "machine": platform.machine()}
    return own | {p: version(p) for p in packages}


def _write_json(path: Path, content) -> None:
    path.write_text(_json(content, indent=1) + "\n")


def _json(content, **options) -> str:
    return json.dumps(
        content, default=lambda value: value.item(), **options
    )  # numpy scalars become plain numbers


def _stream(seed: int, purpose: str) -> int:
    """A seed for one purpose, so that a change of the model does not change the order of examples."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{seed}".encode()).digest()[:6], "big")
