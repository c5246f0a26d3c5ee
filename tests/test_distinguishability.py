"""Tables over runs: the numbers are those of `analysis`, the rows are those asked for."""

import numpy as np
import pytest

from spml_core import analysis
from spml_core.runs import Experiment, run_all
from spml_core.studies import distinguishability

METHODS, SEEDS = ("an", "gr"), (0, 1)
SMALL = {"dataset": "digits", "data": {"train": 96, "val": 80, "test": 60}, "epochs": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    keys = [(method, seed) for method in METHODS for seed in SEEDS]
    wanted = [Experiment(**SMALL, method=method, seed=seed) for method, seed in keys]
    return dict(zip(keys, run_all(wanted, root=tmp_path_factory.mktemp("runs"), progress=False), strict=True))


def test_distance_by_epoch(runs):
    table = distinguishability.by_epoch(runs)
    assert len(table) == 2 * 2 * 3  # epochs 0, 1, 2
    row = table[(table.method == "gr") & (table.seed == 1) & (table.epoch == 1)]
    run = runs["gr", 1]
    expected = analysis.wasserstein_missing(run.probs("val", 1), run.observed("val"), run.full("val"))
    assert row.wasserstein.item() == pytest.approx(expected)


def test_distance_by_class_is_that_of_the_last_epoch(runs):
    table = distinguishability.by_class(runs)
    assert len(table) == 2 * 2 * 10
    run = runs["an", 0]
    missing = run.observed("val")[:, 3] == 0
    p, positive = run.probs("val", 2)[missing, 3], run.full("val")[missing, 3] == 1
    row = table[(table.method == "an") & (table.seed == 0) & (table["class"] == "3")]
    assert row.positives.item() == positive.sum()
    assert row.distance.item() == pytest.approx(analysis.wasserstein(p[positive], p[~positive]))


def test_gains_are_over_the_baseline_of_the_same_seed(runs):
    table = distinguishability.class_gains(runs, "an")
    assert set(table.method) == {"gr"} and len(table) == 2 * 10
    mean = table[table.seed == 1].gain.mean()
    difference = runs["gr", 1].summary["test_map"] - runs["an", 1].summary["test_map"]
    assert mean == pytest.approx(difference)


def test_densities_pool_the_seeds_and_integrate_to_one(runs):
    table = distinguishability.densities(runs, [2, 7])
    groups = table.groupby(["method", "class", "labels", "kind"])
    assert len(groups) == 2 * 2 * 2 * 2
    for (_, name, labels, kind), group in groups:
        area = np.trapezoid(group.density, group.logit)
        assert area == pytest.approx(1, abs=0.02)
        if labels == "test":
            full = runs["an", 0].full("test")[:, int(name)]
            assert group.n.iloc[0] == 2 * ((full == 1) if kind == "positives" else (full == 0)).sum()


def test_histograms_share_out_each_group(runs):
    scores = {method: distinguishability.all_scores(runs[method, 0], "test") for method in METHODS}
    table = distinguishability.histograms(scores, 7)
    assert table.groupby(["method", "kind"]).share.sum().to_numpy() == pytest.approx(1)
    assert sum(map(len, scores["an"].values())) == 60 * 10
