"""The papers' diagnostics: counts on shared bins, distances between values, fits that recover the true parameters."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binomtest, kstest

from spml_core import analysis


def simulated(w, b, num_images=3000, num_classes=6, seed=0, observed_share=0.2):
    """(probs, observed, full) whose missing labels are positive with probability sigmoid(w p + b)."""
    rng = np.random.default_rng(seed)
    probs = rng.random((num_images, num_classes))
    full = (rng.random(probs.shape) < expit(w * probs + b)).astype(int)
    observed = np.zeros_like(full)
    # Labels that are no longer missing; an even split of 1 and -1 would bend the fit if they entered it.
    shown = rng.random(probs.shape) < observed_share
    observed[shown] = rng.choice([1, -1], shown.sum())
    full[observed == 1], full[observed == -1] = 1, 0
    return probs, observed, full


def row(*values):
    return np.array([values], float)


# Buckets.


def test_buckets_share_one_grid():
    probs = row(0.6, 0.9, 0.1, 0.4)
    buckets = analysis.bucket_false_negatives(probs, np.zeros((1, 4)), row(1, 1, 0, 0), num_bins=4)
    assert buckets.low.tolist() == [0, 0.25, 0.5, 0.75] and buckets.high.tolist() == [0.25, 0.5, 0.75, 1]
    assert buckets.ratio.tolist() == [0, 0, 1, 1]
    assert buckets.missing.tolist() == [1, 1, 1, 1] and buckets.false_negatives.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(buckets.mean_prob, [0.1, 0.4, 0.6, 0.9])


def test_only_missing_labels_count():
    probs, observed = row(0.1, 0.2, 0.3, 0.4, 0.4), row(1, -1, 0, 0, 0)
    buckets = analysis.bucket_false_negatives(probs, observed, row(1, 0, 1, 0, 0), num_bins=1)
    assert (buckets.missing.tolist(), buckets.false_negatives.tolist()) == ([3], [1])
    assert buckets.ratio[0] == pytest.approx(1 / 3)


def test_an_empty_bin_says_so():
    buckets = analysis.bucket_false_negatives(row(0.1), row(0), row(1), num_bins=2)
    assert buckets.missing.tolist() == [1, 0]
    assert np.isnan(buckets.ratio[1]) and np.isnan(buckets.mean_prob[1])
    assert (buckets.ratio_low[1], buckets.ratio_high[1]) == (0, 1)


def test_nothing_is_missing():
    buckets = analysis.bucket_false_negatives(row(0.1, 0.9), row(1, -1), row(1, 0), num_bins=3)
    assert buckets.missing.sum() == 0 and np.isnan(buckets.ratio).all()


@pytest.mark.parametrize("num_bins", [1, 3, 10, 100])
def test_a_score_on_an_edge_belongs_to_the_bin_above(num_bins):
    """0.29 * 100 rounds below 29; numpy.histogram on the same edges decides."""
    probs = np.linspace(0, 1, num_bins + 1)[None]
    buckets = analysis.bucket_false_negatives(probs, np.zeros_like(probs), np.zeros_like(probs), num_bins)
    expected, edges = np.histogram(probs, num_bins, (0, 1))
    np.testing.assert_array_equal(buckets.missing, expected)
    np.testing.assert_array_equal(buckets.low, edges[:-1])
    assert (buckets.low <= buckets.mean_prob).all() and (buckets.mean_prob <= buckets.high).all()


def test_buckets_by_loop():
    probs, observed, full = simulated(3, -2, num_images=200)
    table = analysis.bucket_false_negatives(probs, observed, full, num_bins=7)
    assert len(table) == 7 and table["missing"].sum() == (observed == 0).sum()
    for line in table.itertuples():
        inside = (observed == 0) & (probs >= line.low) & (probs < line.high)
        assert (line.missing, line.false_negatives) == (inside.sum(), full[inside].sum())
        assert line.ratio == pytest.approx(full[inside].mean())
        assert line.mean_prob == pytest.approx(probs[inside].mean())
        interval = binomtest(int(full[inside].sum()), int(inside.sum())).proportion_ci(0.95, "wilson")
        assert (line.ratio_low, line.ratio_high) == pytest.approx((interval.low, interval.high))


def test_probabilities_of_exactly_zero_and_one():
    """A saturated model: both ends are counted and nothing divides by zero."""
    probs, full = row(0, 0, 1, 1), row(0, 1, 1, 1)
    buckets = analysis.bucket_false_negatives(probs, np.zeros((1, 4)), full, num_bins=100)
    assert (buckets.missing[0], buckets.missing[99], buckets.missing.sum()) == (2, 2, 4)
    assert (buckets.ratio[0], buckets.ratio[99]) == (0.5, 1.0)
    positives, negatives = probs[full == 1], probs[full == 0]
    assert (positives.tolist(), negatives.tolist()) == ([0, 1, 1], [0])


# Intervals.


def test_wilson_interval():
    pairs = [(s, n) for n in (1, 2, 7, 100, 12345) for s in {0, 1, n // 2, n - 1, n}]
    successes, trials = np.array(pairs).T
    low, high = analysis.wilson(successes, trials)
    for i, (s, n) in enumerate(pairs):
        expected = binomtest(s, n).proportion_ci(0.95, "wilson")
        assert (low[i], high[i]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_interval_holds_its_proportion():
    """Exactly, since matplotlib rejects an error bar of -1e-18."""
    trials = np.arange(1, 2000)
    for successes in (np.zeros_like(trials), trials, trials // 3):
        low, high = analysis.wilson(successes, trials)
        assert (low >= 0).all() and (low <= successes / trials).all()
        assert (high <= 1).all() and (high >= successes / trials).all()
    assert np.array(analysis.wilson(0, 0)).tolist() == [0, 1]


# The shape of k.


@pytest.mark.parametrize("a", [0, 0.25, 1 / 1.46, 0.99, 1])
def test_equation_6(a):
    p = np.linspace(0, 1, 101)
    k = analysis.k_hat_from_annotation_rate(p, a)
    assert k[0] == 0 and k[-1] == (a < 1)
    assert np.isfinite(k).all() and (np.diff(k) >= 0).all() and (k <= p + 1e-15).all()
    if a == 0:  # nothing is ever observed: k is p
        np.testing.assert_array_equal(k, p)
    if a == 1:  # every positive is observed: nothing is missing
        assert (k == 0).all()


def test_equation_6_by_hand():
    assert analysis.k_hat_from_annotation_rate(0.5, 0.5) == pytest.approx(1 / 3)
    rng = np.random.default_rng(0)  # and by simulation, with labels selected completely at random
    y = rng.random(200_000) < 0.7
    missing = ~(y & (rng.random(200_000) < 0.4))
    assert analysis.k_hat_from_annotation_rate(0.7, 0.4) == pytest.approx(y[missing].mean(), abs=0.005)


@pytest.mark.parametrize("a", [-0.1, 1.46, float("nan")])
def test_annotation_rate_is_a_probability(a):
    with pytest.raises(ValueError, match=f"got {a}"):
        analysis.k_hat_from_annotation_rate(0.5, a)


def test_equation_7():
    np.testing.assert_allclose(
        analysis.k_hat_logistic([0, 0.5, 1], 2, -2), 1 / (1 + np.exp([2, 1, 0])), rtol=1e-14
    )
    assert analysis.k_hat_logistic(0.5, 1e6, -1e6) == 0 and analysis.k_hat_logistic(0.5, 1e6, 0) == 1


@pytest.mark.parametrize("w, b", [(0, -2), (2, -2), (10, -8), (-3, 1)])
def test_fit_recovers_what_made_the_data(w, b):
    fitted = analysis.fit_k_hat(*simulated(w, b))
    assert (fitted.w, fitted.b) == pytest.approx((w, b), abs=0.5)


@pytest.mark.parametrize("width", [1.0, 1e-3])
def test_fit_is_maximum_likelihood(width):
    """Without a penalty: an untrained network's scores lie close together, and a penalty would flatten their slope."""
    probs, observed, full = simulated(4, -2, num_images=300)
    fit = analysis.fit_k_hat(0.5 + width * (probs - 0.5), observed, full)
    missing = observed == 0
    x, y = probs[missing] - 0.5, full[missing]
    best = minimize(lambda t: np.logaddexp(0, (1 - 2 * y) * (t[0] * x + t[1])).sum(), (0, 0), tol=1e-9)
    assert (fit.w * width, fit.b + 0.5 * fit.w) == pytest.approx(best.x, rel=1e-3, abs=1e-3)


UNFITTABLE = [
    ("no positive", row(0.1, 0.5, 0.9), row(0, 0, 0), "0 of 3"),
    ("no negative", row(0.1, 0.5, 0.9), row(1, 1, 1), "3 of 3"),
    ("separated", row(0.1, 0.2, 0.7, 0.8), row(0, 0, 1, 1), "no finite w"),
    ("separated downwards", row(0.1, 0.2, 0.7, 0.8), row(1, 1, 0, 0), "no finite w"),
    ("constant", row(0.5, 0.5, 0.5), row(1, 0, 0), "no finite w"),
]


@pytest.mark.parametrize("_, probs, full, match", UNFITTABLE, ids=[line[0] for line in UNFITTABLE])
def test_nothing_to_fit(_, probs, full, match):
    with pytest.raises(ValueError, match=match):
        analysis.fit_k_hat(probs, np.zeros_like(probs), full)


# Is the slope chance?


def untrained(seed, num_images=60, num_classes=8):
    """Return scores like those of a random head: one level per class, little variation by image; unequal classes."""
    rng = np.random.default_rng(seed)
    probs = expit(rng.normal(0, 1, num_classes) + rng.normal(0, 0.1, (num_images, num_classes)))
    full = rng.random(probs.shape) < rng.uniform(0.05, 0.5, num_classes)
    return probs, np.zeros(probs.shape), full.astype(int)


def test_slope_p_values_are_uniform_under_the_null():
    p_values = np.array(
        [analysis.slope_test(*untrained(s), permutations=19, seed=1000 + s).p_value for s in range(60)]
    )
    assert set(np.round(20 * p_values, 9)) <= set(range(1, 21))
    spread = np.random.default_rng(0).random(60) / 20  # from steps of 1/20 to a continuous uniform
    assert kstest(p_values - spread, "uniform").pvalue > 0.01


@pytest.mark.parametrize("w, b", [(6, -4), (-6, 1)])
def test_slope_of_a_trained_model_is_no_chance(w, b):
    data = simulated(w, b, num_images=300)
    result = analysis.slope_test(*data, permutations=99)
    assert result.p_value == 0.01 and len(result.null) == 99
    assert np.sign(result.w) == np.sign(w)


def test_slope_test_agrees_with_the_fit_where_the_curve_is_flat():
    data = simulated(0.3, -1, num_images=2000)
    assert analysis.slope_test(*data, permutations=1).w == pytest.approx(analysis.fit_k_hat(*data).w, rel=0.1)


def test_slope_test_is_reproducible_and_spares_its_input():
    probs, observed, full = untrained(0)
    before = probs.copy()
    one, other = (analysis.slope_test(probs, observed, full, permutations=5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.null, other.null)
    np.testing.assert_array_equal(probs, before)
    assert len(np.unique(one.null)) > 1


def test_slope_with_one_class_is_no_evidence():
    """Shuffling one class changes nothing, so every permutation is as extreme."""
    probs, observed, full = simulated(6, -4, num_images=300, num_classes=1)
    assert analysis.slope_test(probs, observed, full, permutations=9).p_value == 1


# Distances.


def test_wasserstein_is_on_values():
    """On the counts of two histograms the distance would be 0.2."""
    assert analysis.wasserstein([0.1, 0.2, 0.3], [0.7, 0.8, 0.9]) == pytest.approx(0.6)
    assert analysis.wasserstein([0.7, 0.8, 0.9], [0.1, 0.2, 0.3]) == pytest.approx(0.6)
    assert analysis.wasserstein([[0.1], [0.2]], [0.1, 0.2]) == 0
    assert analysis.wasserstein([0.0], [1.0]) == 1
    assert analysis.wasserstein([0.0, 1.0], [0.5]) == pytest.approx(0.5)  # groups of unequal size


@pytest.mark.parametrize("positives, negatives", [([], [0.5]), ([0.5], []), ([], [])])
def test_wasserstein_of_an_empty_group_is_undefined(positives, negatives):
    assert np.isnan(analysis.wasserstein(positives, negatives))


def test_wasserstein_builds_no_matrix_of_distances():
    """A matrix of all distances would need 32 GB here."""
    rng = np.random.default_rng(0)
    positives, negatives = rng.random(200_000), 0.5 * rng.random(20_000)
    assert analysis.wasserstein(positives, negatives) == pytest.approx(0.25, abs=0.01)


# Errors, the same for all that take (probs, observed, full).

BAD = [
    ("logits", {"probs": row(0.5, 3.2)}, r"found 3\.2.*sigmoid"),
    ("negative logit", {"probs": row(-0.5, 0.9)}, r"found -0\.5.*sigmoid"),
    ("NaN", {"probs": row(0.5, np.nan)}, "found nan"),
    ("infinity", {"probs": row(0.5, np.inf)}, "found inf"),
    ("shape", {"full": row(1, 0, 1)}, r"probs \(1, 2\), observed \(1, 2\), full \(1, 3\)"),
    ("one dimension", {"probs": np.ones(2), "observed": np.ones(2), "full": np.ones(2)}, r"\(2,\)"),
    ("unknown truth", {"full": row(1, -1)}, r"image 0, class 1 is -1"),
    ("truth NaN", {"full": row(np.nan, 1)}, r"image 0, class 0 is nan"),
]
FUNCTIONS = ["bucket_false_negatives", "fit_k_hat", "slope_test"]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("_, bad, match", BAD, ids=[line[0] for line in BAD])
def test_bad_input(name, _, bad, match):
    with pytest.raises(ValueError, match=match):
        getattr(analysis, name)(**{"probs": row(0.2, 0.8), "observed": row(0, 0), "full": row(1, 0), **bad})


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="num_bins must be >= 1, got 0"):
        analysis.bucket_false_negatives(row(0.5), row(0), row(1), num_bins=0)
    with pytest.raises(ValueError, match="found 3"):
        analysis.k_hat_from_annotation_rate([0.5, 3.0], 0.5)
