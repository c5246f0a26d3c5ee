"""`Experiment`: everything that determines a training run, its defaults, and its key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, SkipValidation

from spml_core import data, methods, models, train
from spml_core.data import labels, observe
from spml_core.runs.protocols import DEFAULTS
from spml_core.runs.record import Run, to_json

# Part of every key: raise it when a change of trainer, models or label draw changes results. Methods and data sets
# need no such care, since the key covers their code and content.
FORMAT = 3
# Settings that do not change the experiment, up to rounding, such as where and how fast it runs.
NOT_IN_KEY = ("root", "accelerator", "threads", "compile", "channels_last", "tf32", "tuned_on")

# The hyperparameter that can be counted from the data, and the value that requests it.
COUNTED, AUTO = "expected_positives", "auto"
# Stands for the number of classes until the data are read: large enough for any hyperparameter.
_MANY = 10_000


@dataclass(frozen=True, kw_only=True)
class Experiment(train.Training):
    """Everything that determines a training run: data, labels, method, model, and all fields of `train.Training`.

    None means the data set's own default (`DEFAULTS`), or that of the method.

    Args:
        dataset: one of `data.DATASETS`; `root` is its folder, `data` further options of `data.load`.
        method: a registered name; `params` are its hyperparameters. `expected_positives` may be "auto", the mean
            number of (known) true labels of a validation image; this is the default for methods that require it. With
            val_labels "observed" it must be a number.
        seed: for label draw, initial weights and order of examples (three separate streams).
        observe: (num_pos, num_neg) labels shown per image, -1 = all. None = what the method needs: (1, 0) for all but
            oracles. Or {"drop": 0.8}, Hill's missing ratio; {"weights": "inverse_frequency"}, {"annotators": [...]},
            {"wrong": 0.05}, biased draws and wrong labels (docs/label-draws.md); {"manifest": path}, the labels of a
            file, whose SHA-256 is part of the key. See `data.observe`.
        protocol: of the label draw, "per_image" or "cole2021" (see `labels.observe`).
        val_labels: "clean" or "observed": the validation labels that choose the epoch. A rule `select` other than
            "map" needs "observed".
        mode: "end_to_end", or "linear" on frozen features of `backbone`.
        head: "linear"; "interacting": classes influence each other (`models.Interacting`); "boostlu", end to end: class
            activation maps whose positive values count more (`models.BoostLU`); "latent": a latent variable for each
            class (`models.Latent`); "enhancing": an encoder of similar images beside it (`models.Enhancing`). None =
            the one that the method needs, else "linear".
        pretrained: start "end_to_end" from the ImageNet weights of `backbone` (see `models.build`).
        linear_epochs: epochs of a first phase, before the `epochs` end to end. It trains only the head, on features
            that the backbone, in evaluation mode, computes once (Cole et al., CVPR 2021, "LinearInit"). Its best head
            and the method's state of that epoch, such as ROLE's label estimates, are carried over. Each phase counts
            its own epochs. The first phase has no flips, and its learning rate is `linear_lr` (None = `lr` times
            `head_lr_factor`).
        head_lr_factor: None = 10 for a pretrained backbone (GR's released code), else 1.
        tuned_on: a note for the record: the labels by which the settings were chosen, e.g. "val, clean"; None = not
            tuned.

    Raises:
        ValueError: as `train.Training`.
    """

    dataset: str = "digits"
    method: str = "gr"
    params: dict = field(default_factory=dict)
    root: str | Path | None = None
    data: dict = field(default_factory=dict)
    observe: SkipValidation[tuple[int, int] | dict | None] = None
    protocol: Literal[*labels.PROTOCOLS] = "per_image"
    val_labels: Literal["clean", "observed"] = "clean"
    mode: str | None = None
    backbone: str | None = None
    head: str | None = None
    pretrained: bool | None = None
    linear_epochs: NonNegativeInt = 0
    linear_lr: PositiveFloat | None = None
    tuned_on: str | None = None
    # Fields of `Training` whose default depends on the data set.
    batch_size: PositiveInt | None = None
    lr: PositiveFloat | None = None
    head_lr_factor: PositiveFloat | None = None
    flip: bool | None = None

    @classmethod
    def of_run(cls, run: Run) -> Experiment:
        """Return the resolved experiment of a finished run."""
        known = {each.name for each in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in run.config.items() if name in known})

    def resolved(self) -> Experiment:
        """Return the experiment with every default filled in, except what is counted from the data (see `counted`).

        Raises:
            ValueError: an invalid name, option or value; raised before any work.
        """
        if "root" in self.data:
            raise ValueError(
                "data contains 'root': pass it as Experiment(root=...), so that it stays out of the key"
            )
        options = json.loads(to_json(self.data))
        data.check_options(self.dataset, options)
        method, params = self._method()
        # A linear head on frozen features is the same task on every data set of images.
        own = "folder" if self.mode == "linear" and self.dataset != "digits" else self.dataset
        filled = {k: v for k, v in DEFAULTS[own].items() if getattr(self, k) is None}
        filled["head"] = self._head(method)
        filled["observe"] = observe.check(method.observes if self.observe is None else self.observe)
        if self.root is not None:
            filled["root"] = str(self.root)
        if self.select != "map" and self.val_labels != "observed":
            raise ValueError(
                f"select={self.select!r} scores observed labels: add val_labels='observed' (spml train: -o val_labels "
                f"observed), or choose on clean labels with select='map'"
            )
        full = dataclasses.replace(self, params=params, data=options, **filled)
        if full.head_lr_factor is None:
            full = dataclasses.replace(full, head_lr_factor=10.0 if full.pretrained else 1.0)
        full._check_mode()
        for epochs in {full.epochs, full.linear_epochs or full.epochs}:
            method.check(epochs)
        return full

    def _method(self) -> tuple[methods.Method, dict]:
        """Return the method for any number of classes, and its hyperparameters."""
        params = dict(self.params)
        needed = COUNTED in methods.get(self.method).requires and params.get(COUNTED) is None
        counted = needed or params.get(COUNTED) == AUTO
        if counted and self.val_labels != "clean":
            raise ValueError(
                f"method {self.method!r} needs {COUNTED}, the mean number of true labels of an image, and it cannot "
                f"be counted: with val_labels={self.val_labels!r} the true labels of the validation images are not "
                f"used. Pass a number: params={{{COUNTED!r}: 2.9}} (spml train: -p "
                f"{self.method}.{COUNTED} 2.9)"
            )
        stand_in = {COUNTED: 1.5} if counted else {}
        try:
            method = methods.build(self.method, _MANY, num_examples=1, **params | stand_in)
        except ValueError as error:
            raise ValueError(str(error).replace(f", {_MANY}", ", C")) from error
        return method, method.hyperparameters | ({COUNTED: AUTO} if counted else {})

    def _head(self, method: methods.Method) -> str:
        # Not an attribute of `Method`: it would be part of the code, and so of the key, of every method.
        needed = getattr(method, "head", None)
        if needed and self.head not in (None, needed):
            raise ValueError(f"method {self.method!r} needs head={needed!r}, got {self.head!r}")
        return self.head or needed or "linear"

    def _check_mode(self) -> None:
        """Raise ValueError for settings that do not go together."""
        models.check(self.backbone, self.mode, self.pretrained, self.head)
        if self.mode != "linear":
            return
        for name in ("pretrained", "flip", "linear_epochs", "linear_init"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} needs mode 'end_to_end': in mode 'linear' the pretrained "
                    f"features are frozen and computed once"
                )
        if self.dataset == "digits":
            raise ValueError("dataset 'digits' has no frozen features: mode 'linear' needs images")
        if self.backbone == "digits_cnn":
            raise ValueError(
                "backbone 'digits_cnn' has no frozen features: use mode 'end_to_end', or a timm model"
            )

    def counted(self, dataset: data.Dataset) -> Experiment:
        """Return a resolved experiment with the counted number in place of "auto".

        Raises:
            ValueError: a hyperparameter does not fit the number of classes.
        """
        params, val = self.params, dataset.parts["val"]
        if params.get(COUNTED) == AUTO:
            positive = val.full == 1 if val.known is None else (val.full == 1) & val.known
            params = params | {COUNTED: float(positive.sum() / len(val))}
        methods.build(self.method, len(dataset.classes), num_examples=1, **params)
        return dataclasses.replace(self, params=params)

    @property
    def training(self) -> train.Training:
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(train.Training)}
        return train.Training(**settings | {"seed": stream(self.seed, "order")})

    @property
    def linear_training(self) -> train.Training:
        """Return the settings of the first phase: `linear_epochs` epochs on frozen features."""
        lr = self.lr * self.head_lr_factor if self.linear_lr is None else self.linear_lr
        plain = {"head_lr_factor": 1.0, "linear_init": 0, "flip": False}
        return dataclasses.replace(self.training, epochs=self.linear_epochs, lr=lr, **plain)

    def load_data(self, cache: Path) -> data.Dataset:
        """Return the data set of a resolved experiment; `cache` is the folder for frozen features."""
        options = dict(self.data) | ({} if self.root is None else {"root": self.root})
        if self.dataset != "digits":
            options |= {"backbone": self.backbone if self.mode == "linear" else None, "cache_dir": cache}
        return data.load(self.dataset, **options)

    def key(self, dataset: data.Dataset) -> str:
        """Return a SHA-256 of a resolved experiment: its fields, the content of the data, the code of the method.

        Settings such as paths, and those that change only rounding, are left out (`NOT_IN_KEY`). Processes that train
        together draw flips and compute batch-norm statistics separately, so their number is part of the key.
        """
        fields = dataclasses.asdict(self.counted(dataset)) | dict.fromkeys(NOT_IN_KEY)
        fields["observe"] = observe.identity(self.observe)
        if self.select == "map":
            del fields["select"]  # keeps the runs that were trained before there was a choice
        parts = [FORMAT, fields, dataset.fingerprint, methods.source_digest(self.method)]
        if self.pretrained:
            from spml_core.data.files import features

            parts.append(features.weights_id(self.backbone))
        if train.distributed.world_size() > 1:
            parts.append({"processes": train.distributed.world_size()})
        same = json.loads(to_json(parts), parse_int=float)  # alpha=1 and alpha=1.0 are one experiment
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def stream(seed: int, purpose: str) -> int:
    """Return a seed for one purpose, so that a change of the model does not change the order of examples."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{seed}".encode()).digest()[:6], "big")
