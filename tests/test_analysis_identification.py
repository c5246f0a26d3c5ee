"""Identified missing labels, pseudo-labels and predictive values, against counts by hand and by other libraries."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import precision_score, recall_score

from spml_core import analysis


def some(seed=0, shape=(300, 4)):
    rng = np.random.default_rng(seed)
    full = (rng.random(shape) < 0.3).astype(int)
    observed = np.where(rng.random(shape) < 0.2, 2 * full - 1, 0)
    return rng.normal(2 * full), observed, full


def test_by_hand():
    found, observed = np.array([[1, 1, 0, 0, 1]]), np.array([[0, 0, 0, 0, 1]])
    result = analysis.identification(found, observed, np.array([[1, 0, 1, 1, 1]]))
    assert (result.found, result.correct) == (2, 1)
    assert (result.precision, result.recall) == (1 / 2, 1 / 3)
    assert result.chance == 3 / 4


def test_against_scikit_learn():
    logits, observed, full = some()
    free = observed == 0
    result = analysis.identification(logits > 0.5, observed, full)
    assert result.precision == pytest.approx(precision_score(full[free], logits[free] > 0.5))
    assert result.recall == pytest.approx(recall_score(full[free], logits[free] > 0.5))


def test_nothing_found_and_nothing_missing():
    nothing = np.zeros((1, 2), bool)
    result = analysis.identification(nothing, np.zeros((1, 2)), np.zeros((1, 2)))
    assert np.isnan([result.precision, result.recall]).all() and result.chance == 0


def test_found_is_a_mask():
    logits, observed, full = some()
    with pytest.raises(ValueError, match="compare the scores with a threshold"):
        analysis.identification(logits, observed, full)


def test_curve_is_the_same_at_each_threshold():
    logits, observed, full = some()
    known = np.random.default_rng(5).random(full.shape) < 0.8
    probs = expit(logits)
    thresholds = [probs[7, 1], 0.1, 0.5, 1]  # one of them a score: it is not above itself
    table = analysis.identification_curve(probs, observed, full, thresholds, known)
    assert table["threshold"].is_monotonic_increasing
    for line in table.itertuples():
        one = analysis.identification(probs > line.threshold, observed, full, known)
        assert (line.found, line.correct) == (one.found, one.correct)
        assert (line.precision, line.recall) == pytest.approx((one.precision, one.recall), nan_ok=True)


def test_pseudo_labels():
    """Two negatives given, one right; the observed label does not count."""
    assigned, observed = np.array([[1, 1, 0, 0, 1]]), np.array([[0, 0, 0, 0, 1]])
    full = np.array([[1, 0, 0, 0, 1]])
    negative = analysis.identification(assigned, observed, full, label=0)
    assert (negative.found, negative.correct, negative.precision, negative.chance) == (2, 1, 0.5, 0.75)
    positive = analysis.identification(assigned, observed, full, label=1)
    assert (positive.found, positive.correct, positive.precision, positive.chance) == (2, 1, 0.5, 0.25)
    assert np.isnan(analysis.identification(0 * assigned, observed, full, label=0).precision)


def test_highest_of_each_class():
    scores = np.array([[0.9, 0.1], [0.8, 0.1], [0.1, 0.1], [0.7, 0.1], [0.2, 0.3]])
    observed = np.array([[1, 0], [0, 0], [0, 0], [0, 0], [0, -1]])
    found = analysis.highest(scores, observed, 0.5)  # 2 of 4 and 2 of 4; equal scores go to the first rows
    assert found.astype(int).T.tolist() == [[0, 1, 0, 1, 0], [1, 1, 0, 0, 0]]
    assert not analysis.highest(scores, observed, 0.2).any()
    assert (analysis.highest(scores, observed, 1) == (observed == 0)).all()
    assert analysis.highest(np.ones((10, 1)), np.zeros((10, 1)), 0.3).sum() == 3  # 0.3 * 10 is 3, not 2.9999


# Groups and classes.


def test_group_means():
    logits = np.array([[2.0, -1.0, 3.0, -4.0], [1.0, 1.0, -3.0, 0.0]])
    observed, full = np.array([[1, 0, 0, -1], [0, 0, 0, 0]]), np.array([[1, 1, 0, 0], [1, 0, 0, 0]])
    table = analysis.group_means(logits, observed, full)
    assert tuple(table.index) == analysis.GROUPS and table["n"].tolist() == [1, 2, 4, 1]
    assert table["mean_abs_logit"].tolist() == [2, 1, 7 / 4, 4]
    assert table["mean_logit"].tolist() == [2, 0, 1 / 4, -4]
    assert table.loc["unannotated positive", "mean_prob"] == pytest.approx(0.5)
    assert table.loc["annotated positive", "mean_minus_log_p"] == pytest.approx(np.log1p(np.exp(-2)))
    far = analysis.group_means([[-1e4]], [[1]], [[1]]).loc["annotated positive"]
    assert far["mean_minus_log_p"] == 1e4
    known = np.ones((2, 4), bool)
    known[0, 1] = known[1, 0] = False
    empty = analysis.group_means(logits, observed, full, known).loc["unannotated positive"]
    assert empty["n"] == 0 and np.isnan(empty["mean_prob"])
    with pytest.raises(ValueError, match=r"known \(1, 4\)"):
        analysis.group_means(logits, observed, full, known[:1])
