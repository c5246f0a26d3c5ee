"""`fit`: the training loop, on lightning-fabric. Loss in float32, one read of the device an epoch, exact resume."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from tqdm.auto import tqdm

from spml_core.methods import Method
from spml_core.train import distributed
from spml_core.train.checkpoints import Checkpoints
from spml_core.train.config import ACCELERATORS, PRECISIONS, Training
from spml_core.train.device import name_of, no_search_for_gpus, tf32, threads
from spml_core.train.predict import predict
from spml_core.train.state import Names, Work

__all__ = ["ACCELERATORS", "PRECISIONS", "Abandoned", "Fitted", "Names", "Training", "fit", "predict"]


class Abandoned(Exception):
    """Raised by `on_epoch`: this training is of no use to anybody, and need not be kept to go on from."""


@dataclass
class Fitted:
    """What `fit` leaves behind.

    Attributes:
        history: a row for each epoch from 0 (before training): epoch, train_loss, val_map (percent), seconds.
        val_logits: (epochs + 1) arrays (N, C) float32, from epoch 0.
        best_epoch: the first epoch, from 1, with the highest val_map; `model` holds its weights, `method` its state.
        device: name of the device that trained; `precision`: what it computed in.
        predict: inputs -> logits (N, C) float32 of `model`, as validation was computed.
    """

    model: nn.Module
    method: Method
    history: list[dict]
    val_logits: list[np.ndarray]
    best_epoch: int
    device: str
    precision: str
    predict: Callable[[Tensor], np.ndarray]


def fit(
    model: nn.Module,
    method: Method,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, np.ndarray] | tuple[Tensor, np.ndarray, np.ndarray | None],
    config: Training,
    *,
    checkpoints: Checkpoints | None = None,
    carried: dict | None = None,
    names: Names | None = None,
    title: str = "",
    progress: bool = True,
    on_epoch: Callable[[dict], None] | None = None,
) -> Fitted:
    """Train, keep the best epoch on validation.

    Args:
        model: inputs -> logits (N, C), as it was built: a training that is resumed needs the same start.
        train: inputs (N, ...) and observed labels (N, C) in {1, 0, -1}.
        val: inputs, the (N, C) labels in {1, 0} that choose the epoch, and (N, C) bool which of them are known.
        checkpoints: where to save the training after each epoch, and to go on from if there is something.
        carried: state of the method from an earlier training, in place of a new start.
        names: of the training images and classes, for error messages.
        title: what the progress bar says.
        on_epoch: called with each new row of the history, once it is saved; what it raises ends the training.

    Raises:
        ValueError: no validation label is positive, so that nothing can choose the epoch, or the method cannot do its
            work in so many epochs.
        FloatingPointError: the loss or the logits became NaN or infinite; names the step, its images, the classes and
            the last good checkpoint.
    """
    if not np.any(val[1] == 1):
        raise ValueError(
            f"none of the {len(val[1])} validation images has a positive label: mAP is undefined"
        )
    method.check(config.epochs)
    with threads(config.threads), tf32(config.tf32):
        work = Work(model, method, train, val, config, names, carried)
        work.resume(checkpoints)
        if work.epoch and distributed.rank() == 0:
            tqdm.write(f"{title or 'training'}: going on after epoch {work.epoch}", file=sys.stderr)
        bar = tqdm(
            total=config.epochs * work.num_batches,
            initial=work.epoch * work.num_batches,
            desc=title,
            unit="batch",
            mininterval=0.5,
            leave=False,
            disable=None if progress and distributed.rank() == 0 else True,
        )
        with bar, no_search_for_gpus():
            if not work.history:
                work.evaluate(time.perf_counter())
            while work.epoch < config.epochs and not work.stopped():
                start = time.perf_counter()
                batches = work.begin_epoch()
                with closing(work.read(batches)) as shares:  # an interrupt must leave no worker process
                    for n, (x, index, observed) in enumerate(shares):
                        with work.gradients(n):
                            work.backward(n, work.loss(x, index, observed))
                        if work.completes_step(n):
                            work.step()
                        bar.update()
                work.evaluate(start, work.train_loss(batches))
                work.save(checkpoints)
                bar.set_postfix_str(
                    f"epoch {work.epoch}/{config.epochs}, validation mAP {work.history[-1]['val_map']:.1f}"
                )
                if on_epoch is not None:
                    on_epoch(work.history[-1])
        work.finish()
    return Fitted(
        work.net,
        work.method,
        work.history,
        work.val_logits,
        work.best_epoch,
        name_of(work.device),
        work.precision,
        work.predict,
    )
