"""Reliability against torchmetrics and scikit-learn; the fit of k to buckets; labels that occur together."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from spml_core import analysis
from spml_core.analysis import missing


def calibrated(seed=0, shape=(2000, 3), power=1.0):
    rng = np.random.default_rng(seed)
    probs = rng.random(shape)
    return probs, (rng.random(shape) < probs**power).astype(int)


# Calibration.


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_against_other_libraries(power):
    probs, full = calibrated(power=power)
    result = analysis.reliability(probs, full, num_bins=10)
    tensors = torch.from_numpy(probs.ravel()), torch.from_numpy(full.ravel())
    assert result.ece == pytest.approx(float(binary_calibration_error(*tensors, n_bins=10, norm="l1")))
    frequency, mean = calibration_curve(full.ravel(), probs.ravel(), n_bins=10)
    np.testing.assert_allclose(result.bins["frequency"], frequency)
    np.testing.assert_allclose(result.bins["mean_prob"], mean)
    assert result.brier == pytest.approx(brier_score_loss(full.ravel(), probs.ravel()))
    assert (result.ece < 0.03) == (power == 1)
    assert (result.bins["frequency_low"] <= result.bins["frequency"]).all() and result.bins[
        "count"
    ].sum() == full.size


def test_blocks_and_masks(monkeypatch):
    probs, full = calibrated()
    mask = np.random.default_rng(1).random(probs.shape) < 0.5
    expected = analysis.reliability(probs[mask][:, None], full[mask][:, None])
    full = np.where(mask, full, -1)
    monkeypatch.setattr(missing, "BLOCK", 100)
    result = analysis.reliability(probs, full, evaluated=mask)
    np.testing.assert_allclose(result.bins, expected.bins)
    assert result.brier == pytest.approx(expected.brier)


def test_nothing_to_calibrate():
    result = analysis.reliability(np.zeros((0, 3)), np.zeros((0, 3)))
    assert np.isnan([result.ece, result.brier]).all()


def test_classwise_ece():
    probs, full = calibrated()
    mask = np.ones_like(full, bool)
    mask[:, 1] = False
    errors = analysis.classwise_ece(probs, full, evaluated=mask)
    assert errors[0] == analysis.reliability(probs[:, :1], full[:, :1]).ece and np.isnan(errors[1])


@pytest.mark.parametrize(
    "options, match",
    [
        ({"num_bins": 0}, "num_bins must be >= 1"),
        ({"probs": [[0.5, 1.5]]}, r"found 1\.5.*sigmoid"),
        ({"full": [[0, -1]]}, r"image 0, class 1 is -1.*not known"),
        ({"full": [[0]]}, r"probs \(1, 2\).*full \(1, 1\)"),
        ({"evaluated": [[True]]}, r"known \(1, 1\)"),
    ],
)
def test_bad_input(options, match):
    with pytest.raises(ValueError, match=match):
        analysis.reliability(**{"probs": [[0.2, 0.8]], "full": [[0, 1]], **options})


# A fit of GR's k to measured buckets.


def with_k(w, b, seed=0, shape=(3000, 5)):
    rng = np.random.default_rng(seed)
    probs = rng.random(shape)
    return probs, np.zeros(shape), (rng.random(shape) < expit(w * probs + b)).astype(int)


def test_fit_to_buckets_is_the_fit_to_labels():
    data = with_k(4, -3)
    fit = analysis.fit_k_hat_to_buckets(analysis.bucket_false_negatives(*data))
    unbinned = analysis.fit_k_hat(*data)
    assert (fit.w, fit.b) == pytest.approx((unbinned.w, unbinned.b), abs=0.01)
    np.testing.assert_allclose(fit.standard_errors, unbinned.standard_errors, rtol=0.01)
    np.testing.assert_allclose(fit([0.0, 0.5]), expit([fit.b, fit.w / 2 + fit.b]))


def test_standard_errors_are_those_of_repetition():
    fits = [
        analysis.fit_k_hat_to_buckets(analysis.bucket_false_negatives(*with_k(4, -3, s, (400, 5)), 20))
        for s in range(60)
    ]
    spread = np.std([(f.w, f.b) for f in fits], axis=0, ddof=1)
    np.testing.assert_allclose(np.mean([f.standard_errors for f in fits], axis=0), spread, rtol=0.25)


def test_buckets_that_no_curve_fits():
    row = np.array([[0.1, 0.3, 0.7, 0.9]])
    for full, match in (([[0, 0, 0, 0]], "0 of 4"), ([[0, 0, 1, 1]], "no finite w")):
        buckets = analysis.bucket_false_negatives(row, np.zeros((1, 4)), np.array(full), 10)
        with pytest.raises(ValueError, match=match):
            analysis.fit_k_hat_to_buckets(buckets)


# Labels that occur together.


def test_correlation_of_labels():
    full = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    phi = analysis.label_correlation(full)
    assert np.isnan(phi[2]).all() and phi[0, 1] == pytest.approx(np.corrcoef(full.T[:2])[0, 1])
    assert analysis.correlation_strength(phi) == pytest.approx(abs(phi[0, 1]))


def test_correlation_of_known_labels_only():
    rng = np.random.default_rng(0)
    full, known = rng.integers(0, 2, (300, 3)), rng.random((300, 3)) < 0.7
    both = known[:, 0] & known[:, 2]
    expected = np.corrcoef(full[both][:, [0, 2]].T)[0, 1]
    assert analysis.label_correlation(full, known)[0, 2] == pytest.approx(expected)


def test_agreement_with_learned_interactions():
    rng = np.random.default_rng(0)
    common = rng.random((500, 1))
    phi = analysis.label_correlation((rng.random((500, 5)) < common * rng.random(5)).astype(int))
    assert analysis.correlation_agreement(phi, 3 * phi) == pytest.approx(1)
    assert analysis.correlation_agreement(phi, -phi) == pytest.approx(-1)
