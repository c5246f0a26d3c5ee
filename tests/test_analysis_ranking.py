"""Ranks over blocks, and whether their differences are more than noise."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import friedmanchisquare

from spml_core import analysis

# Four methods on 14 blocks; one block is a tie of all.
OFFSETS = {"an": 0.0, "em": 1.2, "gr": 3.0, "hill": 0.9}
SCORES = pd.DataFrame(
    {m: np.random.default_rng(n).normal(80 + v, 1, 14) for n, (m, v) in enumerate(OFFSETS.items())}
)
SCORES.iloc[3] = 80.0


def test_ranks_by_hand():
    table = analysis.rank(pd.DataFrame({"a": [1.0, 5, 3], "b": [2.0, 5, 1], "c": [3.0, 4, 2]})).table
    assert table["mean_rank"].to_dict() == pytest.approx({"a": (3 + 1.5 + 1) / 3, "b": 6.5 / 3, "c": 6 / 3})
    assert table["mean_rank"].is_monotonic_increasing and table.loc["a", "mean_score"] == 3


@pytest.mark.parametrize("alpha, published", [(0.05, 1.25), (0.10, 1.12)])
def test_the_published_critical_difference(alpha, published):
    """Of four methods on 14 data sets, Demšar (2006), section 3.2.2."""
    assert analysis.critical_difference(4, 14, alpha) == pytest.approx(published, abs=0.005)


def test_tests_agree_with_each_other_and_with_scipy():
    result = analysis.rank(SCORES)
    mean = result.table["mean_rank"]
    assert result.friedman_p == pytest.approx(friedmanchisquare(*SCORES.to_numpy().T).pvalue)
    assert (result.blocks, result.alpha) == (14, 0.05)
    np.testing.assert_allclose(result.nemenyi_p, result.nemenyi_p.T)
    assert (np.diag(result.nemenyi_p) == 1).all()
    told_apart = 0
    for one in OFFSETS:
        for other in OFFSETS:
            apart = abs(mean[one] - mean[other]) > result.critical_difference
            assert apart == (result.nemenyi_p.loc[one, other] < 0.05)
            assert apart != any({one, other} <= set(group) for group in result.groups) or one == other
            told_apart += apart
    assert told_apart and result.groups  # both kinds of pairs are here
    assert result.table.index[0] == "gr"


def test_intervals_of_ranks():
    result = analysis.rank(SCORES)
    table = result.table
    assert (table["rank_low"] <= table["mean_rank"]).all() and (
        table["mean_rank"] <= table["rank_high"]
    ).all()
    pd.testing.assert_frame_equal(table, analysis.rank(SCORES).table)  # the same seed, the same interval
    sure = pd.DataFrame({"good": [3.0, 4, 5], "bad": [1.0, 2, 3]})
    ranks = analysis.rank(sure)
    assert ranks.table.loc["good", ["mean_rank", "rank_low", "rank_high"]].tolist() == [1, 1, 1]
    assert np.isnan(ranks.friedman_p) and ranks.groups == (("good", "bad"),)  # 3 blocks are little evidence


def test_noise_is_not_read_as_progress():
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(90, 1, (6, 4)), columns=list("abcd"))
    result = analysis.rank(noise)
    assert result.groups == (tuple(result.table.index),) and result.friedman_p > 0.05


def test_paired_difference():
    rng = np.random.default_rng(0)
    level = rng.normal(80, 10, 20)
    scores = pd.DataFrame({"an": level, "gr": level + rng.normal(2, 0.5, 20), "same": level + 1e-9})
    mean, low, high = analysis.paired_difference(scores, "gr", "an")
    assert 0 < low < mean < high and mean == pytest.approx((scores["gr"] - scores["an"]).mean())
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(20), rel=0.5)
    mean, low, high = analysis.paired_difference(pd.DataFrame({"a": [1.0, 2], "b": [2.0, 1]}), "a", "b")
    assert low <= 0 <= high and mean == 0


def test_bad_tables():
    with pytest.raises(ValueError, match=r"at least 2 blocks .rows. and 2 methods .columns., got \(1, 4\)"):
        analysis.rank(SCORES[:1])
    hole = pd.DataFrame({"gr": [1.0, np.nan], "an": [1.0, 2.0]}, index=["voc", "coco"])
    with pytest.raises(ValueError, match="no score of gr in block 'coco'"):
        analysis.rank(hole)
    with pytest.raises(ValueError, match="alpha must be in"):
        analysis.rank(SCORES, alpha=5)
