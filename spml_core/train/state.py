"""`Work`: a training under way, a short method for each thing that `train.fit` does to it, and what is saved of it."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spml_core import metrics
from spml_core.data.files import loading
from spml_core.methods import Method, Step
from spml_core.train import augment, checkpoints, distributed, optim
from spml_core.train.checkpoints import Checkpoints
from spml_core.train.config import Training
from spml_core.train.device import autocast, by_pixel, precision_on
from spml_core.train.predict import predict


class Names(NamedTuple):
    """What error messages call the training images and the classes."""

    images: Sequence[str]
    classes: Sequence[str]


class Work:
    """A training under way: everything a checkpoint holds, and one short method for each thing done to it."""

    def __init__(self, model, method, train, val, config: Training, names, carried):
        self.config, self.names, self.val = config, names, val
        self.fabric = distributed.fabric(
            config.accelerator, "64-true" if config.precision == "64-true" else "32-true"
        )
        self.device = self.fabric.device
        self.precision = precision_on(self.device, config.precision)
        self.inputs, observed = train
        self.observed = observed.to(self.device)
        self.net, self.method = model, method.to(self.device)
        self.num_batches = -(-len(self.inputs) // config.batch_size)
        self.restart = method.restart_epoch(config.epochs)
        self.order = torch.Generator().manual_seed(config.seed)
        # Of views and flips, a stream of its own, and another in each process.
        self.noise = torch.Generator(self.device).manual_seed(config.seed + 1 + distributed.rank())
        if config.channels_last:
            self.net.to(memory_format=torch.channels_last)  # 4-dimensional weights only
        if distributed.world_size() > 1 and self.device.type == "cuda":
            self.net = nn.SyncBatchNorm.convert_sync_batchnorm(self.net)
        self.model = self.fabric.setup_module(torch.compile(self.net) if config.compile else self.net)
        self.initial = copy.deepcopy(self.net.state_dict()) if self.restart else None
        self.method.start(self.net, self.observed)
        if carried is not None:
            self.method.load_state_dict(carried)
        self.epoch, self.history, self.val_logits, self.best = 0, [], [], None
        self.last_good, self.unsaved = None, False
        self._new_optimizers(self.restart - 1 if self.restart else config.epochs)

    def _new_optimizers(self, epochs: int) -> None:
        """For this many epochs from here."""
        config = self.config
        self.optimizers = optim.optimizers(self.net, self.method, config, self.device)
        steps = epochs * -(-self.num_batches // config.accumulate)
        self.scheduler = optim.schedule(self.optimizers[0], config.schedule, steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")
        self.ema, self.taken = optim.average(self.net, config.ema), 0

    @property
    def evaluated(self) -> nn.Module:
        return self.net if self.ema is None else self.ema.module

    # --- an epoch ---

    def begin_epoch(self) -> list[Tensor]:
        """Move the clock; returns the rows of each batch, over all processes."""
        self.epoch += 1
        if self.restart and self.epoch == self.restart:
            self.net.load_state_dict(self.initial)
            self._new_optimizers(self.config.epochs - self.restart + 1)
        self.model.train()
        self._freeze(self.epoch <= self.config.linear_init)
        self.losses = torch.zeros(self.num_batches, device=self.device)
        self.finite = torch.zeros(self.observed.shape[1], device=self.device, dtype=torch.int32)
        return list(torch.randperm(len(self.inputs), generator=self.order).split(int(self.config.batch_size)))

    def _freeze(self, frozen: bool) -> None:
        if not self.config.linear_init:
            return
        head = optim.head_of(self.net)
        kept = {id(p) for p in head.parameters()}
        self.backbone = [p for p in self.net.parameters() if id(p) not in kept]
        self.frozen = frozen
        if frozen:
            self.net.eval()
            head.train()
        if distributed.world_size() == 1:  # DDP wants every gradient: there it is computed and dropped
            for p in self.backbone:
                p.requires_grad_(not frozen)

    def read(self, batches: list[Tensor]):
        """(inputs of this process's share, row numbers and observed labels of the whole batch), on the device."""
        if distributed.world_size() == 1:
            with closing(loading.batches(self.inputs, batches, self.device, self.observed)) as loaded:
                for index, x, observed in loaded:
                    yield x, index, observed
            return
        shares = [distributed.share(index) for index in batches]
        with closing(loading.batches(self.inputs, shares, self.device)) as loaded:
            for batch, (_, x) in zip(batches, loaded, strict=True):
                index = batch.to(self.device)
                yield x, index, self.observed.index_select(0, index)

    def loss(self, x: Tensor, index: Tensor, observed: Tensor) -> Tensor:
        """The loss of the whole batch, of which `x` is this process's share."""
        x = _augmented(x, self.config, self.method.views, self.noise)
        with autocast(self.device, self.precision):
            logits = self.model(x)
        logits = logits.float()
        if self.method.views > 1:
            logits = logits.unflatten(0, (self.method.views, -1))  # (views, n, C)
        logits = distributed.gather(logits, len(index))  # (views, N, C)
        logits.register_hook(self._count_finite)
        loss = self.method(logits, observed, Step(self.epoch, self.config.epochs, index))
        if loss.ndim:
            raise ValueError(
                f"{_name(self.method)} returned shape {tuple(loss.shape)}: return the mean, a scalar"
            )
        return loss

    def _count_finite(self, grad: Tensor) -> None:
        """Count each class's steps with a finite gradient: after the first that is not, no class has one."""
        self.finite.add_(grad.isfinite().flatten(0, -2).all(0))

    def gradients(self, n: int):
        """Between steps, processes need not exchange gradients."""
        if distributed.world_size() == 1 or self.completes_step(n):
            return nullcontext()
        return self.fabric.no_backward_sync(self.model)

    def backward(self, n: int, loss: Tensor) -> None:
        accumulate = self.config.accumulate
        self.losses[n] = loss.detach()
        if accumulate > 1:
            group = n // accumulate * accumulate  # the last one may be shorter
            loss = loss / min(accumulate, self.num_batches - group)
        self.fabric.backward(self.scaler.scale(loss))

    def completes_step(self, n: int) -> bool:
        return (n + 1) % self.config.accumulate == 0 or n + 1 == self.num_batches

    def step(self) -> None:
        if self.config.linear_init and self.frozen:
            for p in self.backbone:
                p.grad = None
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()  # once, whatever the number of optimizers
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update_parameters(self.net)
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def train_loss(self, batches: list[Tensor]) -> float:
        """Mean over the examples of this epoch; raises FloatingPointError if it is not finite."""
        losses = self.losses.double().cpu().numpy()  # the one time an epoch that the host waits
        if self.scaler.is_enabled():
            steps = -(-self.num_batches // self.config.accumulate)
            self.taken = optim.warn_of_skipped(self.optimizers[0], self.taken, steps, self.epoch)
        sizes = np.array([len(index) for index in batches])
        mean = float((losses * sizes).sum() / sizes.sum())
        if not np.isfinite(mean):
            self._fail(losses, batches)
        return mean

    def _fail(self, losses: np.ndarray, batches: list[Tensor]) -> None:
        step = int(np.flatnonzero(~np.isfinite(losses))[0])
        images = batches[step].tolist()
        finite = self.finite.cpu().numpy()
        classes = np.flatnonzero(finite == finite.min()).tolist() if finite.min() < len(losses) else []
        if self.names is not None:
            images = [self.names.images[n] for n in images]
            classes = [self.names.classes[c] for c in classes]
        where = "no class in particular"
        if classes:
            where = "all classes" if len(classes) == len(finite) > 1 else f"class {_some(classes)}"
        good = "" if self.last_good is None else f" The last good checkpoint is {self.last_good}."
        error = FloatingPointError(
            f"the loss of {_name(self.method)} became {losses[step]} in epoch {self.epoch}, step {step + 1} of "
            f"{len(losses)}, {where}, images {_some(images)}: lower lr={self.config.lr}, or compute the loss from "
            f"logits without a logarithm of 0.{good}"
        )
        error.images, error.classes = images, classes
        raise error

    def predict(self, inputs) -> np.ndarray:
        rows = torch.arange(len(inputs)).tensor_split(distributed.world_size())[distributed.rank()]
        with autocast(self.device, self.precision):
            own = predict(self.evaluated, inputs, self.device, rows=rows)
        return np.concatenate(distributed.gather_objects(own))

    def evaluate(self, start: float, train_loss: float = float("nan")) -> None:
        """Add this epoch to the history, and remember weights and state if it is the best."""
        logits = self.predict(self.val[0])
        if not np.isfinite(logits).all():  # by the last step, or before the first
            advice = f"lower lr={self.config.lr}" if self.epoch else "look for NaN or infinity in the inputs"
            good = "" if self.last_good is None else f". The last good checkpoint is {self.last_good}"
            raise FloatingPointError(f"logits are NaN or infinite after epoch {self.epoch}: {advice}{good}")
        val_map = 100 * metrics.average_precision(logits, *self.val[1:]).mean
        seconds = round(time.perf_counter() - start, 3)
        self.val_logits.append(logits)
        self.history.append(
            {"epoch": self.epoch, "train_loss": train_loss, "val_map": float(val_map), "seconds": seconds}
        )
        if self.best_epoch == self.epoch and self.epoch:
            self.best = copy.deepcopy((self.evaluated.state_dict(), self.method.state_dict()))

    @property
    def _counted(self) -> list[dict]:
        """The epochs that may be the best."""
        first = self.restart if self.restart and self.epoch >= self.restart else 1
        return self.history[first:]

    @property
    def best_epoch(self) -> int:
        return max(self._counted, key=lambda row: row["val_map"], default={"epoch": 0})["epoch"]

    def stopped(self) -> bool:
        """Whether validation mAP has fallen too far."""
        if self.config.stop_drop is None or self.epoch < max(self.restart, 1):
            return False
        return self.history[-1]["val_map"] < self.history[self.best_epoch]["val_map"] - self.config.stop_drop

    # --- what a checkpoint holds ---

    def state(self) -> dict:
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        random = (torch.get_rng_state(), cuda, self.noise.get_state())
        return {
            "epoch": self.epoch,
            "model": self.net.state_dict(),
            "method": self.method.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "taken": self.taken,
            "order": self.order.get_state(),
            "random": distributed.gather_objects(random),
            "best": self.best,
            "history": self.history,
            "val_logits": self.val_logits,
        }

    def load(self, state: dict) -> None:
        self.epoch, self.history, self.best = state["epoch"], state["history"], state["best"]
        self.val_logits = [logits.numpy() for logits in state["val_logits"]]
        if self.restart and self.epoch >= self.restart:
            self._new_optimizers(self.config.epochs - self.restart + 1)
        self.net.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for part, saved in ((self.scheduler, state["scheduler"]), (self.ema, state["ema"])):
            if part is not None:
                part.load_state_dict(saved)
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.taken = state["taken"]
        self.order.set_state(state["order"])
        if (
            len(state["random"]) == distributed.world_size()
        ):  # else another number of processes: nothing to match
            host, cuda, noise = state["random"][distributed.rank()]
            torch.set_rng_state(host)
            if cuda is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(cuda, self.device)
            if noise.shape == self.noise.get_state().shape:  # else another kind of device
                self.noise.set_state(noise)

    def save(self, place: Checkpoints | None) -> None:
        """A training does not die of a full disk: it says so once and goes on."""
        if place is None:
            return
        state = self.state()  # every process has a part in it
        if distributed.rank() > 0:
            return
        try:
            self.last_good = place.save(self.epoch, state)
        except OSError as error:
            if self.unsaved:
                return
            self.unsaved = True
            warnings.warn(
                f"no checkpoint after epoch {self.epoch} ({error}): training goes on, but an interruption would lose "
                "what came after the last one",
                stacklevel=3,
            )

    def resume(self, place: Checkpoints | None) -> None:
        if place is None:
            return
        path = distributed.broadcast(place.latest() if distributed.rank() == 0 else None)
        if path is not None:
            self.load(checkpoints.load(path))
            self.last_good = path

    def finish(self) -> None:
        """Give model and method the state of the best epoch."""
        weights, state = self.best
        self.net.load_state_dict(weights)
        self.method.load_state_dict(state)
        self.ema = None
        for p in self.net.parameters():
            p.requires_grad_(True)


def _augmented(x: Tensor, config: Training, views: int, noise: torch.Generator) -> Tensor:
    """What the network sees of a training batch: flips first, then the views of them."""
    if config.flip:
        x = augment.flip(x, noise)
    x = augment.stack_views(x, views, noise)
    return by_pixel(x) if config.channels_last else x


def _name(method: Method) -> str:
    return f"method {getattr(method, 'name', type(method).__name__)!r}"


def _some(items: list, shown: int = 8) -> str:
    text = ", ".join(map(str, items[:shown]))
    return text if len(items) <= shown else f"{text} and {len(items) - shown} more"
