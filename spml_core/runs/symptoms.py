"""Signs that a training that came to its end learned nothing: `Run.summary["warnings"]`, lines of `spml train`."""

from __future__ import annotations

import numpy as np

from spml_core.train.config import Training

FEW = 100  # batches, from which a network may well learn nothing yet


def of(fitted, experiment, num_train: int, first=None) -> list[str]:
    """What is to be said of a training, and of its first phase if there was one; empty if it looks well.

    Args:
        fitted, first: of `train.fit`.
        experiment: resolved; `num_train`: its training images.
    """
    found, before = [], "the untrained network"
    if first is not None:
        found += [
            f"first phase: {text}" for text in _phase(first, experiment.linear_training, num_train, before)
        ]
        before = "the first phase"
    return found + _phase(fitted, experiment.training, num_train, before)


def _phase(fitted, config: Training, num_train: int, before: str) -> list[str]:
    found, rate = [], f"is the learning rate right (lr={config.lr:g})?"
    start, best = fitted.history[0]["val_map"], max(row["val_map"] for row in fitted.history[1:])
    if best <= start:
        epochs = len(fitted.history) - 1
        few = " Or was it too short?" if epochs * num_train < FEW * config.batch_size else ""
        found.append(
            f"validation mAP never rose above that of {before} ({start:.2f}; {best:.2f} at best, in {epochs} "
            f"epoch{'s' if epochs > 1 else ''}): {rate}{few}"
        )
    scores = fitted.val_logits[fitted.best_epoch]
    if len(scores) > 1 and np.array_equal(scores, np.broadcast_to(scores[:1], scores.shape)):
        found.append(f"the network gives all {len(scores)} validation images the same scores: {rate}")
    return found
