"""What notebooks 09 and 10 read from runs: every epoch, the right images, the right labels."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from spml_core import analysis
from spml_core.runs import Experiment, run
from spml_core.studies import epochs as curves
from spml_core.studies import unobserved as finding

SIZES = {"train": 80, "val": 40, "test": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of two epochs: `trained("an")`, `trained("splc", watched=True)`."""
    root = tmp_path_factory.mktemp("runs")

    def train(method, watched=False, seed=0, **params):
        data = SIZES | ({"val_is_train": True} if watched else {})
        experiment = Experiment(method=method, data=data, epochs=2, params=params, seed=seed)
        return run(experiment, root, progress=False)

    return train


def test_every_epoch_and_seed(trained):
    runs = {("an", seed): trained("an", seed=seed) for seed in (0, 1)}
    table = curves.every_epoch(runs, lambda run, epoch: finding.missing(run, epoch, 0.3))
    assert table[["setting", "seed", "epoch"]].values.tolist() == [
        ["an", s, e] for s in (0, 1) for e in range(3)
    ]
    several = curves.every_epoch(
        runs, lambda run, epoch: pd.DataFrame({"of": list("ab"), "x": [epoch, -epoch]})
    )
    chosen = curves.by_seed(several, "x", of="b", setting="an")
    assert chosen.to_dict() == {0: {0: 0, 1: -1, 2: -2}, 1: {0: 0, 1: -1, 2: -2}}
    fig, ax = plt.subplots()
    curves.draw(ax, pd.DataFrame({0: [1.0, 2.0], 1: [3.0, 2.0]}), color="k")
    assert ax.lines[0].get_ydata().tolist() == [2, 2]
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 3)
    plt.close(fig)


def test_missing_labels_of_the_training_images(trained):
    watched = trained("an", watched=True)
    z, observed, full = watched.logits("val", 1), watched.observed("train"), watched.full("train")
    hidden, above = observed == 0, z > np.log(0.2 / 0.8)
    row = finding.missing(watched, 1, 0.2)
    assert row["recall"] == pytest.approx((above & hidden & (full == 1)).sum() / (hidden & (full == 1)).sum())
    assert row["chance"] == pytest.approx(full[hidden].mean())
    table = finding.score_histogram(watched, 1, 5)
    assert table.groupby("group")["share"].sum().tolist() == pytest.approx([1, 1])
    fig, ax = plt.subplots()
    finding.draw_histogram(ax, table)
    assert [patch.get_label().split(" (")[0] for patch in ax.patches] == list(reversed(finding.GROUPS))
    plt.close(fig)


def test_predictive_values_need_predictions(trained):
    plain = trained("an")
    values = finding.predictive(plain, 2, 0.0, min_count=400)  # all 40 * 10 exceed 0
    assert values["recall"] == 1 and values["ppv"] == pytest.approx(1 - values["guess"])
    assert np.isnan(finding.predictive(plain, 2, 0.0, min_count=401)["ppv"])


def test_pseudo_labels(trained):
    apl = trained("em_apl", warmup=1, theta=0.5)
    negatives, best = finding.pseudo_labels(apl, "negative")
    if apl.summary["best_epoch"] == 2:
        unobserved = (apl.observed("train") == 0).sum(0)
        assert negatives.given == (unobserved // 2).sum()
    assert best == 1 and negatives.chance > 0.9
    positives, ceiling = finding.pseudo_labels(apl, "highest", share=0.2)
    assert positives.accuracy <= ceiling < 1  # a fifth is more than there are positives
    watched = trained("splc", watched=True, tau=0.3)
    corrected, _ = finding.pseudo_labels(watched, "corrected")
    assert corrected.given == finding.found(watched, 2, 0.3).found > 0
    once, _ = finding.pseudo_labels(trained("pseudo_label"), "positive")
    table = finding.accuracy_table({"a": [(corrected, 1.0)], "b": [(once, 1.0)]})
    assert table["given"].tolist() == [corrected.given, once.given]
    none = analysis.PseudoLabels(0, 0, 0.05)
    assert finding.accuracy_table({"c": [(none, 0.5)]})["accuracy"].tolist() == ["none given"]
    with pytest.raises(ValueError, match="unknown kind 'some'"):
        finding.pseudo_labels(watched, "some")
