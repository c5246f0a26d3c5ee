"""Methods that keep state for each training example."""

from numbers import Integral
from typing import ClassVar

import torch
from torch import Tensor

from spml_core.losses.common import prepare
from spml_core.methods.base import Method, Step


class Memory(Method):
    """A method with one row of state per training example, found by `Step.index`.

    Attributes:
        remembers: its buffers (num_examples, C), by name, with their initial values.
        epoch: epoch of the last call, 0 before the first; saved with the buffers, so that an interrupted run resumes.
    """

    remembers: ClassVar[dict[str, float | bool]] = {}

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        if not isinstance(num_examples, Integral) or num_examples < 1:
            raise ValueError(
                f"method {self.name!r} keeps something for each training example: give num_examples, the size of the "
                f"training set (got {num_examples!r})"
            )
        super().__init__(num_classes, int(num_examples), **hyperparameters)
        self.epoch = 0
        for name, fill in self.remembers.items():
            self.remember(name, fill)

    def remember(self, name: str, fill: float | bool) -> None:
        """Make a buffer (num_examples, C)."""
        self.register_buffer(name, torch.full((self.num_examples, self.num_classes), fill))

    def forward(self, logits, observed, step):
        self.check(step.num_epochs)
        index = self.rows(step, logits)
        if step.epoch != self.epoch:
            self.epoch = step.epoch
            self.begin(step)
        self.record(index, logits, observed, step)
        return super().forward(logits, observed, step)

    def begin(self, step: Step) -> None:
        """Decide on labels from the stored state; called at the first step of each epoch."""

    def record(self, index: Tensor, logits: Tensor, observed: Tensor, step: Step) -> None:
        """Store what is needed of this batch in its rows; called at each step."""

    def kept(self, name: str, step: Step) -> Tensor:
        """Return the rows of a buffer that belong to this batch, (N, C)."""
        state = getattr(self, name)
        return state.index_select(0, step.index.to(state.device))

    def rows(self, step: Step, logits: Tensor) -> Tensor:
        """Return the rows of this batch.

        Raises:
            ValueError: the step has no index, or one of another length or with rows that do not exist.
        """
        if fault := self._fault(step.index, len(logits)):
            raise ValueError(
                f"method {self.name!r} finds its state by index: give Step(index=...), the (N,) rows of the training "
                f"set that the batch holds (got {fault})"
            )
        return step.index.to(logits.device)

    def _fault(self, index, num: int) -> str:
        if not isinstance(index, Tensor):
            return "none" if index is None else f"a {type(index).__name__}, no tensor"
        if index.shape != (num,):
            return f"{len(index) if index.ndim == 1 else tuple(index.shape)} for {num} images"
        if index.is_floating_point() or index.dtype == torch.bool:
            return f"numbers of type {index.dtype}"
        # On other devices, reading values would wait for the device; under torch.func there are none to read.
        if index.device.type == "cpu" and num and not torch._C._are_functorch_transforms_active():
            low, high = index.numpy().min(), index.numpy().max()
            if low < 0 or high >= self.num_examples:
                return f"rows {low} to {high}, of a method built for num_examples={self.num_examples}"
        return ""

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.epoch)

    def set_extra_state(self, state: Tensor) -> None:
        self.epoch = int(state)


class Recording(Memory):
    """A method that records the predictions of an epoch and makes decisions from them when the next one begins.

    `recorded`: (num_examples, C) probabilities of unobserved labels, infinite for observed ones and for examples not
    seen yet. They come from the training pass, each from before the update of its own batch.
    """

    remembers: ClassVar = {"recorded": float("inf")}

    @torch.no_grad()
    def record(self, index, logits, observed, step):
        z, labels = prepare(logits, observed)
        known = labels.abs()
        p = torch.addcdiv(torch.sigmoid(z), known, 1 - known)  # + 1/0 where known, + 0/1 elsewhere
        self.recorded[index] = p.to(self.recorded.dtype)
