"""A training that learned nothing gives a warning, one that learned does not; tests/test_runs.py has real ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from spml_core.runs import symptoms
from spml_core.train import Training


def phase(maps, logits):
    history = [{"val_map": each} for each in maps]
    config, inputs = Training(), range(4000)
    return SimpleNamespace(history=history, val_logits=logits, best_epoch=1, config=config, inputs=inputs)


@pytest.mark.parametrize(
    "maps, scores, expected",
    [
        ([15.0, 15.1], [[1.0], [2.0]], []),
        ([15.0, 15.0], [[1.0], [2.0]], ["never rose"]),
        ([15.0, 14.0, 16.0], [[1.0, 2.0], [1.0, 2.5]], []),  # one class of two may be the same everywhere
        ([15.0, 16.0], [[3.0, 2.0], [3.0, 2.0]], ["the same scores"]),
        ([15.0, 16.0], [[3.0, 2.0]], []),  # one image
    ],
)
def test_symptoms(maps, scores, expected):
    logits = [np.array(scores)] * len(maps)
    found = symptoms.training_warnings(phase(maps, logits))
    assert len(found) == len(expected) and all(
        part in text for part, text in zip(expected, found, strict=True)
    )
    assert not any("too short" in text for text in found) or len(maps) == 2


def test_the_second_phase_is_compared_with_the_first():
    def two(first, second):
        logits = [np.array([[1.0], [2.0]])] * 2
        return symptoms.training_warnings(phase(second, logits), phase(first, logits))

    assert two((20.0, 40.0), (40.0, 41.0)) == []
    (said,) = two((20.0, 40.0), (40.0, 39.0))
    assert "above that of the first phase (40.00; 39.00" in said
    (said,) = two((20.0, 18.0), (18.0, 39.0))
    assert said.startswith("first phase: ") and "untrained network (20.00" in said
