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
    """On the counts themselves it would be 0.2."""
    assert analysis.wasserstein(A, B) == pytest.approx(0.6)
    centres = np.linspace(0.1, 0.9, 9)
    counts = [np.histogram(group, np.linspace(0.05, 0.95, 10))[0] for group in (A, B)]
    assert analysis.wasserstein(centres, centres, *counts) == pytest.approx(0.6)
    assert analysis.wasserstein(A, A, [1, 0, 0], [0, 0, 5]) == pytest.approx(0.2)


@pytest.mark.parametrize("weights, match", [([1, 2], "2 weights for 3"), ([1, -1, 1], "none below 0")])
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
    with pytest.raises(ValueError, match=r"scores must be finite, found"):
        analysis.wasserstein([0.1, bad], B)


@pytest.mark.parametrize("scale, shift", [(1, 0), (30, -7)])
def test_many_scores_are_counted_on_a_grid(monkeypatch, scale, shift):
    rng = np.random.default_rng(0)
    groups = scale * rng.beta(5, 2, 3000) + shift, scale * rng.beta(2, 5, 5000) + shift
    monkeypatch.setattr(distances, "GRID", 2**12)
    monkeypatch.setattr(distances, "BLOCK", 700)
    result = analysis.wasserstein(*groups)
    assert result == pytest.approx(wasserstein_distance(*groups), abs=scale / 2**12)
    assert result != wasserstein_distance(*groups)  # or this test would not see the grid
    assert analysis.wasserstein(np.full(5000, 0.5), np.full(3000, 0.5)) == 0


def test_distance_of_missing_labels(monkeypatch):
    data = some()
    probs, hidden, positive = data[0], data[1] == 0, data[2] == 1
    expected = wasserstein_distance(probs[hidden & positive], probs[hidden & ~positive])
    assert analysis.wasserstein_missing(*data) == pytest.approx(expected)
    monkeypatch.setattr(distances, "GRID", 2**10)
    monkeypatch.setattr(missing, "BLOCK", 100)
    assert analysis.wasserstein_missing(*data) == pytest.approx(expected, abs=2**-10)
    nothing = np.ones_like(data[1])
    assert np.isnan(analysis.wasserstein_missing(data[0], nothing, data[2]))


def test_ten_million_scores_in_bounded_memory():
    """Float64 copies of all scores would take 80 MB each, a sort or a mask several of them."""
    rng = np.random.default_rng(0)
    probs = rng.random((100_000, 100), dtype=np.float32)
    observed = np.broadcast_to(np.zeros(1, np.int8), probs.shape)
    full = (probs > 0.5).view(np.int8)
    tracemalloc.start()
    distance = analysis.wasserstein_missing(probs, observed, full)
    halves = analysis.wasserstein(probs[:50_000], probs[50_000:])
    buckets = analysis.bucket_false_negatives(probs, observed, full, num_bins=4)
    ece = analysis.reliability(probs, full, num_bins=10).ece
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 * 2**20
    assert distance == pytest.approx(0.5, abs=1e-3) and halves < 1e-3
    np.testing.assert_allclose(buckets.ratio, [0, 0, 1, 1], atol=1e-6)
    assert ece == pytest.approx(0.25, abs=1e-3)


# Bins.


def test_ratios_need_shared_edges():
    """With a range of its own for each group, the ratio would be 0.5 in every bin."""
    probs = row(0.6, 0.9, 0.1, 0.4)
    buckets = analysis.bucket_false_negatives(probs, np.zeros((1, 4)), row(1, 1, 0, 0), num_bins=4)
    assert buckets.ratio.tolist() == [0, 0, 1, 1] and (buckets.low[0], buckets.high[-1]) == (0, 1)
    groups = {"positive": probs[0, :2], "negative": probs[0, 2:]}
    table = analysis.histogram(groups, num_bins=4)
    counts = table.pivot(index="low", columns="group", values="count")
    assert (counts["positive"] / counts.sum(axis=1)).tolist() == [0, 0, 1, 1]


def test_sparse_bins_are_marked():
    data = row(0.1, 0.1, 0.1, 0.9), np.zeros((1, 4)), row(1, 0, 0, 1)
    buckets = analysis.bucket_false_negatives(*data, num_bins=3, min_count=2)
    assert buckets.sparse.tolist() == [False, True, True] and buckets.missing.tolist() == [3, 0, 1]
    assert buckets.frame()["sparse"].tolist() == [False, True, True]
    plain = analysis.bucket_false_negatives(*data, num_bins=3)
    assert not plain.sparse.any() and "sparse" not in plain.frame()
    table = analysis.histogram({"all": data[0]}, num_bins=3, min_count=2)
    assert table["sparse"].tolist() == [False, True, True] and table["n"].tolist() == [4] * 3


def test_scores_outside_the_range_are_refused():
    data = row(0.1, 0.5, 0.95), np.zeros((1, 3)), row(1, 0, 1)
    inside = analysis.bucket_false_negatives(*data, num_bins=2, bounds=(0.1, 0.95))
    assert inside.missing.tolist() == [2, 1] and inside.low[0] == 0.1
    with pytest.raises(ValueError, match=r"1 of 3 scores lie outside the range \[0, 0\.9\], e\.g\. 0\.95"):
        analysis.bucket_false_negatives(*data, bounds=(0, 0.9))
    with pytest.raises(ValueError, match=r"1 of 2 scores lie outside the range \[0, 1\], e\.g\. 1\.5"):
        analysis.histogram({"logits": [0.5, 1.5]})
    with pytest.raises(ValueError, match=r"1 of 2.*nan"):
        analysis.histogram({"logits": [0.5, np.nan]})
    for bounds in ((1, 0), (0, 0), (0, np.inf)):
        with pytest.raises(ValueError, match="bounds must be two finite numbers that increase"):
            analysis.histogram({"scores": [0.5]}, bounds=bounds)


def test_unknown_truth_is_left_out():
    probs, observed, full = some()
    known = np.random.default_rng(1).random(full.shape) < 0.5
    with_unknown = np.where(known, full, -7)  # and never looked at
    shown = np.where(known, observed, 1)  # the same by another way
    ours = analysis.bucket_false_negatives(probs, observed, with_unknown, 5, known=known)
    expected = analysis.bucket_false_negatives(probs, shown, full, 5)
    pd.testing.assert_frame_equal(ours.frame(), expected.frame())
    with pytest.raises(ValueError, match=r"known \(1, 5\)"):
        analysis.bucket_false_negatives(probs, observed, full, known=known[:1])


def test_blocks_change_nothing(monkeypatch):
    data = some()
    expected = analysis.bucket_false_negatives(*data, 7).frame()
    monkeypatch.setattr(missing, "BLOCK", 11)
    pd.testing.assert_frame_equal(analysis.bucket_false_negatives(*data, 7).frame(), expected)
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
        # Scott's factor on the deviation by n; gaussian_kde takes it by n - 1.
        group, n = groups[name], len(groups[name])
        expected = gaussian_kde(group, n**-0.2 * np.sqrt((n - 1) / n))(part["logit"])
        np.testing.assert_allclose(part["density"], expected, atol=1e-3 * expected.max())
        assert np.trapezoid(part["density"], part["logit"]) == pytest.approx(1, abs=1e-3)
        np.testing.assert_allclose(part["prob"], expit(part["logit"]))
    assert table.loc[table["group"].isin(["single", "none"]), "density"].isna().all()
    with pytest.raises(ValueError, match="every group is empty: a, b"):
        analysis.logit_density({"a": [], "b": []})
