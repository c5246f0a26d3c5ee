"""`Training`: the settings of the optimisation, checked before any work."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Literal, get_type_hints

import numpy as np
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from spml_core import words
from spml_core.analysis.selection import RULES


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the optimisation, which uses Adam. The papers' settings are in `spml_core.runs.protocols`.

    Args:
        batch_size: images per batch, over all processes; `accumulate` batches make one step of the optimizer, with the
            mean of their gradients. A method sees one batch at a time, and so does batch norm.
        lr: learning rate of Adam; that of the head is `head_lr_factor` times as high (GR's released code: 10).
        weight_decay: of Adam, added to the gradient; not on biases and normalisation (Hill and SPLC: 1e-4).
        schedule: "constant", or "one_cycle" with `lr` at its top (Hill and SPLC); see `optim.schedule`.
        ema: decay of a running average of the weights, which is then validated and kept instead of them (Hill and
            SPLC: 0.9997, after ASL's released code); None = no average.
        linear_init: train only the head for this many epochs at the start (a switch of GR's released code). The
            backbone is then in evaluation mode: its batch norm uses, and keeps, the statistics of its pretraining.
        flip: flip each training image left to right with probability 0.5 (all four papers).
        select: the rule that chooses the epoch: "map", mAP against the validation labels, or another one of
            `analysis.RULES`, which scores the logits against observed labels.
        stop_drop: stop when validation mAP falls this many points below the best (GR: 2, EM: 0); None = never.
        seed: for the order of examples.
        threads: CPU threads while training; None = torch's own choice. With 1, small networks are faster, are not
            slowed down by other processes on the same cores, and give the same bits on any number of cores.
        precision: "auto" is bf16 on a GPU that supports it, fp16 with gradient scaling on other GPUs, and float32 on a
            CPU. Loss and weights are float32, except with "64-true", where the weights are float64.
        accelerator: "auto" is a GPU if there is one.
        tf32: let a GPU multiply float32 matrices in TF32 (10 bits of mantissa).
        channels_last: store images and filters pixel by pixel. Faster on GPUs, and on CPUs by 9 to 30 %.
        compile: use `torch.compile` on the model; worth it for long trainings only.

    Raises:
        ValueError: an unknown setting, or a value of the wrong type or out of range; names the setting and says what
            it should be.
    """

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    accumulate: PositiveInt = 1
    lr: PositiveFloat = 3e-3
    head_lr_factor: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.0
    schedule: Literal["constant", "one_cycle"] = "constant"
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    linear_init: NonNegativeInt = 0
    flip: bool = False
    select: Literal[*RULES] = "map"
    stop_drop: NonNegativeFloat | None = None
    seed: int = 0
    threads: PositiveInt | None = None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"  # of lightning-fabric
    tf32: bool = True
    channels_last: bool = True
    compile: bool = False

    def __new__(cls, **settings):
        known = [f.name for f in fields(cls)]
        for name in settings:
            words.check_name("setting", name, known)
        return super().__new__(cls)

    def __post_init__(self):
        for name, field_type in _types(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value := value.item())
            try:
                field_type.validate_python(value, strict=True)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Input ")
                raise ValueError(f"{name}={value!r}: {reason}") from None
        if self.linear_init >= self.epochs:
            raise ValueError(f"linear_init={self.linear_init}: should be below epochs={self.epochs}")


@cache
def _types(settings: type) -> dict[str, TypeAdapter]:
    return {name: TypeAdapter(kind) for name, kind in get_type_hints(settings, include_extras=True).items()}
