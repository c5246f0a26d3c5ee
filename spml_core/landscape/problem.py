"""What a landscape is computed from: a model, images, and losses of the model's logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

from spml_core import methods, words
from spml_core.data.files import loading
from spml_core.methods import Step
from spml_core.runs import Experiment, Run

BATCH_NORM = ("frozen", "recalibrated")
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """A model at its minimum, inputs, and losses of its logits. Nothing here changes `model`.

    Attributes:
        model: inputs -> logits (n, C).
        inputs: (n, ...), on the model's device.
        losses: by name; each takes the logits (m, C) and the rows (m,) of `inputs` that they belong to, and gives a
            scalar, the mean. All are computed from one forward pass.
        batch_norm: "frozen" keeps the running statistics of training. "recalibrated" measures them again at every
            point, on `inputs`, as a user of such weights would do; this takes two forward passes per point.
        batch_size: rows per forward pass.
        note: what a surface's file records about its origin, as JSON.
    """

    model: nn.Module
    inputs: Tensor
    losses: Mapping[str, Loss]
    batch_norm: str = "frozen"
    batch_size: int = 512
    note: dict = field(default_factory=dict)

    def __post_init__(self):
        words.check_name("batch_norm", self.batch_norm, BATCH_NORM)

    def copy(self) -> Problem:
        """Return a copy whose model, in evaluation mode, and losses may be changed; the inputs are shared."""
        model, losses = copy.deepcopy((self.model, dict(self.losses)))
        if self.inputs.ndim == 4:
            model = model.to(memory_format=torch.channels_last)  # convolutions take 15 % less time on a CPU
        return replace(self, model=model.eval(), losses=losses)

    @torch.no_grad()
    def values(self) -> dict[str, float]:
        """Return the losses at these weights, NaN where not finite. Recalibration changes the model: see `copy`."""
        batches = self.inputs.split(self.batch_size)
        if self.batch_norm == "recalibrated":  # torch's `update_bn` would switch on dropout, too
            layers = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # the plain mean over batches
                layer.train()
            for x in batches:
                self.model(x)
            for layer in layers:
                layer.eval()
        logits = torch.cat([self.model(x) for x in batches])
        rows = torch.arange(len(logits), device=logits.device)
        found = {name: float(loss(logits, rows)) for name, loss in self.losses.items()}
        return {name: value if math.isfinite(value) else math.nan for name, value in found.items()}


class FullBCE:
    """Binary cross-entropy with the full truth: the same yardstick for every method.

    Args:
        full: (n, C) truth in {1, 0}.
        known: (n, C) bool, labels that count; None = all.
    """

    def __init__(self, full: Tensor, known: Tensor | None = None):
        self.full = full.float()
        self.known = torch.ones_like(self.full) if known is None else known.float()

    def __call__(self, logits: Tensor, rows: Tensor) -> Tensor:
        known = self.known[rows]
        target = self.full[rows].to(logits.dtype)
        return binary_cross_entropy_with_logits(logits, target, known, reduction="sum") / known.sum()


class MethodLoss:
    """The loss of a method at the end of training: `Step(num_epochs, num_epochs)`. The method's state does not change.

    For GR the schedule is fixed at w(T), b(T), mu(T), sigma(T); k and v are still functions of p, with these constants.
    Label estimates, pseudo-labels and corrections stay those of `method`. Not included are LASD's consistency term,
    which needs further views of an image, and the penalty of l1r and l2r, which needs the weights.

    Args:
        method: with the state of the best epoch.
        observed: (n, C) in {1, 0, -1}.
        index: (n,) the rows of these images in the training set.
    """

    def __init__(self, method: methods.Method, observed: Tensor, index: Tensor, num_epochs: int):
        self.method, self.observed, self.index, self.num_epochs = method, observed, index, num_epochs
        if hasattr(method, "epoch"):
            method.epoch = num_epochs  # this epoch has begun: nothing is decided again

    def __call__(self, logits: Tensor, rows: Tensor) -> Tensor:
        step = Step(self.num_epochs, self.num_epochs, self.index[rows])
        # A method may record what it sees; it does so in copies of its buffers, so that every point has the same state.
        state = {name: buffer.clone() for name, buffer in self.method.named_buffers()}
        arguments = (logits, self.observed[rows], step)
        return functional_call(self.method, state, arguments) if state else self.method(*arguments)


def of_run(run: Run, *, num_images: int = 256, batch_norm: str = "frozen", device: str = "cpu") -> Problem:
    """Return the problem of a finished run: its best weights on training images, "own" loss and "full_bce".

    Args:
        num_images: drawn from the training set, the same for every method; fewer if there are fewer.
        batch_norm: see `Problem`.

    Raises:
        ValueError: the data set has changed since the run was trained.
    """
    experiment = Experiment.of_run(run)
    dataset = experiment.load_data(run.path.parent / "cache")
    if dataset.fingerprint != run.summary["data"]["fingerprint"]:
        raise ValueError(
            f"data set {dataset.name!r} has changed since {run.path.name} was trained: its images or labels differ. "
            "Train the run again."
        )
    inputs = dataset.parts["train"].inputs
    number = len(inputs)
    index = np.random.default_rng(0).choice(number, min(num_images, number), replace=False)
    index = torch.from_numpy(np.sort(index))
    inputs = torch.cat([x for _, x in loading.batches(inputs, index.split(64), device)])

    method = methods.build(experiment.method, len(run.classes), number, **experiment.params)
    if state := run.method_state():
        method.load_state_dict(state)

    labels = run.labels("train")
    observed, full, known = (
        torch.from_numpy(values[index]).to(device) for values in (labels.observed, labels.full, labels.known)
    )
    own = MethodLoss(method.to(device), observed, index.to(device), experiment.epochs)
    return Problem(
        run.model(raw=False).to(device),
        inputs,
        {"own": own, "full_bce": FullBCE(full, known)},
        batch_norm,
        note={"run": run.path.name, "method": experiment.method, "params": experiment.params},
    )
