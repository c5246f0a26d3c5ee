"""`Trainer`: a training in progress, with a short method for each step of `train.fit`, and its checkpoints."""

import copy
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spml_core import analysis, metrics
from spml_core.data.files import loading
from spml_core.methods import Step
from spml_core.train import augment, checkpoints, distributed, optim
from spml_core.train.config import Training
from spml_core.train.device import autocast, by_pixel, precision_on
from spml_core.train.predict import predict
from spml_core.words import listed

SHOWN = 8  # images and classes in an error message
PLAIN = ("epoch", "history", "best", "taken")  # attributes of a `Trainer` that a checkpoint keeps as they are


class Trainer:
    """A training in progress: everything a checkpoint holds, and one short method for each step of `train.fit`.

    Attributes:
        model, method: once `fit` has returned, with the weights and the state of the best epoch.
        history: one row per epoch from 0 (before training): epoch, train_loss, val_map (percent), seconds; and
            selection, the score by the rule `config.select`, unless that is val_map.
        val_logits: (epochs + 1) arrays (N, C) float32, from epoch 0.
        best_epoch: the first epoch, from 1, with the highest val_map, or selection.
        device: where it trained; `precision`: what it computed in.
    """

    def __init__(self, model, method, train, val, config: Training, names, carried, place: Path | None):
        self.config, self.val, self.place = config, val, place
        weights = "64-true" if config.precision == "64-true" else "32-true"
        self.fabric = distributed.fabric(config.accelerator, weights)
        self.device = self.fabric.device
        self.precision = precision_on(self.device, config.precision)
        self.inputs, observed = train
        self.observed = observed.to(self.device)
        self.image_names, self.class_names = names or map(range, observed.shape)
        self.model, self.method = model, method.to(self.device)
        self.num_batches = -(-len(self.inputs) // config.batch_size)
        self.restart = method.restart_epoch(config.epochs)
        self.order = torch.Generator().manual_seed(config.seed)
        # Random stream for views and flips, a different one in each process.
        self.noise = torch.Generator(self.device).manual_seed(config.seed + 1 + distributed.rank())
        if config.channels_last:
            self.model.to(memory_format=torch.channels_last)  # 4-dimensional weights only
        if distributed.world_size() > 1 and self.device.type == "cuda":
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
        self.wrapped = self.fabric.setup_module(torch.compile(self.model) if config.compile else self.model)
        self.initial = copy.deepcopy(self.model.state_dict()) if self.restart else None
        self.method.start(self.model, self.observed)
        if carried is not None:
            self.method.load_state_dict(carried)
        self.epoch, self.history, self.val_logits, self.best = 0, [], [], None
        self._new_optimizers()
        self._resume()

    @property
    def _first(self) -> int:
        """The first epoch that counts: the first one since the weights were last initialised."""
        return max(self.restart, 1) if self.epoch >= self.restart else 1

    def _new_optimizers(self) -> None:
        """Create optimizers and schedule for the epochs until the restart, or else until the end."""
        config = self.config
        last = config.epochs if self.epoch >= self.restart else self.restart - 1
        epochs = last - self._first + 1
        self.optimizers = optim.optimizers(self.model, self.method, config, self.device)
        steps = epochs * -(-self.num_batches // config.accumulate)
        self.scheduler = optim.schedule(self.optimizers[0], config.schedule, steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")
        self.ema, self.taken = optim.average(self.model, config.ema), 0

    @property
    def evaluated(self) -> nn.Module:
        return self.model if self.ema is None else self.ema.module

    # --- an epoch ---

    def begin_epoch(self) -> list[Tensor]:
        """Start the next epoch and return the rows of each batch, over all processes."""
        self.epoch += 1
        if self.restart and self.epoch == self.restart:
            self.model.load_state_dict(self.initial)
            self._new_optimizers()
        self.wrapped.train()
        self.frozen = set()  # parameters whose gradients are dropped; DDP wants every gradient computed
        if self.epoch <= self.config.linear_init:
            self.model.eval()
            self.frozen = {*self.model.parameters()} - {*self.model.head.train().parameters()}
        self.losses = torch.zeros(self.num_batches, device=self.device)
        self.finite = torch.zeros(self.observed.shape[1], device=self.device, dtype=torch.int32)
        return list(torch.randperm(len(self.inputs), generator=self.order).split(self.config.batch_size))

    def read(self, batches: list[Tensor]):
        """Yield (inputs of this process's share, row numbers of the whole batch), on the device."""
        shares = [distributed.share(index) for index in batches]
        with closing(loading.batches(self.inputs, shares, self.device)) as loaded:
            for batch, (_, x) in zip(batches, loaded, strict=True):
                yield x, batch.to(self.device, non_blocking=True)

    def loss(self, x: Tensor, index: Tensor) -> Tensor:
        """Return the loss of the whole batch, of which `x` is this process's share."""
        x = _augmented(x, self.config, self.method.views, self.noise)
        with autocast(self.device, self.precision):
            logits = self.wrapped(x)
        logits = logits.float()
        if self.method.views > 1:
            logits = logits.unflatten(0, (self.method.views, -1))  # (views, n, C)
        logits = distributed.gather(logits, len(index))  # (views, N, C)
        logits.register_hook(self._count_finite)
        observed = self.observed.index_select(0, index)
        loss = self.method(logits, observed, Step(self.epoch, self.config.epochs, index))
        if loss.ndim:
            raise ValueError(
                f"method {self.method.name!r} returned shape {tuple(loss.shape)}: return the mean, a scalar"
            )
        return loss

    def _count_finite(self, grad: Tensor) -> None:
        """Count each class's steps with a finite gradient; after the first NaN or infinity, no class has one."""
        self.finite.add_(grad.isfinite().flatten(0, -2).all(0))

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
        for p in self.frozen:
            p.grad = None
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()  # once, however many optimizers there are
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update_parameters(self.model)
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def train_loss(self, batches: list[Tensor]) -> float:
        """Return the mean over the examples of this epoch; raise FloatingPointError if it is not finite."""
        losses = self.losses.double().cpu().numpy()  # the only time per epoch that the host waits
        if self.scaler.is_enabled():
            steps = -(-self.num_batches // self.config.accumulate)
            self.taken = optim.warn_of_skipped(self.optimizers[0], self.taken, steps, self.epoch)
        mean = float(np.average(losses, weights=[len(index) for index in batches]))
        if not np.isfinite(mean):
            self._fail(losses, batches)
        return mean

    def _fail(self, losses: np.ndarray, batches: list[Tensor]) -> None:
        step = int(np.flatnonzero(~np.isfinite(losses))[0])
        images = [self.image_names[n] for n in batches[step].tolist()]
        finite = self.finite.cpu().numpy()
        classes = [self.class_names[c] for c in np.flatnonzero(finite == finite.min())]
        where = f"class {listed(classes, SHOWN)}, " if len(classes) < len(finite) else ""
        raise FloatingPointError(
            f"the loss of method {self.method.name!r} became {losses[step]} in epoch {self.epoch}, step {step + 1} of "
            f"{len(losses)}, {where}images {listed(images, SHOWN)}: lower lr={self.config.lr}, or compute the loss "
            f"from logits without a logarithm of 0.{self._last_good}"
        )

    @property
    def _last_good(self) -> str:
        path = None if self.place is None else checkpoints.latest(self.place)
        return "" if path is None else f" The last good checkpoint is {path}."

    def predict(self, inputs) -> np.ndarray:
        """Return logits (N, C) float32 of the model, or of its running average while it trains."""
        rows = torch.arange(len(inputs)).tensor_split(distributed.world_size())[distributed.rank()]
        with autocast(self.device, self.precision):
            own = predict(self.evaluated, inputs, self.device, rows=rows)
        return np.concatenate(distributed.gather_objects(own))

    def evaluate(self, start: float, train_loss: float = float("nan")) -> None:
        """Add this epoch to the history, and remember weights and state if it is the best."""
        logits = self.predict(self.val[0])
        if not np.isfinite(logits).all():  # caused by the last step, or present before the first
            advice = f"lower lr={self.config.lr}" if self.epoch else "look for NaN or infinity in the inputs"
            raise FloatingPointError(
                f"logits are NaN or infinite after epoch {self.epoch}: {advice}.{self._last_good}"
            )
        val_map = 100 * metrics.average_precision(logits, *self.val[1:]).mean
        seconds = round(time.perf_counter() - start, 3)
        self.val_logits.append(logits)
        row = {"epoch": self.epoch, "train_loss": train_loss, "val_map": float(val_map), "seconds": seconds}
        if self.config.select != "map":
            row["selection"] = analysis.RULES[self.config.select](logits, self.val[1])
        self.history.append(row)
        if self.best_epoch == self.epoch and self.epoch:
            self.best = copy.deepcopy((self.evaluated.state_dict(), self.method.state_dict()))

    @property
    def best_epoch(self) -> int:
        """The best of the epochs that count."""
        counted = self.history[self._first :]
        return max(counted, key=score, default={"epoch": 0})["epoch"]

    @property
    def conditions(self) -> dict[str, float]:
        """The learning rate of the backbone (of a linear head if there is none) at the end of the epoch, and on a GPU
        gpu_memory, the highest so far in GB (1e9 bytes)."""
        now = {"learning_rate": self.optimizers[0].param_groups[0]["lr"]}
        if self.device.type == "cuda":
            now["gpu_memory"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        return now

    def stopped(self) -> bool:
        """Return whether validation mAP has fallen too far."""
        if self.config.stop_drop is None or self.epoch < max(self.restart, 1):
            return False
        best = max(row["val_map"] for row in self.history[self._first :])
        return self.history[-1]["val_map"] < best - self.config.stop_drop

    # --- what a checkpoint holds ---

    @property
    def _parts(self) -> dict:
        """The objects that have a state of their own."""
        parts = {"model": self.model, "method": self.method, "scheduler": self.scheduler, "ema": self.ema}
        parts |= {f"optimizer {n}": optimizer for n, optimizer in enumerate(self.optimizers)}
        return {name: part for name, part in parts.items() if part is not None} | {"scaler": self.scaler}

    def state(self) -> dict:
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        random = (torch.get_rng_state(), cuda, self.noise.get_state())
        return {
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            **{name: getattr(self, name) for name in PLAIN},
            "val_logits": list(map(torch.from_numpy, self.val_logits)),
            "order": self.order.get_state(),
            "random": distributed.gather_objects(random),
        }

    def load(self, state: dict) -> None:
        self.epoch = state["epoch"]
        self._new_optimizers()  # those of this epoch, before or after a restart
        for name in PLAIN:
            setattr(self, name, state[name])
        self.val_logits = [logits.numpy() for logits in state["val_logits"]]
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self.order.set_state(state["order"])
        if len(state["random"]) != distributed.world_size():  # saved by another number of processes
            return
        host, cuda, noise = state["random"][distributed.rank()]
        torch.set_rng_state(host)
        if cuda is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(cuda, self.device)
        if noise.shape == self.noise.get_state().shape:  # else saved on another kind of device
            self.noise.set_state(noise)

    def save(self) -> None:
        """Save a checkpoint; if that fails, such as on a full disk, warn and continue."""
        if self.place is None:
            return
        state = self.state()  # collects a part from every process
        if distributed.rank() > 0:
            return
        try:
            checkpoints.save(self.place, self.epoch, state)
        except OSError as error:
            warnings.warn(
                f"no checkpoint after epoch {self.epoch} ({error}): training continues, but an interruption would "
                f"lose what came after the last one",
                stacklevel=3,
            )

    def _resume(self) -> None:
        if self.place is None:
            return
        path = distributed.broadcast(checkpoints.latest(self.place) if distributed.rank() == 0 else None)
        if path is not None:
            self.load(checkpoints.load(path))

    def finish(self) -> None:
        """Give model and method the state of the best epoch."""
        weights, state = self.best
        self.model.load_state_dict(weights)
        self.method.load_state_dict(state)
        self.ema = None


def score(row) -> float:
    """Return what the epochs of a history are compared by: the score of the rule that chooses, or val_map."""
    return float(row.get("selection", row["val_map"]))


def _augmented(x: Tensor, config: Training, views: int, noise: torch.Generator) -> Tensor:
    """Return a training batch as the network sees it: flipped first, then in several views."""
    if config.flip:
        x = augment.flip(x, noise)
    x = augment.stack_views(x, views, noise)
    return by_pixel(x) if config.channels_last else x
