"""Average precision: one definition, what is undefined said out loud, and nothing but the order counts."""

import numpy as np
import pytest
import torch

from spml_core.metrics import STEP, average_precision


def column(values):
    return np.asarray(values, float)[:, None]


def ap(scores, full, evaluated=None):
    return average_precision(column(scores), column(full), evaluated).per_class[0]


def paper_ap(scores, full):
    """Sum over thresholds of precision times the gain in recall, counted by hand."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [y for s, y in zip(scores, full, strict=True) if s >= threshold]
        gained = sum(chosen) / sum(full)
        total += (gained - recall) * sum(chosen) / len(chosen)
        recall = gained
    return total


# Classes without positives.


def test_a_class_without_positives_is_undefined():
    result = average_precision([[0.9, 0.3], [0.1, 0.2], [0.8, 0.7]], [[1, 0], [0, 0], [1, 0]])
    assert result.per_class[0] == 1 and np.isnan(result.per_class[1])
    assert (result.undefined, result.mean, result.mean_zero_filled) == ((1,), 1.0, 0.5)
    assert result.evaluated.tolist() == [3, 3]
    assert result.definition == STEP and "step-wise" in STEP


def test_nothing_defined():
    result = average_precision(np.zeros((4, 2)), np.zeros((4, 2)))
    assert result.undefined == (0, 1) and np.isnan(result.mean) and result.mean_zero_filled == 0


# The order, and nothing else.


def test_definition():
    """Labels in ranked order 0, 1, 1, 0, 1: VOC 2010 would say 0.6444, VOC 2007 0.6424."""
    assert ap([5, 4, 3, 2, 1], [0, 1, 1, 0, 1]) == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 3)
    assert round(ap([5, 4, 3, 2, 1], [0, 1, 1, 0, 1]), 4) == 0.5889


def test_against_a_count_by_hand():
    rng = np.random.default_rng(0)
    scores, full = rng.integers(0, 12, (40, 6)) / 4, (rng.random((40, 6)) < 0.3).astype(int)
    result = average_precision(scores, full)
    expected = [paper_ap(scores[:, c].tolist(), full[:, c].tolist()) for c in range(6)]
    np.testing.assert_allclose(result.per_class, expected)
    assert result.mean == pytest.approx(np.mean(expected))


@pytest.mark.parametrize(
    "convert",
    [np.asarray, np.float16, np.float32, lambda z: z / 1e3 - 7, np.exp, lambda z: -np.exp(-z), np.int64],
    ids=["float64", "float16", "float32", "affine", "exp", "1 - sigmoid tail", "int64"],
)
def test_large_logits_do_not_tie(convert):
    scores = convert(np.array([20.0, 21.0, 22.0, 23.0]))[:, None]
    assert average_precision(scores, column([0, 1, 0, 1])).mean == pytest.approx(5 / 6)


@pytest.mark.parametrize("full", [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 1, 0]])
def test_ties_share_one_threshold(full):
    assert ap([0.7] * 6, full) == pytest.approx(1 / 3)


def test_row_order_does_not_matter():
    rng = np.random.default_rng(1)
    scores, full = rng.integers(0, 3, (30, 4)), rng.integers(0, 2, (30, 4))
    order = rng.permutation(30)
    np.testing.assert_allclose(
        average_precision(scores[order], full[order]).per_class, average_precision(scores, full).per_class
    )


def test_scores_may_have_any_sign():
    """Scores inside [0, 1] are not taken for probabilities."""
    assert ap([-2, -1, 0.2, 0.6, 1.5], [0, 0, 1, 1, 1]) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors(dtype):
    scores = torch.tensor([[-2.0, 1.0], [3.0, -1.0], [0.5, 0.0]], dtype=dtype, requires_grad=True)
    full = torch.tensor([[0, 1], [1, 0], [0, 0]], dtype=torch.int8)
    result = average_precision(scores, full, torch.ones(3, 2, dtype=torch.bool))
    assert result.per_class.tolist() == [1, 1] and isinstance(result.mean, float)


# Unknown labels.

KNOWN = np.array([True, False, True, False, True])


@pytest.mark.parametrize("unknown", [(0.95, 0.99), (0.99, 0.95), (0.0, 0.5)])
@pytest.mark.parametrize("stored", [0, 1, -1, float("nan")])
def test_unknown_labels_are_left_out(unknown, stored):
    scores = column([0.9, unknown[0], 0.1, unknown[1], 0.8])
    full = column([1, stored, 0, stored, 1])
    result = average_precision(scores, full, KNOWN[:, None])
    assert result.mean == 1 and result.evaluated.tolist() == [3]


def test_a_row_is_left_out_of_its_class_only():
    scores, full = np.array([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]), np.array([[0, 0], [1, 1], [0, 0]])
    known = np.array([[False, True], [True, True], [True, True]])
    result = average_precision(scores, full, known)
    assert result.per_class.tolist() == [1.0, 0.5] and result.evaluated.tolist() == [2, 3]


def test_a_column_of_unknown_labels_is_undefined():
    result = average_precision(column([1, 2]), column([1, 1]), np.zeros((2, 1), bool))
    assert result.undefined == (0,) and result.evaluated.tolist() == [0] and np.isnan(result.mean)


# Errors name the place.

GOOD = {"scores": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "full": [[1, 0], [0, 1], [1, 1]]}
BAD = [
    ("scores", [[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]], "score of image 1, class 1 is nan"),
    ("scores", [[1.0, 2.0], [3.0, 4.0], [-np.inf, 6.0]], "score of image 2, class 0 is -inf"),
    ("full", [[1, 0], [0, 1], [1, -1]], "label of image 2, class 1 is -1"),
    ("full", [[1, 0], [0.5, 1], [1, 1]], r"label of image 1, class 0 is 0\.5"),
    ("full", [[1, 0], [np.nan, 1], [1, 1]], "label of image 1, class 0 is nan"),
    ("full", [[1, 0, 1], [0, 1, 1]], r"scores \(3, 2\), full \(2, 3\)"),
    ("scores", [1.0, 2.0], r"scores \(2,\)"),
    ("evaluated", [[True, True]], r"evaluated \(1, 2\)"),
]


@pytest.mark.parametrize("name, value, match", BAD)
def test_bad_input(name, value, match):
    with pytest.raises(ValueError, match=match):
        average_precision(**{**GOOD, name: value})
