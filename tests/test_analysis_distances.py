"""Shared bins, weights, empty groups, and ten million scores in bounded memory."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import gaussian_kde, wasserstein_distance

from spml_core import analysis
from spml_core.analysis import distances, missing

A, B = [0.1, 0.2, 0.3], [0.7, 0.8, 0.9]


def row(*values):
    return np.array([values], float)


def some(seed=0, shape=(400, 5)):
    rng = np.random.default_rng(seed)
    probs, full = rng.random(shape), (rng.random(shape) < 0.3).astype(int)
    observed = np.where(rng.random(shape) < 0.2, 2 * full - 1, 0)
    return probs, observed, full


# Wasserstein.


def test_values_and_weighted_bins_agree():
    """On the counts themselves the distance would be 0.2."""
    assert analysis.wasserstein(A, B) == pytest.approx(0.6)
    centres = np.linspace(0.1, 0.9, 9)
    counts = [np.histogram(group, np.linspace(0.05, 0.95, 10))[0] for group in (A, B)]
    assert analysis.wasserstein(centres, centres, *counts) == pytest.approx(0.6)
    assert analysis.wasserstein(A, A, [1, 0, 0], [0, 0, 5]) == pytest.approx(0.2)


@pytest.mark.parametrize("weights, match", [([1, 2], "same size"), ([1, -1, 1], "non-negative")])
def test_bad_weights(weights, match):
    with pytest.raises(ValueError, match=match):
        analysis.wasserstein(A, B, weights)


def test_an_empty_group_is_undefined():
    distance = analysis.wasserstein([], B)
    assert analysis.or_undefined(distance, 0) == "undefined (n=0)"
    assert analysis.or_undefined(analysis.wasserstein(A, B), 3) == "0.60"
    assert np.isnan(analysis.wasserstein(A, B, [0, 0, 0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_are_finite(bad):
    with pytest.raises(ValueError, match="scores must be finite"):
        analysis.wasserstein([0.1, bad], B)


@pytest.mark.parametrize("scale, shift", [(1, 0), (30, -7)])
def test_many_scores_are_counted_on_a_grid(monkeypatch, scale, shift):
    rng = np.random.default_rng(0)
    groups = scale * rng.beta(5, 2, 3000) + shift, scale * rng.beta(2, 5, 5000) + shift
    monkeypatch.setattr(distances, "GRID", 2**12)
    result = analysis.wasserstein(*groups)
    assert result == pytest.approx(wasserstein_distance(*groups), abs=scale / 2**12)
    assert result != wasserstein_distance(*groups)  # or this test would not see the grid
    assert analysis.wasserstein(np.full(5000, 0.5), np.full(3000, 0.5)) == 0


def test_ten_million_scores_in_bounded_memory():
    """A float64 copy of all scores would take 80 MB; a sort or a mask takes several of them."""
    rng = np.random.default_rng(0)
    probs = rng.random((100_000, 100), dtype=np.float32)
    observed = np.broadcast_to(np.zeros(1, np.int8), probs.shape)
    full = (probs > 0.5).view(np.int8)
    tracemalloc.start()
    halves = analysis.wasserstein(probs[:50_000], probs[50_000:])
    buckets = analysis.bucket_false_negatives(probs, observed, full, num_bins=4)
    ece = analysis.reliability(probs, full, num_bins=10).ece
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 * 2**20
    assert halves < 1e-3
    np.testing.assert_allclose(buckets.ratio, [0, 0, 1, 1], atol=1e-6)
    assert ece == pytest.approx(0.25, abs=1e-3)


# Bins.


def test_ratios_need_shared_edges():
    """With a range of its own for each group, the ratio would be 0.5 in every bin."""
    probs = row(0.6, 0.9, 0.1, 0.4)
    buckets = analysis.bucket_false_negatives(probs, np.zeros((1, 4)), row(1, 1, 0, 0), num_bins=4)
    assert buckets.ratio.tolist() == [0, 0, 1, 1] and (buckets.low[0], buckets.high[3]) == (0, 1)
    groups = {"positive": probs[0, :2], "negative": probs[0, 2:]}
    table = analysis.histogram(groups, num_bins=4)
    counts = table.pivot(index="low", columns="group", values="count")
    assert (counts["positive"] / counts.sum(axis=1)).tolist() == [0, 0, 1, 1]


def test_scores_outside_the_range_are_refused():
    with pytest.raises(ValueError, match=r"of logits range from 0\.5 to 1\.5, beyond the bounds \[0, 1\]"):
        analysis.histogram({"logits": [0.5, 1.5]})
    with pytest.raises(ValueError, match="nan"):
        analysis.histogram({"logits": [0.5, np.nan]})
    for bounds in ((1, 0), (0, np.inf)):
        with pytest.raises(ValueError, match="range"):
            analysis.histogram({"scores": [0.5]}, bounds=bounds)


def test_unknown_truth_is_left_out():
    probs, observed, full = some()
    known = np.random.default_rng(1).random(full.shape) < 0.5
    with_unknown = np.where(known, full, -7)  # and never looked at
    shown = np.where(known, observed, 1)  # the same by another way
    ours = analysis.bucket_false_negatives(probs, observed, with_unknown, 5, known=known)
    expected = analysis.bucket_false_negatives(probs, shown, full, 5)
    pd.testing.assert_frame_equal(ours, expected)
    with pytest.raises(ValueError, match=r"known \(1, 5\)"):
        analysis.bucket_false_negatives(probs, observed, full, known=known[:1])


def test_blocks_change_nothing(monkeypatch):
    data = some()
    expected = analysis.bucket_false_negatives(*data, 7)
    monkeypatch.setattr(missing, "BLOCK", 11)
    pd.testing.assert_frame_equal(analysis.bucket_false_negatives(*data, 7), expected)
    data[2][300, 2], data[1][300, 2] = 9, 0
    with pytest.raises(ValueError, match="image 300, class 2 is 9"):
        analysis.bucket_false_negatives(*data)


# Densities.


def test_histogram_densities_integrate_to_one():
    rng = np.random.default_rng(0)
    table = analysis.histogram({"a": rng.random(100), "b": rng.random((40, 3)) / 2, "none": []}, num_bins=8)
    area = ((table["high"] - table["low"]) * table["density"]).groupby(table["group"]).sum(min_count=8)
    assert area["a"] == pytest.approx(1) and area["b"] == pytest.approx(1) and np.isnan(area["none"])
    np.testing.assert_array_equal(table.query("group == 'b'")["high"], np.linspace(0, 1, 9)[1:])
    assert table.groupby("group")["share"].sum().loc[["a", "b"]].tolist() == pytest.approx([1, 1])
    named = analysis.histogram({("gr", "b"): [0.1], ("an", "a"): [0.9]}, 2, names=("method", "kind"))
    assert named[["method", "kind", "count"]].to_numpy().tolist() == [
        ["gr", "b", 1], ["gr", "b", 0], ["an", "a", 0], ["an", "a", 1],
    ]  # fmt: skip


def test_logit_density_is_a_kernel_density():
    rng = np.random.default_rng(0)
    groups = {"one": rng.normal(-3, 2, 500), "other": rng.normal(2, 1, 300), "single": [1.0], "none": []}
    table = analysis.logit_density(groups)
    for name in ("one", "other"):
        part = table[table["group"] == name]
        np.testing.assert_allclose(part["density"], gaussian_kde(groups[name])(part["logit"]))
        assert np.trapezoid(part["density"], part["logit"]) == pytest.approx(1, abs=1e-3)
        np.testing.assert_allclose(part["prob"], expit(part["logit"]))
    assert table.loc[table["group"].isin(["single", "none"]), "density"].isna().all()
