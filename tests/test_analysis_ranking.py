"""Ranks over blocks, and whether their differences are more than noise."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import friedmanchisquare, studentized_range

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


def test_tests_agree_with_scipy():
    result = analysis.rank(SCORES)
    mean = result.table["mean_rank"]
    assert result.friedman_p == pytest.approx(friedmanchisquare(*SCORES.to_numpy().T).pvalue)
    assert result.blocks == 14 and result.table.index[0] == "gr"
    # By the definition: the difference with a p-value of 5 % in the studentised range.
    p = studentized_range.sf(result.critical_difference / np.sqrt(4 * 5 / (12 * 14)), 4, np.inf)
    assert p == pytest.approx(0.05, abs=1e-6) and mean["an"] - mean["gr"] > result.critical_difference


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
    apart = np.ptp(ranks.table["mean_rank"])
    assert np.isnan(ranks.friedman_p) and apart < ranks.critical_difference  # 3 blocks are little evidence


def test_noise_is_not_read_as_progress():
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(90, 1, (6, 4)), columns=list("abcd"))
    result = analysis.rank(noise)
    assert np.ptp(result.table["mean_rank"]) < result.critical_difference and result.friedman_p > 0.05


def test_bad_tables():
    with pytest.raises(ValueError, match=r"columns, at least 2 methods.*got 4 scores of shape \(1, 4\)"):
        analysis.rank(SCORES[:1])
    hole = pd.DataFrame({"gr": [1.0, np.nan], "an": [1.0, 2.0]}, index=["voc", "coco"])
    with pytest.raises(ValueError, match=r"got 3 scores of shape \(2, 2\)"):
        analysis.rank(hole)
