"""Reliability against torchmetrics and scikit-learn; the fit of k to buckets; labels that occur together."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from spml_core import analysis
from spml_core.analysis import calibration


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
    for norm, value in (("l1", result.ece), ("max", result.mce)):
        assert value == pytest.approx(float(binary_calibration_error(*tensors, n_bins=10, norm=norm)))
    frequency, mean = calibration_curve(full.ravel(), probs.ravel(), n_bins=10)
    np.testing.assert_allclose(result.bins["frequency"], frequency)
    np.testing.assert_allclose(result.bins["mean_prob"], mean)
    assert result.brier == pytest.approx(brier_score_loss(full.ravel(), probs.ravel()))
    assert (result.ece < 0.03) == (power == 1)
    assert (result.bins["frequency_low"] <= result.bins["frequency"]).all() and result.bins[
        "count"
    ].sum() == full.size


def test_bins_of_equal_mass():
    probs, full = calibrated()
    probs **= 4  # most of them small
    result = analysis.reliability(probs, full, 10, "equal_mass")
    assert result.bins["count"].tolist() == [600] * 10
    frequency, mean = calibration_curve(full.ravel(), probs.ravel(), n_bins=10, strategy="quantile")
    np.testing.assert_allclose(result.bins["frequency"], frequency, atol=0.01)
    np.testing.assert_allclose(result.bins["mean_prob"], mean, atol=0.01)
    tied = analysis.reliability(np.array([0.0] * 90 + [0.9] * 10), np.zeros(100), 10, "equal_mass")
    assert tied.bins["count"].sum() == 100 and tied.ece == pytest.approx(0.09)


def test_blocks_and_masks(monkeypatch):
    probs, full = calibrated()
    mask = np.random.default_rng(1).random(probs.shape) < 0.5
    expected = analysis.reliability(probs[mask], full[mask])
    full = np.where(mask, full, -1)
    monkeypatch.setattr(calibration, "BLOCK", 100)
    result = analysis.reliability(probs, full, evaluated=mask, min_count=10**6)
    np.testing.assert_allclose(result.bins.iloc[:, :-1], expected.bins.iloc[:, :-1])
    assert result.brier == pytest.approx(expected.brier)
    assert result.bins["sparse"].all() and np.isnan(result.mce)
    mass = analysis.reliability(probs, full, 10, "equal_mass", mask)  # edges from every 60th score
    assert mass.bins["count"].sum() == mask.sum() and mass.bins["count"].min() > 0


def test_nothing_to_calibrate():
    for binning in calibration.BINNINGS:
        result = analysis.reliability(np.zeros((0, 3)), np.zeros((0, 3)), binning=binning)
        assert np.isnan([result.ece, result.mce, result.brier]).all()


def test_classwise_ece():
    probs, full = calibrated()
    mask = np.ones_like(full, bool)
    mask[:, 1] = False
    errors = analysis.classwise_ece(probs, full, evaluated=mask)
    assert errors[0] == analysis.reliability(probs[:, 0], full[:, 0]).ece and np.isnan(errors[1])


@pytest.mark.parametrize(
    "options, match",
    [
        ({"binning": "quantile"}, "unknown binning 'quantile'"),
        ({"num_bins": 0}, "num_bins must be >= 1"),
        ({"probs": [0.5, 1.5]}, r"found 1\.5.*sigmoid"),
        ({"full": [0, -1]}, r"image 1, class 0 is -1.*not known"),
        ({"full": [0]}, r"probs \(2,\), full \(1,\)"),
        ({"evaluated": [True]}, r"evaluated \(1,\)"),
    ],
)
def test_bad_input(options, match):
    with pytest.raises(ValueError, match=match):
        analysis.reliability(**{"probs": [0.2, 0.8], "full": [0, 1], **options})


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
    assert fit.missing == data[0].size
    np.testing.assert_allclose(fit([0.0, 0.5]), expit([fit.b, fit.w / 2 + fit.b]))


def test_standard_errors_are_those_of_repetition():
    fits = [
        analysis.fit_k_hat_to_buckets(analysis.bucket_false_negatives(*with_k(4, -3, s, (400, 5)), 20))
        for s in range(60)
    ]
    spread = np.std([(f.w, f.b) for f in fits], axis=0, ddof=1)
    np.testing.assert_allclose(np.mean([f.standard_errors for f in fits], axis=0), spread, rtol=0.25)
    inside = [low <= expit(4 * 0.7 - 3) <= high for low, high in (f.band(0.7) for f in fits)]
    assert 0.85 < np.mean(inside) <= 1
    low, high = fits[0].band(np.linspace(0, 1, 5))
    assert low.shape == (5,) and (low < high).all()


def test_buckets_that_no_curve_fits():
    row = np.array([[0.1, 0.3, 0.7, 0.9]])
    for full, match in (([[0, 0, 0, 0]], "0 of 4"), ([[0, 0, 1, 1]], "no finite w")):
        buckets = analysis.bucket_false_negatives(row, np.zeros((1, 4)), np.array(full), 10)
        with pytest.raises(ValueError, match=match):
            analysis.fit_k_hat_to_buckets(buckets)


# Labels that occur together.


def test_cooccurrence():
    full = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    pairs = analysis.cooccurrence(full)
    assert pairs.both.tolist() == [[3, 2, 0], [2, 2, 0], [0, 0, 0]]
    assert pairs.conditional[0].tolist() == [1, 2 / 3, 0] and pairs.conditional[1].tolist() == [1, 1, 0]
    assert np.isnan(pairs.conditional[2]).all() and np.isnan(pairs.phi[2]).all()
    assert pairs.phi[0, 1] == pytest.approx(np.corrcoef(full.T[:2])[0, 1])
    assert pairs.strength == pytest.approx(abs(pairs.phi[0, 1]))


def test_cooccurrence_of_known_labels_only():
    rng = np.random.default_rng(0)
    full, known = (rng.random((500, 3)) < 0.4).astype(int), rng.random((500, 3)) < 0.6
    full[:, 1] |= full[:, 0]
    pairs = analysis.cooccurrence(np.where(known, full, 0), known)
    both = known[:, 0] & known[:, 1]
    assert pairs.known[0, 1] == both.sum()
    assert pairs.phi[0, 1] == pytest.approx(np.corrcoef(full[both][:, :2].T)[0, 1])
    assert pairs.conditional[0, 1] == 1


def test_agreement_of_pairs():
    """Rank correlation over pairs of different classes; the diagonal, and classes without positives, count nothing."""
    full = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    found = analysis.cooccurrence(full)
    between = np.where(np.isnan(found.phi), 99, 5 * found.phi**3)
    np.fill_diagonal(between, -100)
    assert found.agreement(between) == pytest.approx(1)
    assert found.agreement(-between) == pytest.approx(-1)
    with pytest.raises(ValueError, match=r"\(4, 4\).*\(3, 3\)"):
        found.agreement(np.zeros((3, 3)))
