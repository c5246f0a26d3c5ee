"""Average precision and the F1 family: named definitions, undefined values are reported, only the order counts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import average_precision_score, precision_recall_fscore_support
from torchmetrics.functional.classification import (
    multilabel_f1_score,
    multilabel_precision,
    multilabel_recall,
)

from spml_core.metrics import (
    DEFINITIONS,
    Thresholds,
    average_precision,
    f1_family,
    fit_thresholds,
)


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
    assert result.definition == DEFINITIONS["step"] and "step-wise" in result.definition


def test_the_result_says_what_is_undefined():
    text = str(average_precision([[0.9, 0.3], [0.1, 0.2], [0.8, 0.7]], [[1, 0], [0, 0], [1, 0]]))
    assert "mAP over 1 defined class = 1.0" in text and "zero-filled over 2 = 0.5" in text
    assert (
        "undefined classes (fewer than 1 positive, or no known negative): 1;" in text
        and DEFINITIONS["step"] in text
    )


def test_min_positives():
    scores, full = np.arange(8.0).reshape(4, 2), np.array([[0, 0], [0, 1], [1, 1], [0, 1]])
    assert average_precision(scores, full).undefined == ()
    result = average_precision(scores, full, min_positives=2)
    assert (result.undefined, result.mean) == ((0,), 1.0)
    assert "fewer than 2 positives, or no known negative): 0" in str(result)
    with pytest.raises(ValueError, match=r"min_positives must be >= 1.*got 0"):
        average_precision(scores, full, min_positives=0)


def test_nothing_defined():
    result = average_precision(np.zeros((4, 2)), np.zeros((4, 2)))
    assert result.undefined == (0, 1) and np.isnan(result.mean) and result.mean_zero_filled == 0


# The order, and nothing else.


def test_definition():
    """Labels in ranked order 0, 1, 1, 0, 1: VOC 2010 would say 0.6444, VOC 2007 0.6424."""
    assert ap([5, 4, 3, 2, 1], [0, 1, 1, 0, 1]) == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 3)
    assert round(ap([5, 4, 3, 2, 1], [0, 1, 1, 0, 1]), 4) == 0.5889


@pytest.mark.parametrize("name, value", [("step", 0.5889), ("voc2010", 0.6444), ("voc2007", 0.6424)])
def test_three_definitions_three_numbers(name, value):
    result = average_precision(column([5, 4, 3, 2, 1]), column([0, 1, 1, 0, 1]), definition=name)
    assert round(result.mean, 4) == value
    assert result.definition == DEFINITIONS[name] and DEFINITIONS[name] in str(result)


def test_unknown_definition():
    with pytest.raises(ValueError, match=r"unknown definition 'voc'.*step, voc2010, voc2007"):
        average_precision(column([1, 2]), column([0, 1]), definition="voc")


def interpolated(scores, full, recalls):
    """Mean over recalls of the best precision at that recall or above, from every prefix of the ranking."""
    order = np.argsort(-scores)
    hits = full[order].cumsum()
    precision, recall = hits / np.arange(1, len(full) + 1), hits / full.sum()
    return np.mean([precision[recall >= r - 1e-12].max() for r in recalls])


def test_interpolated_definitions_against_a_count_by_hand():
    rng = np.random.default_rng(3)
    for num_positives in (1, 2, 7, 10, 20):  # recalls of 0.3 and the like must not be missed by rounding
        scores, full = rng.normal(size=40), rng.permutation(np.arange(40) < num_positives).astype(int)
        one = {
            name: average_precision(scores[:, None], full[:, None], definition=name).mean
            for name in DEFINITIONS
        }
        steps = np.arange(1, num_positives + 1) / num_positives
        assert one["voc2010"] == pytest.approx(interpolated(scores, full, steps))
        assert one["voc2007"] == pytest.approx(interpolated(scores, full, np.linspace(0, 1, 11)))
        assert one["voc2010"] >= one["step"]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.data())
def test_equals_scikit_learn_with_ties_and_masks(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    levels = data.draw(st.sampled_from([2, 5, 1000]))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, np.int32]))
    scores = rng.integers(-levels, levels, (data.draw(st.integers(1, 60)), 4)).astype(dtype)
    full, known = (rng.random(scores.shape) < 0.4).astype(int), rng.random(scores.shape) < 0.7
    result = average_precision(scores, full, known)
    for c in range(4):
        truth = full[known[:, c], c]
        if truth.any() and (known.all() or not truth.all()):
            expected = average_precision_score(truth, scores[known[:, c], c].astype(float))
            assert result.per_class[c] == pytest.approx(expected, abs=1e-6)
        else:
            assert c in result.undefined


def test_decisions_are_no_scores():
    full = [[1, 0], [0, 1], [1, 1]]
    with pytest.warns(UserWarning, match="only 0 and 1.*before the threshold"):
        average_precision([[1, 0], [0, 1], [0.0, 1.0]], full)


def test_spares_its_input():
    scores, full = np.random.default_rng(0).normal(size=(20, 3)), np.ones((20, 3), int)
    before = scores.copy()
    average_precision(scores, full)
    np.testing.assert_array_equal(scores, before)


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
    assert "3 of 5 evaluated" in str(result)


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


# The F1 family.


def labelled(seed=0, shape=(60, 5), share=0.3):
    rng = np.random.default_rng(seed)
    full = (rng.random(shape) < share).astype(int)
    return rng.normal(size=shape) + full, full


def test_f1_family_against_other_libraries():
    logits, full = labelled()
    result = f1_family(expit(logits), full)
    tensors, options = (torch.from_numpy(logits), torch.from_numpy(full)), {"num_labels": 5}
    for average, names in (("macro", ("CP", "CR", "CF1")), ("micro", ("OP", "OR", "OF1"))):
        functions = (multilabel_precision, multilabel_recall, multilabel_f1_score)
        for name, function in zip(names, functions, strict=True):
            expected = function(torch.sigmoid(tensors[0]), tensors[1], average=average, **options)
            assert result.numbers[name] == pytest.approx(float(expected), abs=1e-6), name
    expected = precision_recall_fscore_support(full, logits > 0)
    np.testing.assert_allclose(result.per_class[["precision", "recall", "f1"]].T, expected[:3])
    np.testing.assert_array_equal(result.per_class["positives"], expected[3])
    cp, cr, cf1, of_means = (result.numbers[name] for name in ("CP", "CR", "CF1", "CF1_of_means"))
    assert of_means == pytest.approx(2 * cp * cr / (cp + cr))
    assert of_means != pytest.approx(cf1, abs=1e-4)  # two definitions, two numbers


def test_threshold_of_a_probability_and_of_a_logit():
    logits, full = np.array([[0.3, -0.3], [-0.3, 0.3]]), np.array([[1, 0], [1, 1]])
    one, other = f1_family(expit(logits), full, 0.5, kind="prob"), f1_family(logits, full, 0, kind="logit")
    assert one.per_class["predicted"].tolist() == other.per_class["predicted"].tolist() == [1, 1]
    assert one.numbers == other.numbers == f1_family(logits, full, kind="logit").numbers
    with pytest.raises(ValueError, match=r"found -0\.3.*kind=\"logit\""):
        f1_family(logits, full, 0.5, kind="prob")


def test_what_f1_leaves_undefined():
    """Class 0 is normal, class 1 has no positive, class 2 a positive and no prediction."""
    scores = np.array([[0.9, 0.9, 0.1], [0.2, 0.1, 0.1]])
    result = f1_family(scores, np.array([[1, 0, 1], [0, 0, 0]]))
    macro, micro = ([result.numbers[letter + name] for name in ("P", "R", "F1")] for letter in "CO")
    assert macro == [0.5, 0.5, 0.5]  # over classes 0 and 2
    assert micro == [0.5, 0.5, 0.5]  # the false positive of class 1 counts here
    assert np.isnan(result.per_class.loc[1, ["precision", "recall", "f1"]].astype(float)).all()
    assert result.per_class.loc[2, "precision"] == 0
    nothing = f1_family(np.zeros((3, 2)), np.zeros((3, 2))).numbers
    assert len(nothing) == 7 and np.isnan(list(nothing.values())).all()


def test_f1_of_evaluated_labels_only():
    scores, full = np.array([[0.9], [0.8], [0.7]]), np.array([[1], [-1], [0]])
    result = f1_family(scores, full, evaluated=np.array([[True], [False], [True]]))
    assert (result.numbers["OP"], result.numbers["OR"], result.per_class.loc[0, "evaluated"]) == (0.5, 1, 2)


# Thresholds.


@pytest.mark.parametrize("kind", ["prob", "logit"])
def test_fitted_thresholds_are_the_best_there_are(kind):
    logits, full = labelled()
    logits = logits.round(1)  # with ties
    scores = expit(logits) if kind == "prob" else logits
    fitted = fit_thresholds(scores, full, kind)
    best = f1_family(scores, full, fitted.values, kind).per_class["f1"]
    for threshold in np.unique(scores):
        assert (best >= f1_family(scores, full, np.full(5, threshold), kind).per_class["f1"] - 1e-12).all()
    assert fitted.neutral == ()


def test_a_class_without_positives_gets_the_neutral_threshold():
    scores = np.array([[0.9, 0.8], [0.7, 0.1], [0.2, 0.3]])
    fitted = fit_thresholds(scores, np.array([[1, 0], [1, 0], [0, 0]]))
    assert fitted.neutral == (1,) and fitted.values == pytest.approx([0.45, 0.5])
    assert fit_thresholds(scores, np.zeros((3, 2)), "logit").values.tolist() == [0, 0]


def test_thresholds_where_everything_is_positive():
    for kind, score in (("prob", 0.4), ("logit", -7.0)):
        scores, full = np.full((3, 1), score), np.ones((3, 1))
        values = fit_thresholds(scores, full, kind).values
        assert f1_family(scores, full, values, kind).numbers["OF1"] == 1


def test_thresholds_never_see_the_test_labels():
    (val, val_full), (test, test_full) = labelled(1), labelled(2)
    fitted = fit_thresholds(val, val_full, "logit")
    assert isinstance(fitted, Thresholds) and fitted.kind == "logit"
    assert 0 < f1_family(test, test_full, fitted, "logit").numbers["OF1"] < 1
    with pytest.raises(ValueError, match="fitted on these very labels"):
        f1_family(val, val_full, fitted, "logit")
    with pytest.raises(ValueError, match="fitted to kind 'logit'"):
        f1_family(expit(test), test_full, fitted)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"kind": "probs"}, "unknown kind of scores 'probs'"),
        ({"threshold": [0.5, 0.5, 0.5]}, r"threshold has shape \(3,\).*\(2,\)"),
        ({"threshold": -0.1}, "lies in"),
        ({"full": [[1, 0], [0, 2]]}, "label of image 1, class 1 is 2"),
        ({"scores": [[0.1, 0.2], [0.3, np.nan]]}, "score of image 1, class 1 is nan"),
    ],
)
def test_bad_input_of_f1(options, match):
    with pytest.raises(ValueError, match=match):
        f1_family(**{"scores": [[0.1, 0.2], [0.3, 0.4]], "full": [[1, 0], [0, 1]], **options})
