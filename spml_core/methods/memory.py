"""What a method needs to remember about each training example."""

from __future__ import annotations

from numbers import Integral, Real

import torch
from torch import Tensor

from spml_core.losses.common import prepare
from spml_core.methods.base import Method, Step


class Memory(Method):
    """A method with a row of state for each training example, found by `Step.index`.

    Attributes:
        epoch: of the last call, 0 before the first; saved with the buffers, so that a resumed training goes on.
    """

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        if not isinstance(num_examples, Integral) or num_examples < 1:
            raise ValueError(
                f"method {self.name!r} keeps something for each training example: give num_examples, the size of the "
                f"training set (got {num_examples!r})"
            )
        super().__init__(num_classes, int(num_examples), **hyperparameters)
        self.epoch = 0

    def remember(self, name: str, fill: float | bool) -> None:
        """Make a buffer (num_examples, C)."""
        self.register_buffer(name, torch.full((self.num_examples, self.num_classes), fill))

    def rows(self, step: Step, logits: Tensor) -> Tensor:
        """The rows of this batch.

        Raises:
            ValueError: the step has no index, or one of another length.
        """
        if step.index is None or len(step.index) != len(logits):
            given = "none" if step.index is None else f"{len(step.index)} for {len(logits)} images"
            raise ValueError(
                f"method {self.name!r} finds its state by index: give Step(index=...), the (N,) rows of the training "
                f"set that the batch holds (got {given})"
            )
        return step.index.to(logits.device)

    def begins(self, step: Step) -> bool:
        """Whether this is the first call of an epoch."""
        new, self.epoch = step.epoch != self.epoch, step.epoch
        return new

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.epoch)

    def set_extra_state(self, state: Tensor) -> None:
        self.epoch = int(state)


class Recording(Memory):
    """A method that records the predictions of an epoch, to decide on them when the next one begins.

    `recorded`: (num_examples, C) probabilities of unobserved labels, infinite for observed ones and for examples not
    seen yet. They are those of the training pass, each from before its own update.
    """

    def __init__(self, num_classes: int, num_examples: int | None = None, **hyperparameters):
        super().__init__(num_classes, num_examples, **hyperparameters)
        self.remember("recorded", float("inf"))

    @torch.no_grad()
    def record(self, index: Tensor, logits: Tensor, observed: Tensor) -> None:
        z, labels = prepare(logits, observed)
        known = labels.abs()
        p = torch.addcdiv(torch.sigmoid(z), known, 1 - known)  # + 1/0 where known, + 0/1 elsewhere
        self.recorded[index] = p.to(self.recorded.dtype)


def check_number(name: str, value, low: float, high: float, ends: str = "[]") -> None:
    """Raise ValueError unless value is a number in the interval; `ends` says which of its ends belong to it."""
    fits = isinstance(value, Real) and not isinstance(value, bool)
    fits = fits and (low <= value if ends[0] == "[" else low < value)
    fits = fits and (value <= high if ends[1] == "]" else value < high)
    if not fits:
        raise ValueError(f"{name} must be a number in {ends[0]}{low}, {high}{ends[1]}, got {value!r}")
