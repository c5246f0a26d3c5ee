"""`Training`: how to optimise, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "64-true")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")  # of lightning-fabric
SCHEDULES = ("constant", "one_cycle")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to optimise: Adam. What the papers use of it is in `spml_core.runs.protocols`.

    Args:
        batch_size: images a batch, over all processes; `accumulate` batches make one step of the optimizer, with the
            mean of their gradients. A method sees one batch at a time, and so does batch norm.
        lr: learning rate of Adam; that of the head is `head_lr_factor` times as high (GR's released code: 10).
        weight_decay: of Adam, added to the gradient; not on biases and normalisation (Hill and SPLC: 1e-4).
        schedule: "constant", or "one_cycle" with `lr` at its top (Hill and SPLC); see `optim.schedule`.
        ema: decay of a running average of the weights, which then is what is validated and kept (Hill and SPLC:
            0.9997, after ASL's released code); None = the weights themselves.
        linear_init: train the head alone for this many of the epochs (a switch of GR's released code). The backbone is
            then in evaluation mode: its batch norm uses, and keeps, the statistics of its pretraining.
        flip: flip each training image left to right with probability 0.5 (all four papers).
        stop_drop: stop when validation mAP falls this many points below the best (GR: 2, EM: 0); None = never.
        seed: of the order of examples.
        threads: CPU threads while training; None = torch's own choice. Small networks are faster with 1, do not suffer
            when other processes share the cores, and give the same bits on any number of cores.
        precision, accelerator: one of `PRECISIONS`, `ACCELERATORS`. "auto" is bf16 on a GPU that has it, else fp16 with
            gradient scaling, float32 on a CPU; and a GPU where there is one. Loss and weights are float32 but for
            "64-true", where the weights are float64.
        tf32: let a GPU multiply float32 matrices in TF32 (10 bits of mantissa).
        channels_last: memory order of images and filters: by pixel. Faster on GPUs, and on CPUs by 9 to 30 %.
        compile: use `torch.compile` on the model; worth it for long trainings only.
    """

    epochs: int = 10
    batch_size: int = 64
    accumulate: int = 1
    lr: float = 3e-3
    head_lr_factor: float = 1.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    ema: float | None = None
    linear_init: int = 0
    flip: bool = False
    stop_drop: float | None = None
    seed: int = 0
    threads: int | None = None
    precision: str = "auto"
    accelerator: str = "auto"
    tf32: bool = True
    channels_last: bool = True
    compile: bool = False

    def __post_init__(self):
        for name in ("epochs", "batch_size", "accumulate", "threads"):
            value = getattr(self, name)
            if value is None and name == "threads":
                continue
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
        for name in ("lr", "head_lr_factor"):
            if not isinstance(getattr(self, name), Real) or not getattr(self, name) > 0:
                raise ValueError(f"{name} must be a number > 0, got {getattr(self, name)!r}")
        if not isinstance(self.weight_decay, Real) or not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must be a number >= 0, got {self.weight_decay!r}")
        if self.ema is not None and not (isinstance(self.ema, Real) and 0 <= self.ema < 1):
            raise ValueError(f"ema is a decay in [0, 1), or None for no average; got {self.ema!r}")
        if not isinstance(self.linear_init, Integral) or not 0 <= self.linear_init < self.epochs:
            raise ValueError(
                f"linear_init must be a whole number of epochs, below epochs={self.epochs}; got {self.linear_init!r}"
            )
        if self.stop_drop is not None and not (isinstance(self.stop_drop, Real) and self.stop_drop >= 0):
            raise ValueError(
                f"stop_drop is a number of mAP points >= 0, or None for never; got {self.stop_drop!r}"
            )
        for name in ("flip", "tf32", "channels_last", "compile"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is True or False, got {getattr(self, name)!r}")
        known = {"precision": PRECISIONS, "accelerator": ACCELERATORS, "schedule": SCHEDULES}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: use one of {', '.join(values)}")
