"""Signs that a training that came to its end learned nothing: `Run.summary["warnings"]`, lines of `spml train`."""

from __future__ import annotations

import numpy as np

from spml_core.train.config import Training
from spml_core.words import count

FEW = 100  # batches, from which a network may well learn nothing yet


def training_warnings(fitted, experiment, num_train: int, first=None) -> list[str]:
    """Return what is suspicious about a training, and about its first phase if there was one; empty if nothing is.

    Args:
        fitted, first: of `train.fit`.
        experiment: resolved; `num_train`: its training images.
    """
    if first is None:
        return _phase(fitted, experiment.training, num_train, "the untrained network")
    found = _phase(first, experiment.linear_training, num_train, "the untrained network")
    return [f"first phase: {text}" for text in found] + _phase(
        fitted, experiment.training, num_train, "the first phase"
    )


def _phase(fitted, config: Training, num_train: int, before: str) -> list[str]:
    found, rate = [], f"is the learning rate right (lr={config.lr:g})?"
    start, best = fitted.history[0]["val_map"], max(row["val_map"] for row in fitted.history[1:])
    if best <= start:
        epochs = len(fitted.history) - 1
        few = " Or was it too short?" if epochs * num_train < FEW * config.batch_size else ""
        found.append(
            f"validation mAP never rose above that of {before} ({start:.2f}; {best:.2f} at best, in "
            f"{count(epochs, 'epoch')}): {rate}{few}"
        )
    scores = fitted.val_logits[fitted.best_epoch]
    if len(scores) > 1 and np.array_equal(scores, np.broadcast_to(scores[:1], scores.shape)):
        found.append(f"the network gives all {len(scores)} validation images the same scores: {rate}")
    return found
