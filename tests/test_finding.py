"""What notebooks 09 and 10 read from runs covers every epoch, the right images and the right labels."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from spml_core import analysis
from spml_core.runs import Experiment, Labels, run
from spml_core.studies import band, by_class, by_seed, class_means, every_epoch, unobserved

SIZES = {"train": 80, "val": 40, "test": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return runs of two epochs: `trained("an")`, `trained("splc", watched=True)`."""
    root = tmp_path_factory.mktemp("runs")

    def train(method, watched=False, seed=0, **params):
        data = SIZES | ({"val_is_train": True} if watched else {})
        experiment = Experiment(method=method, data=data, epochs=2, params=params, seed=seed)
        return run(experiment, root, progress=False)

    return train


def test_every_epoch_and_seed(trained):
    found = {"an": [trained("an", seed=seed) for seed in (0, 1)]}
    table = every_epoch(found, lambda labels: unobserved.missing(labels, 0.3))
    keys = ["setting", "seed", "epoch"]
    assert table[keys].values.tolist() == [["an", s, e] for s in (0, 1) for e in range(3)]
    last = every_epoch(found, lambda labels: unobserved.missing(labels, 0.3), only_last=True)
    pd.testing.assert_frame_equal(last, table[table.epoch == 2].reset_index(drop=True))
    several = every_epoch(found, lambda labels: pd.DataFrame({"of": list("ab"), "x": labels.logits[0, :2]}))
    chosen = by_seed(several, "x", of="b", setting="an")
    assert chosen.loc[1, 0] == found["an"][0].logits("val", 1)[0, 1] and chosen.shape == (3, 2)


def test_band():
    fig, ax = plt.subplots()
    band(ax, pd.DataFrame({0: [1.0, 2.0], 1: [3.0, 2.0]}), color="k")
    assert ax.lines[0].get_ydata().tolist() == [2, 2]
    edge = ax.collections[0].get_paths()[0].vertices
    assert (edge[:, 1].min(), edge[:, 1].max()) == (1, 3)
    plt.close(fig)


def test_missing_labels_of_the_training_images(trained):
    watched = trained("an", watched=True)
    train = watched.labels("train")
    hidden, above = train.observed == 0, watched.logits("val", 1) > np.log(0.2 / 0.8)
    labels, false = watched.labels("val", 1), hidden & (train.full == 1)
    row = unobserved.missing(labels, 0.2)
    assert row["recall"] == pytest.approx((above & false).sum() / false.sum())
    assert row["chance"] == pytest.approx(train.full[hidden].mean())
    groups = unobserved.missing_scores(labels)
    assert abs(row["distance"]) == pytest.approx(analysis.wasserstein(*groups.values()))
    table = analysis.histogram(groups, 5)
    assert table.groupby("group")["share"].sum().tolist() == pytest.approx([1, 1])
    fig, ax = plt.subplots()
    unobserved.draw_histogram(ax, table)
    assert [patch.get_label().split(" (")[0] for patch in ax.patches] == list(reversed(unobserved.GROUPS))
    plt.close(fig)


def test_buckets_with_few_labels_are_faded():
    probs, full = np.array([[0.1, 0.1, 0.1, 0.9]]), np.array([[1, 0, 0, 1]])
    bins = analysis.bucket_false_negatives(probs, np.zeros_like(full), full, num_bins=3)
    fig, ax = plt.subplots()
    unobserved.draw_buckets(ax, bins, min_count=2)
    (solid, faded) = (drawn.lines[0] for drawn in ax.containers)
    assert (solid.get_ydata().tolist(), faded.get_ydata().tolist()) == ([1 / 3], [1])
    assert faded.get_alpha() < solid.get_alpha() == 1
    plt.close(fig)


def test_distance_by_class(trained):
    run = trained("an")
    labels = run.labels("val", 2)
    table = unobserved.class_distances(labels, run.classes)
    assert table["class"].tolist() == run.classes
    hidden = labels.observed[:, 3] == 0
    p, positive = labels.probs[hidden, 3], labels.full[hidden, 3] == 1
    assert table.loc[3, ["positives", "negatives"]].tolist() == [positive.sum(), (~positive).sum()]
    assert abs(table.loc[3, "distance"]) == pytest.approx(analysis.wasserstein(p[positive], p[~positive]))


def labelled(positives, negatives) -> Labels:
    """Return labels of one class with these probabilities, none of them observed."""
    p = np.array([*positives, *negatives])[:, None]
    full = np.repeat([1, 0], [len(positives), len(negatives)]).astype(np.int8)[:, None]
    return Labels(np.zeros_like(full), full, np.ones_like(full, bool), np.log(p / (1 - p)))


def test_the_distance_says_which_group_scores_higher():
    """Without its sign, a model that scores missing positives below the negatives would seem to tell them apart."""
    high, low = [0.5467, 0.6467, 0.4467], [0.5, 0.6, 0.4]
    assert unobserved.distance(labelled(high, low)) == pytest.approx(0.0467)
    assert unobserved.distance(labelled(low, high)) == pytest.approx(-0.0467)
    assert analysis.wasserstein(low, high) == analysis.wasserstein(high, low) > 0  # as the papers print it
    table = unobserved.class_distances(labelled(low, high), ["a"])
    assert table["distance"].tolist() == pytest.approx([-0.0467])
    assert unobserved.missing(labelled(low, high), 0.5)["distance"] < 0
    # Overlapping groups whose means are in the wrong order: the distance is larger than the difference of the means.
    mixed = unobserved.distance(labelled([0.1, 0.6], [0.4, 0.5]))
    assert mixed < 0 and abs(mixed) == pytest.approx(0.2)


def test_a_distance_to_an_empty_group_is_undefined():
    assert np.isnan(unobserved.distance(labelled([], [0.2, 0.3])))
    assert np.isnan(unobserved.distance(labelled([0.2], [])))


def test_flatness_before_training():
    rng = np.random.default_rng(0)
    full = (rng.random((400, 10)) < 0.1).astype(np.int8)
    noise = rng.normal(0, 0.01, full.shape)

    def flatness(logits):
        labels = Labels(np.zeros_like(full), full, np.ones_like(full, bool), logits)
        return unobserved.flatness(labels, analysis.slope_test(labels.probs, **unobserved.truth(labels)))

    by_chance = flatness(rng.normal(0, 0.1, 10) + noise)  # the classes differ, and are equally frequent
    assert 0.5 < by_chance.low <= by_chance.value <= by_chance.high <= 1
    rising = flatness(0.1 * full + rng.normal(0, 0.1, full.shape))
    assert rising.high < 0.5


def test_log_loss_of_a_curve():
    labels = labelled([0.9, 0.6], [0.1, 0.2, 0.3])
    expected = -np.log([0.9, 0.6, 0.9, 0.8, 0.7]).mean()
    assert unobserved.curve_log_loss(labels, lambda p: p) == pytest.approx(expected)
    assert unobserved.curve_log_loss(labels, lambda p: np.full_like(p, 0.5)) == pytest.approx(np.log(2))


def test_classes_undefined_in_any_run_are_in_no_count():
    table = pd.DataFrame(
        {
            "setting": ["gr"] * 6 + ["an"] * 6,
            "seed": [0, 0, 0, 1, 1, 1] * 2,
            "class": ["dog", "cat", "bird"] * 4,
            "distance": [1, 2, 3, 3, np.nan, 5, 0, 0, 0, 0, 0, 0],
        }
    )
    wide = by_class(table, "distance")
    assert wide.index.tolist() == ["dog", "bird"] and wide["gr"].to_numpy().tolist() == [[1, 3], [3, 5]]
    means, spread = class_means(wide)
    assert means["gr"].tolist() == [2, 4] and means["an"].tolist() == [0, 0]
    assert spread["gr"].tolist() == pytest.approx([2**0.5] * 2)
    one, without = class_means(by_class(table[table.seed == 1], "distance"))
    assert one["gr"].tolist() == [3, 5] and without["gr"].tolist() == [0, 0]


def test_densities_pool_the_seeds_and_integrate_to_one(trained):
    found = {m: [trained(m, seed=seed) for seed in (0, 1)] for m in ("an", "gr")}
    table = unobserved.densities(found, [2, 7])
    groups = table.groupby(["setting", "class", "labels", "group"])
    assert len(groups) == 2 * 2 * 2 * 2
    for (_, name, labels, group), points in groups:
        assert np.trapezoid(points.density, points.logit) == pytest.approx(1, abs=0.02)
        if labels == "test":
            full = found["an"][0].labels("test").full[:, int(name)]
            assert points.n.iloc[0] == 2 * (full == (group == "positives")).sum()


def test_unannotated_labels_are_all_labels(trained):
    labels = unobserved.unannotated(trained("an").labels("val"))
    scores = unobserved.missing_scores(labels, ("positives", "negatives"))
    assert [*scores] == ["positives", "negatives"] and sum(map(len, scores.values())) == 40 * 10
    np.testing.assert_array_equal(scores["positives"], labels.probs[labels.full == 1])


def test_predictive_values_against_scikit_learn():
    rng = np.random.default_rng(0)
    full, known = (rng.random((300, 4)) < 0.3).astype(np.int8), rng.random((300, 4)) < 0.8
    labels = Labels(np.zeros_like(full), full, known, rng.normal(2 * full))
    ppv, npv, right = [], [], 0
    for c in range(4):
        chosen = known[:, c]
        (tn, fp), (fn, tp) = confusion_matrix(full[chosen, c], labels.probs[chosen, c] > 0.7)
        ppv, npv, right = [*ppv, tp / (tp + fp)], [*npv, tn / (tn + fn)], right + tp
    guess = (full[known] == 0).mean()
    expected = {"ppv": np.mean(ppv), "npv": np.mean(npv), "recall": right / full[known].sum(), "guess": guess}
    assert unobserved.predictive(labels, 0.7) == pytest.approx(expected)


def test_predictive_values_need_predictions(trained):
    labels = trained("an").labels("val", 2)
    values = unobserved.predictive(labels, 0.0, min_count=400)  # all 40 * 10 exceed 0
    assert values["recall"] == 1 and values["ppv"] == pytest.approx(1 - values["guess"])
    assert np.isnan(unobserved.predictive(labels, 0.0, min_count=401)["ppv"])


def test_pseudo_labels(trained):
    apl = trained("em_apl", warmup=1, theta=0.5)
    negatives, best = unobserved.pseudo_labels(apl, "negative")
    if apl.summary["best_epoch"] == 2:
        hidden = (apl.labels("train").observed == 0).sum(0)
        assert negatives.found == (hidden // 2).sum()
    assert best == 1 and negatives.chance > 0.9
    positives, ceiling = unobserved.pseudo_labels(apl, "highest", share=0.2)
    assert positives.precision <= ceiling < 1  # a fifth is more than there are positives
    watched = trained("splc", watched=True, tau=0.3)
    corrected, _ = unobserved.pseudo_labels(watched, "corrected")
    assert corrected.found == unobserved.found(watched.labels("val", watched.last_epoch), 0.3).found > 0
    once, _ = unobserved.pseudo_labels(trained("pseudo_label"), "positive")
    table = unobserved.accuracy_table({"a": [(corrected, 1.0)], "b": [(once, 1.0)]})
    assert table["given"].tolist() == [corrected.found, once.found]
    none = analysis.identification([[0, 0]], [[0, 0]], [[1, 0]])
    assert unobserved.accuracy_table({"c": [(none, 0.5)]})["accuracy"].tolist() == ["none given"]
    with pytest.raises(ValueError, match="unknown kind 'some'"):
        unobserved.pseudo_labels(watched, "some")
