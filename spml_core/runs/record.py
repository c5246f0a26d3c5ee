"""What a finished run holds on disk: reading it, and the files that are written in plain forms."""

from __future__ import annotations

import dataclasses
import json
import platform
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from scipy.special import expit

from spml_core import __version__
from spml_core.paths import locate

# What has to agree before test numbers may be compared, beside the method and its own parameters.
PROTOCOL = (
    "dataset", "data", "observe", "protocol", "val_labels", "mode", "backbone", "pretrained", "epochs", "stop_drop",
    "flip", "ema", "schedule", "linear_init", "linear_epochs", "tuned_on",
)  # fmt: skip


@dataclass(frozen=True)
class Labels:
    """Labels of N images and the model's view of them: the one source of every table and figure about labels.

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
        """The same for one class: arrays (N, 1)."""
        arrays = (self.observed, self.full, self.known, self.logits)
        return Labels(*(None if a is None else a[:, number : number + 1] for a in arrays))


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
        test_map_zero_filled, test_undefined_classes, definition (of AP), best_epoch, val_labels, stop_rule, tuned_on,
        linear_val_map (of the first phase), seconds and processor_seconds (of the process that finished it), device,
        precision, processes, data (what the data set noted, its fingerprint and sizes), warnings (of a training that
        learned nothing, see `symptoms`), manifest_sha256, versions."""
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
        with safe_open(self.path / "logits.safetensors", "numpy") as arrays:  # reads this epoch alone
            if name not in (kept := arrays.keys()):
                raise KeyError(
                    f"no logits {name!r} (split/epoch); kept: {', '.join(sorted(kept))} (best: {best})"
                )
            return arrays.get_tensor(name)

    def labels(self, split: str, epoch: int | None = None) -> Labels:
        """Return the labels of a split together with what the model said of them after an epoch.

        Args:
            split, epoch: as of `logits`; the training split has labels and no logits.

        Raises:
            KeyError: as `logits`, or there is no such split.
        """
        known = self.known(split)
        full = self.full(split)
        return Labels(
            observed=self.observed(split) if split != "test" else np.zeros_like(full),
            full=full,
            known=np.ones(full.shape, bool) if known is None else known,
            logits=None if split == "train" else self.logits(split, epoch),
        )

    def probs(self, split: str, epoch: int | None = None) -> np.ndarray:
        """sigmoid(logits) in float64."""
        return expit(self.logits(split, epoch).astype(np.float64))

    def observed(self, split: str) -> np.ndarray:
        """(N, C) int8 in {1, 0, -1}: what training saw; for "val", a draw by the same protocol."""
        return self._labels(f"{split}/observed")

    def full(self, split: str) -> np.ndarray:
        """(N, C) int8 in {1, 0}: the whole truth."""
        return self._labels(f"{split}/full")

    def known(self, split: str) -> np.ndarray | None:
        """(N, C) bool, where the truth is known (`full` is 0 elsewhere); None = everywhere."""
        return load_file(self.path / "labels.safetensors").get(f"{split}/known")

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


def finished(root: str | Path = "runs") -> list[Run]:
    """All finished runs of a folder, by name; a relative `root` lies in the project folder."""
    return [Run(file.parent) for file in sorted(locate(root).glob("*/summary.json"))]


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """A row a run: method, seed, val_map, test_map, best_epoch, and by which rules the epoch and settings were chosen.

    Warns if the runs do not follow one protocol, so that their numbers are not to be compared.
    """
    runs = list(runs)
    if mixed := differences(runs):
        listed = "; ".join(f"{name}: {' and '.join(values)}" for name, values in mixed.items())
        warnings.warn(
            f"these runs do not follow one protocol, compare them with care: {listed}", stacklevel=2
        )
    rows = []
    for run in runs:
        config, summary = run.config, run.summary
        rows.append(
            {name: config[name] for name in ("dataset", "method", "seed")}
            | {name: summary[name] for name in ("val_map", "test_map", "best_epoch")}
            | {
                name: summary[name]
                for name in ("val_labels", "stop_rule", "tuned_on", "definition", "device")
            }
        )
    return pd.DataFrame(rows)


def differences(runs: Iterable[Run]) -> dict[str, list[str]]:
    """The parts of the protocol (`PROTOCOL`, the data's content and the AP's definition) that are not the same.

    What an oracle observes is its own affair, so `observe` counts among methods that see one positive only.
    """
    found: dict[str, list[str]] = {}
    for run in runs:
        config, summary = run.config, run.summary
        values = {name: config.get(name) for name in PROTOCOL} | {"definition": summary["definition"]}
        values["data content"] = summary["data"]["fingerprint"][:12]
        if -1 in config["observe"]:
            del values["observe"]
        for name, value in values.items():
            seen = found.setdefault(name, [])
            if (text := json.dumps(value, sort_keys=True)) not in seen:
                seen.append(text)
    return {name: values for name, values in found.items() if len(values) > 1}


def write_result(experiment, dataset, observed: dict, fitted, test_scores, folder: Path) -> None:
    """All files of a result but the summary."""
    logits = {f"val/{epoch}": scores for epoch, scores in enumerate(fitted.val_logits)}
    if test_scores is not None:
        logits[f"test/{fitted.best_epoch}"] = test_scores
    truth = {f"{k}/full": part.full for k, part in dataset.parts.items()}
    truth |= {f"{k}/known": part.known for k, part in dataset.parts.items() if part.known is not None}
    save_file(logits, folder / "logits.safetensors")
    save_file(truth | {f"{k}/observed": v for k, v in observed.items()}, folder / "labels.safetensors")
    save_weights(_by_row(fitted.model.state_dict()), folder / "model.safetensors")
    if state := fitted.method.state_dict():
        save_weights(_by_row(state), folder / "method.safetensors")
    pd.DataFrame(fitted.history).to_csv(folder / "history.csv", index=False)
    write_json(folder / "classes.json", list(dataset.classes))
    write_json(folder / "config.json", dataclasses.asdict(experiment))


def write_failure(path: Path, error: Exception) -> None:
    """Traceback of a run that failed, and what its message cuts short; never in the way of the error itself."""
    lists = {name: value for name, value in vars(error).items() if isinstance(value, list)}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(traceback.format_exception(error)) + (to_json(lists, indent=1) + "\n" if lists else "")
        )


def _by_row(state: dict) -> dict:
    """Tensors in the memory order that safetensors stores."""
    return {name: tensor.contiguous() for name, tensor in state.items()}


def versions() -> dict:
    """Python, machine and the packages that numbers depend on."""
    packages = ("torch", "numpy", "scikit-learn", "scipy", "lightning-fabric", "timm")
    own = {"spml-core": __version__, "python": platform.python_version(), "machine": platform.machine()}
    return own | {p: version(p) for p in packages}


def write_json(path: Path, content) -> None:
    path.write_text(to_json(content, indent=1) + "\n")


def to_json(content, **options) -> str:
    return json.dumps(
        content, default=lambda value: value.item(), **options
    )  # numpy scalars become plain numbers
