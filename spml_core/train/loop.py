"""`fit`: the training loop, on lightning-fabric. Loss in float32, one read of the device per epoch, exact resume."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from tqdm.auto import tqdm

from spml_core.methods import Method
from spml_core.train import distributed
from spml_core.train.config import Training
from spml_core.train.device import tf32, threads
from spml_core.train.state import Trainer


class Abandoned(Exception):
    """Raised by `on_epoch` to give up a training: nothing is kept to resume from."""


def fit(
    model: nn.Module,
    method: Method,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, np.ndarray] | tuple[Tensor, np.ndarray, np.ndarray | None],
    config: Training,
    *,
    checkpoints: Path | None = None,
    carried: dict | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    title: str = "",
    progress: bool = True,
    on_epoch: Callable[[dict], None] | None = None,
) -> Trainer:
    """Train, and return the trainer with the best epoch on validation.

    Args:
        model: inputs -> logits (N, C), as it was built: a resumed training needs the same initial weights.
        train: inputs (N, ...) and observed labels (N, C) in {1, 0, -1}.
        val: inputs, the (N, C) labels in {1, 0} that choose the epoch, and (N, C) bool which of them are known (for a
            rule other than "map", all of them).
        checkpoints: folder in which the training is saved after each epoch, and from which it resumes.
        carried: state of the method from an earlier training, instead of a new one.
        names: names of the training images and of the classes, for error messages; None = their numbers.
        title: title of the progress bar.
        on_epoch: called with each new row of the history and `Trainer.conditions`, once it is saved; an exception from
            it ends the training.

    Raises:
        ValueError: no validation label is positive or none is known to be negative, so that no epoch can be chosen, or
            the method does not work with this number of epochs.
        FloatingPointError: the loss or the logits became NaN or infinite; names the step, its images, the classes and
            the last good checkpoint.
    """
    if not np.any(val[1] == 1):
        raise ValueError(
            f"none of the {len(val[1])} validation images has a positive label: mAP is undefined"
        )
    if len(val) > 2 and val[2] is not None and not ((val[1] != 1) & val[2]).any():
        raise ValueError(
            "no label of the validation images is known to be absent, so mAP is undefined. Choose the epoch by "
            "observed labels: spml train -o val_labels observed -o select ranking"
        )
    method.check(config.epochs)
    with threads(config.threads), tf32(config.tf32):
        trainer = Trainer(model, method, train, val, config, names, carried, checkpoints)
        if trainer.epoch and distributed.rank() == 0:
            tqdm.write(f"{title or 'training'}: resuming after epoch {trainer.epoch}", file=sys.stderr)
        total, done = config.epochs * trainer.num_batches, trainer.epoch * trainer.num_batches
        shown = None if progress and distributed.rank() == 0 else True  # None: on a terminal
        options = {"desc": title, "unit": "batch", "mininterval": 0.5, "leave": False, "disable": shown}
        with tqdm(total=total, initial=done, **options) as bar:
            if not trainer.history:
                trainer.evaluate(time.perf_counter())
            while trainer.epoch < config.epochs and not trainer.stopped():
                start = time.perf_counter()
                batches = trainer.begin_epoch()
                with closing(trainer.read(batches)) as shares:  # an interrupt must leave no worker process
                    for n, (x, index) in enumerate(shares):
                        last = trainer.completes_step(n)  # before that, processes need not exchange gradients
                        with trainer.fabric.no_backward_sync(trainer.wrapped, enabled=not last):
                            trainer.backward(n, trainer.loss(x, index))
                        if last:
                            trainer.step()
                        bar.update()
                trainer.evaluate(start, trainer.train_loss(batches))
                trainer.save()
                row = trainer.history[-1] | trainer.conditions
                bar.set_postfix_str(
                    f"epoch {trainer.epoch}/{config.epochs}, validation mAP {row['val_map']:.1f}"
                )
                if on_epoch is not None:
                    on_epoch(row)
        trainer.finish()
    return trainer
