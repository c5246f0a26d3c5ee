"""`fit`: the training loop, on lightning-fabric. Batches of tensors in memory, loss in float32, one read an epoch."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from spml_core import metrics
from spml_core.augment import stack_views
from spml_core.data import loading
from spml_core.methods import Method, Step

# Of what lightning-fabric takes; named here so that a wrong one is an error before any work.
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "64-true")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to optimise. Adam without weight decay is what all four papers use.

    Args:
        lr: learning rate of Adam.
        stop_drop: stop when validation mAP falls this many points below the best (GR: 2, EM: 0); None = never.
        seed: of the order of examples.
        threads: CPU threads while training; None = torch's own choice. Small networks are faster with 1, do not suffer
            when other processes share the cores, and give the same bits on any number of cores.
        precision, accelerator: one of `PRECISIONS`, `ACCELERATORS`; "auto" takes a GPU where there is one.
    """

    epochs: int = 10
    batch_size: int = 64
    lr: float = 3e-3
    stop_drop: float | None = None
    seed: int = 0
    threads: int | None = None
    precision: str = "32-true"
    accelerator: str = "auto"

    def __post_init__(self):
        for name in ("epochs", "batch_size", "threads"):
            value = getattr(self, name)
            if value is None and name == "threads":
                continue
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
        if not isinstance(self.lr, Real) or not self.lr > 0:
            raise ValueError(f"lr must be a number > 0, got {self.lr!r}")
        if self.stop_drop is not None and not (isinstance(self.stop_drop, Real) and self.stop_drop >= 0):
            raise ValueError(
                f"stop_drop is a number of mAP points >= 0, or None for never; got {self.stop_drop!r}"
            )
        for name, known in (("precision", PRECISIONS), ("accelerator", ACCELERATORS)):
            if getattr(self, name) not in known:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: use one of {', '.join(known)}")


@dataclass
class Fitted:
    """What `fit` leaves behind.

    Attributes:
        history: a row for each epoch from 0 (before training): epoch, train_loss, val_map (percent), seconds.
        val_logits: (epochs + 1) arrays (N, C) float32, from epoch 0.
        best_epoch: the first epoch, from 1, with the highest val_map; `model` holds its weights, `method` its state.
        device: name of the device that trained.
    """

    model: nn.Module
    method: Method
    history: list[dict]
    val_logits: list[np.ndarray]
    best_epoch: int
    device: str


def fit(
    model: nn.Module,
    method: Method,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, np.ndarray],
    config: Training,
    *,
    title: str = "",
    progress: bool = True,
    on_epoch: Callable[[dict], None] | None = None,
) -> Fitted:
    """Train, keep the best epoch on validation.

    Args:
        model: inputs -> logits (N, C).
        train: inputs (N, ...) and observed labels (N, C) in {1, 0, -1}.
        val: inputs and the (N, C) labels in {1, 0} that choose the epoch.
        title: what the progress bar says.
        on_epoch: called with each new row of the history; what it raises ends the training.

    Raises:
        ValueError: no validation label is positive, so that nothing can choose the epoch, or the method cannot do its
            work in so many epochs.
        FloatingPointError: the loss or the logits became NaN or infinite; names the epoch.
    """
    if not np.any(val[1] == 1):
        raise ValueError(
            f"none of the {len(val[1])} validation images has a positive label: mAP is undefined"
        )
    method.check(config.epochs)
    from lightning_fabric import Fabric  # sets an environment variable when imported

    fabric = Fabric(accelerator=config.accelerator, devices=1, precision=config.precision)
    (inputs, observed), method = train, method.to(fabric.device)
    observed = observed.to(fabric.device)
    model, *optimizers = fabric.setup(model, *_optimizers(model, method, config.lr))
    method.start(model.module, observed)
    restart = method.restart_epoch(config.epochs)
    initial = copy.deepcopy(model.module.state_dict()) if restart else None
    order = torch.Generator().manual_seed(config.seed)
    noise = torch.Generator(fabric.device).manual_seed(config.seed + 1)  # of the views, a stream of its own
    history, val_logits, best = [], [], (-1.0, 0, None)

    steps = config.epochs * -(-len(inputs) // config.batch_size)
    bar = tqdm(
        total=steps,
        desc=title,
        unit="batch",
        mininterval=0.5,
        leave=False,
        disable=None if progress else True,
    )
    with bar, _threads(config.threads):
        for epoch in range(config.epochs + 1):
            start, total = time.perf_counter(), torch.zeros((), device=fabric.device)
            if restart and epoch == restart:
                model.module.load_state_dict(initial)
                best = (-1.0, 0, None)
                for optimizer in optimizers:
                    optimizer.state.clear()
            model.train()
            batches = (
                torch.randperm(len(inputs), generator=order).split(int(config.batch_size)) if epoch else ()
            )
            for index, x in loading.batches(inputs, batches, fabric.device):
                logits = model(stack_views(x, method.views, noise)).float()
                if method.views > 1:
                    logits = logits.unflatten(0, (method.views, -1))  # (views, N, C)
                loss = method(logits, observed[index], Step(epoch, config.epochs, index))
                for optimizer in optimizers:
                    optimizer.zero_grad()
                if loss.ndim:
                    raise ValueError(
                        f"{_name(method)} returned shape {tuple(loss.shape)}: return the mean, a scalar"
                    )
                fabric.backward(loss)
                for optimizer in optimizers:
                    optimizer.step()
                total += loss.detach() * len(index)
                bar.update()
            train_loss = float(total) / len(inputs) if epoch else float("nan")
            if epoch and not np.isfinite(train_loss):
                raise FloatingPointError(
                    f"the loss of {_name(method)} became {train_loss} in epoch {epoch}: lower lr={config.lr}, or "
                    "compute the loss from logits without a logarithm of 0"
                )
            val_logits.append(predict(model, val[0], fabric.device))
            if not np.isfinite(val_logits[-1]).all():  # by the last step, or before the first
                advice = f"lower lr={config.lr}" if epoch else "look for NaN or infinity in the inputs"
                raise FloatingPointError(f"logits are NaN or infinite after epoch {epoch}: {advice}")
            val_map = 100 * metrics.average_precision(val_logits[-1], val[1]).mean
            seconds = round(time.perf_counter() - start, 3)
            history.append({"epoch": epoch, "train_loss": train_loss, "val_map": val_map, "seconds": seconds})
            bar.set_postfix_str(f"epoch {epoch}/{config.epochs}, validation mAP {val_map:.1f}")
            if on_epoch is not None:
                on_epoch(history[-1])
            if epoch and val_map > best[0]:
                states = (model.module.state_dict(), method.state_dict())
                best = (val_map, epoch, copy.deepcopy(states))
            stoppable = epoch >= max(restart, 1) and config.stop_drop is not None
            if stoppable and val_map < best[0] - config.stop_drop:
                break
    model.module.load_state_dict(best[2][0])
    method.load_state_dict(best[2][1])
    return Fitted(model.module, method, history, val_logits, best[1], _device_name(fabric.device))


def _optimizers(model: nn.Module, method: Method, lr: float) -> list[torch.optim.Optimizer]:
    adam = torch.optim.Adam([{"params": list(model.parameters())}, *method.param_groups(lr)], lr=lr)
    own = method.own_optimizer(lr)
    return [adam] if own is None else [adam, own]


@torch.inference_mode()
def predict(model: nn.Module, inputs: Tensor, device: torch.device, batch_size: int = 512) -> np.ndarray:
    """Logits (N, C) float32 in evaluation mode, every row, in order."""
    model.eval()
    indices = torch.arange(len(inputs)).split(batch_size)
    return torch.cat([model(x).float().cpu() for _, x in loading.batches(inputs, indices, device)]).numpy()


@contextmanager
def _threads(number: int | None):
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _name(method: Method) -> str:
    return f"method {getattr(method, 'name', type(method).__name__)!r}"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
