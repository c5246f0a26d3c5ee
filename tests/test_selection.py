"""Choosing without clean labels: the rules, `Experiment(select=...)`, and what it costs."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import average_precision_score, roc_auc_score

from spml_core import analysis
from spml_core.analysis.selection import RULES, expected_positives, prior_thresholds
from spml_core.cli import main
from spml_core.data import labels, observe
from spml_core.runs import Experiment, run, run_all, table
from spml_core.search import read, search
from spml_core.studies import sweep
from spml_core.studies.selection import regrets, threshold_scores

BLIND = {"val_labels": "observed", "select": "ranking"}
SMALL = {"dataset": "digits", "data": {"train": 80, "val": 60, "test": 30}, "method": "an", "epochs": 3}


def problem(num=4000, noise=0.7, num_classes=6, seed=0):
    """Return logits of a model that is wrong by `noise`, one observed positive per image, and the truth."""
    rng = np.random.default_rng(seed)
    full = (rng.random((num, num_classes)) < 0.3).astype(np.int8)
    full[np.arange(num), rng.integers(num_classes, size=num)] = 1
    logits = (2 * full - 1 + noise * rng.standard_normal(full.shape)).astype(np.float32)
    return logits, labels.single_positive(full, seed=seed), full


@pytest.mark.parametrize("name", RULES)
def test_a_better_model_scores_higher(name):
    scores = []
    for noise in (0.3, 1.5, 6.0):
        logits, observed, _ = problem(noise=noise)
        scores.append(RULES[name](logits, observed))
    assert np.isfinite(scores).all() and scores[0] > scores[1] > scores[2]


@pytest.mark.parametrize("name", RULES)
def test_verified_negatives_and_unseen_classes_are_no_obstacle(name):
    logits, observed, full = problem(200)
    observed[:, 0] = 0
    marked = np.where((full == 0) & (np.arange(200) % 3 == 0)[:, None], -1, observed)
    assert np.isfinite(RULES[name](logits, marked))
    assert RULES[name](logits, marked) == RULES[name](logits, observed)


@pytest.mark.parametrize("name", ["map", "auc", "mrr", "top3", "ranking", "buckets"])
def test_rules_that_rank_ignore_the_scale(name):
    logits, observed, _ = problem(300)
    assert RULES[name](3 * logits - 5, observed) == pytest.approx(RULES[name](logits, observed), rel=1e-6)


def test_rules_are_the_quantities_they_are_named_after():
    logits, observed, _ = problem(150)
    by_class = [average_precision_score(observed[:, c] == 1, logits[:, c]) for c in range(6)]
    assert RULES["map"](logits, observed) == pytest.approx(100 * np.mean(by_class))
    areas = [roc_auc_score(observed[:, c] == 1, logits[:, c]) for c in range(6)]
    assert RULES["auc"](logits, observed) == pytest.approx(100 * np.mean(areas))
    own = logits[observed == 1]  # one per image, in order
    ranks = 1 + (logits > own[:, None]).sum(1)
    assert RULES["mrr"](logits, observed) == pytest.approx(100 * np.mean(1 / ranks))
    assert RULES["top3"](logits, observed) == pytest.approx(100 * np.mean(ranks <= 3))
    losses = np.where(observed == 1, np.log1p(np.exp(-logits)), np.log1p(np.exp(logits)))
    assert RULES["risk"](logits, observed) == pytest.approx(-losses.mean(), rel=1e-5)


def test_the_pu_risk_is_that_of_clean_labels_where_labels_are_missing_at_random():
    logits, _, full = problem(60_000, noise=0.4)
    observed = full * (np.random.default_rng(1).random(full.shape) < 0.25)
    clean = np.where(full == 1, np.logaddexp(0, -logits), np.logaddexp(0, logits)).mean()
    assert RULES["pu_risk"](logits, observed) == pytest.approx(-clean, rel=0.03)
    assert abs(RULES["risk"](logits, observed) + clean) > 0.2 * clean


def test_the_mean_number_of_positives_is_found_and_gives_thresholds():
    logits, observed, full = problem(noise=0.4)
    assert expected_positives(logits, observed) == pytest.approx(full.sum(1).mean(), rel=0.05)
    above = logits > prior_thresholds(logits, observed, full.sum(1).mean())
    assert above.mean(0) == pytest.approx(full.mean(0), abs=0.04)
    assert (above == full).mean() > 0.96
    with pytest.raises(ValueError, match=r">= 1; got 0\.5"):
        prior_thresholds(logits, observed, 0.5)


# --- in the product ---


@pytest.mark.parametrize("rule", RULES)
def test_the_choice_never_reads_the_truth(tmp_path, monkeypatch, rule):
    """Validation truth replaced by noise gives the same scores of every epoch, the same epoch and weights."""
    wanted = Experiment(**SMALL | {"val_labels": "observed", "select": rule, "seed": 3})
    honest = run(wanted, root=tmp_path / "honest")
    drawn = {"val": honest.labels("val").observed, "train": honest.labels("train").observed}
    load = Experiment.load_data

    def noisy(self, cache):
        loaded = load(self, cache)
        val = loaded.parts["val"]
        noise = np.random.default_rng(0).integers(0, 2, val.full.shape, dtype=np.int8)
        parts = loaded.parts | {"val": dataclasses.replace(val, full=noise)}
        return dataclasses.replace(loaded, parts=parts, fingerprint="noise")

    monkeypatch.setattr(Experiment, "load_data", noisy)
    monkeypatch.setattr(observe, "draw", lambda *args, **options: drawn)
    (blind,) = run_all([wanted], root=tmp_path / "blind")
    assert (blind.labels("val").full != honest.labels("val").full).any()
    assert blind.summary["best_epoch"] == honest.summary["best_epoch"]
    assert blind.summary["selection"] == honest.summary["selection"]
    if rule != "map":
        assert blind.history.selection.tolist() == honest.history.selection.tolist()
    assert all((blind.weights()[name] == value).all() for name, value in honest.weights().items())


def test_the_epoch_is_the_one_that_the_rule_scores_highest(tmp_path):
    found = run(Experiment(**SMALL | BLIND), root=tmp_path)
    seen = found.labels("val").observed
    scores = [analysis.RULES["ranking"](found.logits("val", epoch), seen) for epoch in range(4)]
    assert found.history.selection.tolist() == pytest.approx(scores)
    best = 1 + int(np.argmax(scores[1:]))
    assert found.summary["best_epoch"] == best and found.summary["selection"] == pytest.approx(scores[best])
    assert found.summary["select"] == "ranking"


def test_a_rule_needs_observed_labels_and_a_known_name():
    with pytest.raises(ValueError, match="add val_labels='observed'"):
        Experiment(**SMALL, select="auc").resolved()
    with pytest.raises(ValueError, match=r"'auk'.*'auc'"):
        Experiment(**SMALL, select="auk")


def test_the_rule_is_in_the_key(tmp_path):
    keys = []
    for select in ("map", "auc", "mrr"):
        wanted = Experiment(**SMALL | {"val_labels": "observed", "select": select}).resolved()
        keys.append(wanted.key(wanted.load_data(tmp_path)))
    assert len(set(keys)) == 3


def test_runs_chosen_by_different_rules_are_not_compared_in_silence(tmp_path):
    runs = [run(Experiment(**SMALL | BLIND | {"select": s}), root=tmp_path) for s in ("map", "auc")]
    with pytest.warns(UserWarning, match='select: "map" and "auc"'):
        table(runs)


def test_explain_and_the_result_name_the_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = [word for name, number in SMALL["data"].items() for word in ("-d", name, str(number))]
    words = ["train", "--method", "an", *sizes, "--epochs", "2", "-o", "val_labels", "observed"]
    words += ["-o", "select", "ranking"]
    shown = CliRunner().invoke(main, [*words, "--explain"], catch_exceptions=False)
    (line,) = (line for line in shown.output.splitlines() if line.startswith("select"))
    assert line.split() == ["select", '"ranking"', "given"]
    shown = CliRunner().invoke(main, words, catch_exceptions=False)
    assert "Epoch chosen by ranking on observed validation labels" in shown.output


def test_a_search_compares_trials_by_the_rule(tmp_path):
    fixed = {**SMALL, **BLIND, "method": "em", "epochs": 2}
    content = {"experiment": fixed, "space": {"params.alpha": [0.1, 0.4]}, "sampler": "grid", "test_seeds": 1}
    file = tmp_path / "blind.yaml"
    file.write_text(json.dumps(content))
    found = search(read(file), root=tmp_path)
    runs = [
        run(Experiment(**fixed, params={"alpha": alpha}, tuned_on="val, observed"), root=tmp_path)
        for alpha in (0.1, 0.4)
    ]
    scores = [one.summary["selection"] for one in runs]
    assert sorted(found.trials.val_map) == pytest.approx(sorted(scores))
    assert found.val_map == pytest.approx(max(scores))
    assert found.space.measure == "validation ranking" in found.preset.read_text()
    content["space"] = {"select": ["auc", "mrr"]}
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="select compares the trials"):
        read(file)


# --- regrets ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    fields = {name: value for name, value in SMALL.items() if name != "method"}
    return sweep({"an": ("an", {}), "gr": ("gr", {})}, [0, 1], tmp_path_factory.mktemp("runs"), **fields)


def test_regrets_of_every_rule(trained):
    found = regrets(trained, halvings=3, own=True)
    rules = {*RULES, "last", "stop_drop", "agreement", "own_loss", "clean"}
    assert {*found.rule} == rules and len(found) == len(rules) * 4
    assert (found[found.rule == "clean"].regret == 0).all()
    one = found.set_index(["setting", "seed", "rule"])
    lost = one.chosen.xs("clean", level="rule") - one.chosen.xs("auc", level="rule")
    assert lost.tolist() == pytest.approx(one.regret.xs("auc", level="rule").tolist())
    assert found.equals(regrets(trained, halvings=3, own=True))


def test_thresholds_chosen_in_four_ways(trained):
    found = threshold_scores(trained["an"], "test")
    assert len(found) == 8 and found.CF1.between(0, 100).all()
    known = found[found.threshold == "prior"].expected
    truth = [run.labels("val").full.sum(1).mean() for run in trained["an"]]
    assert known.tolist() == pytest.approx(truth)
