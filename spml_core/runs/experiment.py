"""`Experiment`: all that determines a training run, its defaults, and its key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path

from spml_core import data, methods, models, train
from spml_core.data import labels
from spml_core.data import observe as scheme
from spml_core.runs.record import to_json

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
        dataset: one of `data.DATASETS`; `root` is its folder, `data` further options of `data.load`.
        method: a registered name; `params` are its hyperparameters.
        seed: of label draw, initial weights and order of examples (three separate streams).
        observe: (num_pos, num_neg) labels shown per image, -1 = all. None = what the method asks for: (1, 0) for all
            but oracles. Or {"drop": 0.8}, Hill's missing ratio; {"weights": "inverse_frequency"}, a biased draw;
            {"manifest": path}, the labels of a file, whose SHA-256 is part of the key. See `data.scheme`.
        protocol: of the label draw, "per_image" or "cole2021" (see `labels.observe`).
        val_labels: "clean" or "observed": the validation labels that choose the epoch.
        mode: "end_to_end", or "linear" on frozen features of `backbone`.
        head: "linear", or "interacting": classes hear each other (`models.Interacting`).
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
    head: str = "linear"
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
        for name in ("dataset", "method", "protocol", "val_labels", "mode", "backbone"):
            if not isinstance(value := getattr(self, name), str | None):
                raise ValueError(f"{name} is a name, got {value!r}")
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
        data.check_options(self.dataset, json.loads(to_json(self.data)))
        plain = {
            "params": chosen.hyperparameters,
            "data": json.loads(to_json(self.data)),
            "observe": scheme.check(observe),
        }
        full = dataclasses.replace(self, **plain, **filled)
        if full.head_lr_factor is None:
            full = dataclasses.replace(full, head_lr_factor=10.0 if full.pretrained else 1.0)
        models.check(full.backbone, full.mode, full.pretrained, full.head)
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
        return train.Training(seed=stream(self.seed, "order"), **{k: getattr(self, k) for k in names})

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
            from spml_core.data.files import features

            parts.append(features.weights_id(self.backbone))
        same = json.loads(to_json(parts), parse_int=float)  # alpha=1 and alpha=1.0 are one experiment
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def stream(seed: int, purpose: str) -> int:
    """A seed for one purpose, so that a change of the model does not change the order of examples."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{seed}".encode()).digest()[:6], "big")
