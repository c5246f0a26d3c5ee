"""Write and read the files of a finished run, in plain formats."""

from __future__ import annotations

import dataclasses
import json
import platform
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import save_file
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from scipy.special import expit
from torch import nn

from spml_core import __version__, metrics, models, words
from spml_core.data.files.table import bullets
from spml_core.data.observe import write_manifest
from spml_core.paths import locate
from spml_core.runs.symptoms import training_warnings
from spml_core.train import distributed, score
from spml_core.train.device import name_of
from spml_core.train.predict import predict_files

# What must agree before test numbers may be compared, apart from the method and its own parameters.
PROTOCOL = (
    "dataset", "data", "observe", "protocol", "val_labels", "select", "mode", "backbone", "pretrained", "epochs",
    "stop_drop", "flip", "ema", "schedule", "linear_init", "linear_epochs", "tuned_on",
)  # fmt: skip


@dataclass(frozen=True)
class Labels:
    """Labels of N images and the model's logits for them: the single source of every table and figure about labels.

    Attributes:
        observed: (N, C) int8 in {1, 0, -1}; all 0 in a test split, where nothing is shown to a method.
        full: (N, C) int8 in {1, 0}, the truth; 0 where it is not known.
        known: (N, C) bool, where the truth is known.
        logits: (N, C) float32, or None where a run keeps none (the training split).
    """

    observed: np.ndarray
    full: np.ndarray
    known: np.ndarray
    logits: np.ndarray | None = None

    @cached_property
    def probs(self) -> np.ndarray:
        """(N, C) float64, sigmoid(logits)."""
        return expit(self.logits.astype(np.float64))

    @property
    def missing_positive(self) -> np.ndarray:
        """(N, C) bool: unobserved and truly positive, a false negative."""
        return (self.observed == 0) & self.known & (self.full == 1)

    @property
    def missing_negative(self) -> np.ndarray:
        """(N, C) bool: unobserved and truly negative."""
        return (self.observed == 0) & self.known & (self.full == 0)

    def of_class(self, number: int) -> Labels:
        """Return the labels of one class, as arrays (N, 1)."""
        arrays = (self.observed, self.full, self.known, self.logits)
        return Labels(*(None if a is None else a[:, number : number + 1] for a in arrays))


@dataclass(frozen=True)
class Run:
    """A finished run on disk. Files are read on access."""

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
        test_map_zero_filled, val_undefined_classes and test_undefined_classes (without an AP), definition (of AP),
        best_epoch, val_labels, select (the rule that chose the epoch), selection (its score there), stop_rule,
        tuned_on, linear_val_map (of the first phase), seconds and processor_seconds (of the process that finished it),
        device, precision, processes, data (what the data set noted, its fingerprint and sizes), warnings (of a training
        that learned nothing, see `symptoms`), manifest_sha256, versions."""
        return self._json("summary.json")

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch, from 0 = before training: epoch, train_loss, val_map (percent), seconds, and selection if
        another rule than val_map chose the epoch."""
        return pd.read_csv(self.path / "history.csv")

    @property
    def last_epoch(self) -> int:
        """The last epoch that was trained; the best one may lie before it."""
        return int(self.history["epoch"].max())

    @property
    def classes(self) -> list[str]:
        return self._json("classes.json")

    def logits(self, split: str, epoch: int | None = None) -> np.ndarray:
        """Return (N, C) float32 logits of any epoch of "val" (0 = before training), or of the best epoch of "test".

        Args:
            split, epoch: None = the best epoch.

        Raises:
            KeyError: logits of that split and epoch were not kept; names those that were.
        """
        return self._array("logits", f"{split}/{self.summary['best_epoch'] if epoch is None else epoch}")

    def labels(self, split: str, epoch: int | None = None) -> Labels:
        """Return the labels of a split together with the model's logits after an epoch.

        Args:
            split, epoch: as for `logits`; the training split has labels but no logits.

        Raises:
            KeyError: as `logits`, or there is no such split.
        """
        full = self._array("labels", f"{split}/full")
        return Labels(
            observed=self._array("labels", f"{split}/observed", np.zeros_like(full)),
            full=full,
            known=self._array("labels", f"{split}/known", np.ones(full.shape, bool)),
            logits=None if split == "train" else self.logits(split, epoch),
        )

    def ids(self, split: str) -> list[str]:
        """Return the ids of the images of a split, in the order of its `labels`."""
        if split == "val" and self.config["data"].get("val_is_train"):
            split = "train"
        listed = pd.read_csv(self.path / "labels.csv", dtype=str, keep_default_na=False)
        return listed["image"][listed["split"] == split].tolist()

    def model(self, raw: bool = True) -> nn.Module:
        """Return the trained network of the best epoch, in evaluation mode: from raw inputs to logits (N, C).

        Raw inputs are what the data set holds: images (N, channels, H, W), 0 to 255, of the size that was trained on.
        For frozen features, the backbone is part of the network, so it takes images as well.

            from spml_core import data
            from spml_core.runs import Experiment, run

            found = run(Experiment(epochs=1))
            images = data.load("digits").parts["test"].inputs
            with torch.no_grad():
                probs = found.model()(images[:8]).sigmoid()  # (8, 10), columns as in found.classes

        Args:
            raw: False = from the inputs of training, which are features where the backbone was frozen.
        """
        config, size = self.config, self.image_shape[-1]
        kind = {name: config[name] for name in ("backbone", "mode", "head")}
        return models.restore(self.weights(), len(self.classes), size, **kind, raw=raw)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, size, size) of the images that the network takes."""
        from spml_core.data.sets import digits

        size = self.summary["data"].get("size", digits.CANVAS)
        channels = 3 if self.config["mode"] == "linear" else self.weights()["0.mean"].shape[1]
        return channels, size, size

    def predict(self, paths: Sequence[str | Path], *, jobs: int | None = None) -> pd.DataFrame:
        """Return the probabilities of N image files: one row per file, in order, and one column per class.

        Files are decoded as in training. A file that cannot be read has a row of NaN and is named in a warning. On a
        GPU, the network runs in float32, whatever it was trained in. For more images than fit into memory, use
        `predictions.write`.

        Args:
            paths: image files; relative paths start at the project folder.
            jobs: number of threads; None = the number of cores. On a CPU, it does not change the result.
        """
        names = [*map(str, paths)]
        found, faults = [np.empty((0, len(self.classes)), np.float32)], []
        for probs, unreadable in predict_files(self.model(), names, self.image_shape, jobs):
            found.append(probs)
            faults += unreadable
        if faults:
            counted = words.some(len(faults), len(names), "image", "cannot", "cannot")
            warnings.warn(f"{counted} be read:{bullets(map(': '.join, faults))}", stacklevel=2)
        return pd.DataFrame(np.concatenate(found), pd.Index(names, name="image"), self.classes)

    def weights(self) -> dict:
        """Return the state of the model at the best epoch."""
        return load_weights(self.path / "model.safetensors")

    def method_state(self) -> dict:
        """Return the state of the method at the best epoch: label estimates, pseudo-labels, ...; empty if none."""
        path = self.path / "method.safetensors"
        return load_weights(path) if path.exists() else {}

    def _array(self, kind: str, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """Return one array of a file, without reading the others; KeyError if it is missing and `absent` is None."""
        with safe_open(self.path / f"{kind}.safetensors", "numpy") as arrays:
            if name in (kept := arrays.keys()):
                return arrays.get_tensor(name)
        if absent is None:
            raise KeyError(f"no {kind} {name!r}; kept: {', '.join(sorted(kept))}")
        return absent

    def _json(self, name: str):
        return json.loads((self.path / name).read_text())


def finished(root: str | Path = "runs") -> list[Run]:
    """Return all finished runs of a folder, sorted by name; a relative `root` starts at the project folder."""
    return [Run(file.parent) for file in sorted(locate(root).glob("*/summary.json"))]


def find(name: str | Path, root: str | Path = "runs") -> Run:
    """Return a finished run: by its folder, or by its name in `root`, of which the beginning is enough.

    Folds (`spml data suggest`) are only found by their folder.

    Raises:
        ValueError: no run, or several, have a name that begins like this.
    """
    if (locate(name) / "summary.json").is_file():
        return Run(locate(name))
    known = {run.path.name: run for run in finished(root) if "fold" not in run.config["data"]}
    begun = [each for each in known if each.startswith(str(name))]
    found = [str(name)] if str(name) in known else begun
    if len(found) == 1:
        return known[found[0]]
    if found:
        raise ValueError(
            f"{len(found)} runs begin with {str(name)!r}: {words.listed(found)}. Give more of the name."
        )
    hint = words.did_you_mean(str(name), known) if known else "there are no finished runs."
    raise ValueError(f"no run {str(name)!r} in {locate(root)}: {hint or f'it has {words.listed([*known])}'}")


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """Return one row per run: method, seed, val_map, test_map, best_epoch, and how epoch and settings were chosen.

    Warn if the runs do not follow one protocol (`PROTOCOL`, the data's content, the definition of AP), since their
    numbers are then not comparable. What an oracle observes is not checked: it sees more by design.
    """
    runs, mixed = list(runs), []
    configs = [{"select": "map"} | run.config for run in runs]
    values = {name: [config.get(name) for config in configs] for name in PROTOCOL}
    values["observe"] = [value for value in values["observe"] if -1 not in value]
    values["definition"] = [run.summary["definition"] for run in runs]
    values["data content"] = [run.summary["data"]["fingerprint"][:12] for run in runs]
    for name, several in values.items():
        seen = dict.fromkeys(json.dumps(value, sort_keys=True) for value in several)
        mixed += [f"{name}: {' and '.join(seen)}"] if len(seen) > 1 else []
    if mixed:
        warnings.warn(
            f"these runs do not follow one protocol, compare them with care: {'; '.join(mixed)}", stacklevel=2
        )
    columns = ("dataset", "method", "seed", "val_map", "test_map", "best_epoch", "val_labels", "stop_rule", "tuned_on",
               "definition", "device")  # fmt: skip
    return pd.DataFrame([run.config | run.summary for run in runs], columns=columns)


def write_result(
    folder: Path, experiment, dataset, observed: dict, fitted, first, test_logits: np.ndarray | None, **spent
) -> None:
    """Write all files of a run.

    Args:
        observed: labels of "train" and "val", as drawn.
        fitted, first: from `train.fit`; `first` is the trainer of the first phase, or None.
        test_logits: of the best epoch; None without a test split.
        spent: seconds and processor_seconds, for the summary.
    """
    parts, classes, epoch = dataset.parts, dataset.classes, fitted.best_epoch
    logits = {f"val/{n}": scores for n, scores in enumerate(fitted.val_logits)}
    tested = {"test_map": None, "test_map_zero_filled": None, "test_undefined_classes": None}
    if test_logits is not None:
        logits[f"test/{epoch}"] = test_logits
        test = metrics.average_precision(test_logits, parts["test"].full, parts["test"].known)
        tested["test_map"] = None if np.isnan(test.mean) else 100 * test.mean
        tested["test_map_zero_filled"] = 100 * test.mean_zero_filled
        tested["test_undefined_classes"] = [classes[c] for c in test.undefined]
    chosen = metrics.average_precision(fitted.val_logits[epoch], *fitted.val[1:])
    labels = {f"{k}/full": part.full for k, part in parts.items()}
    labels |= {f"{k}/known": part.known for k, part in parts.items() if part.known is not None}
    save_file(logits, folder / "logits.safetensors")
    save_file(labels | {f"{k}/observed": v for k, v in observed.items()}, folder / "labels.safetensors")
    save_weights(_by_row(fitted.model.state_dict()), folder / "model.safetensors")
    if state := fitted.method.state_dict():
        save_weights(_by_row(state), folder / "method.safetensors")
    pd.DataFrame(fitted.history).to_csv(folder / "history.csv", index=False)
    if first is not None:
        pd.DataFrame(first.history).to_csv(folder / "history_linear.csv", index=False)
    write_json(folder / "classes.json", list(classes))
    write_json(folder / "config.json", dataclasses.asdict(experiment))
    drop = experiment.stop_drop
    summary = {
        "val_map": fitted.history[epoch]["val_map"],
        **tested,
        "val_undefined_classes": [classes[c] for c in chosen.undefined],
        "definition": chosen.definition,
        "best_epoch": epoch,
        "val_labels": experiment.val_labels,
        "select": experiment.select,
        "selection": score(fitted.history[epoch]),
        "stop_rule": "never" if drop is None else f"more than {drop:g} mAP points below the best",
        "tuned_on": experiment.tuned_on,
        "linear_val_map": None if first is None else first.history[first.best_epoch]["val_map"],
        **spent,
        "device": name_of(fitted.device),
        "precision": fitted.precision,
        "processes": distributed.world_size(),
        "data": dataset.notes
        | {"fingerprint": dataset.fingerprint, "sizes": {k: len(v) for k, v in parts.items()}},
        "warnings": training_warnings(fitted, first),
        "manifest_sha256": write_manifest(folder / "labels.csv", parts, observed, classes),
        "versions": versions(),
    }
    write_json(folder / "summary.json", summary)


def _by_row(state: dict) -> dict:
    """Return tensors in the memory order that safetensors stores."""
    return {name: tensor.contiguous() for name, tensor in state.items()}


def versions() -> dict:
    """Return the versions of Python and the packages that numbers depend on, and the machine."""
    packages = ("torch", "numpy", "scikit-learn", "scipy", "lightning-fabric", "timm")
    own = {"spml-core": __version__, "python": platform.python_version(), "machine": platform.machine()}
    return own | {p: version(p) for p in packages}


def write_json(path: Path, content) -> None:
    path.write_text(to_json(content, indent=1) + "\n")


def to_json(content, **options) -> str:
    """Return JSON in which numpy scalars are plain numbers."""
    return json.dumps(content, default=lambda value: value.item(), **options)
