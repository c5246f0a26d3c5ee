"""Settings keep their order and their runs; published rows are found by name."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from spml_core import metrics
from spml_core.figures import Interval
from spml_core.methods import names, preset
from spml_core.paths import locate
from spml_core.studies import (
    ablation_table,
    above,
    all_runs,
    band,
    best,
    class_ap,
    class_gains,
    errorbars,
    final_values,
    gains,
    half_widths,
    histories,
    measured,
    over_seeds,
    pairs,
    printed_ablation,
    scores,
    searched,
    sweep,
)
from spml_core.studies.sweep import PUBLISHED

SMALL = {"data": {"train": 60, "val": 40, "test": 30}, "epochs": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    settings = {
        ("an", 1): ("an", {}),
        ("wan", 2): ("wan", {}),
        ("the same", 3): ("an", {"log_floor": 0}),
        ("slow", 4): ("an", {}, {"lr": 1e-5}),
    }
    return sweep(settings, [1, 0], runs_dir=tmp_path_factory.mktemp("runs"), **SMALL)


def test_every_setting_has_its_run_of_every_seed(found):
    assert [name for name, _ in found] == ["an", "wan", "the same", "slow"]
    for (name, _), runs in found.items():
        assert [run.config["seed"] for run in runs] == [1, 0]
        assert {run.config["method"] for run in runs} == {"wan" if name == "wan" else "an"}
    assert [run.path for run in found["an", 1]] == [run.path for run in found["the same", 3]]
    assert {run.config["lr"] for run in found["slow", 4]} == {1e-5}


def test_scores(found):
    table = scores(found)
    assert list(table.columns) == [1, 0] and table.index.nlevels == 2
    assert table.loc[("wan", 2), 0] == found["wan", 2][1].summary["test_map"]
    assert scores(found, "val mAP").loc[("an", 1), 1] == found["an", 1][0].summary["val_map"]
    run = found["an", 1][0]
    expected = metrics.f1_family(run.labels("test").probs, run.labels("test").full)
    assert scores(found, "OF1").iloc[0, 0] == pytest.approx(100 * expected.numbers["OF1"], nan_ok=True)
    assert scores({"b": found["wan", 2], "a": found["an", 1]}).index.tolist() == ["b", "a"]
    with pytest.raises(KeyError, match="F2"):
        scores(found, "F2")


def test_without_a_test_split_validation_stands_in():
    run = SimpleNamespace(summary={"test_map": None, "val_map": 42.0}, config={"seed": 3})
    assert scores({"a": [run]}).loc["a", 3] == 42


def test_measured_is_what_the_metrics_say(found):
    table = measured(found)
    assert table.index.tolist() == [(*name, seed) for name in found for seed in (1, 0)]
    assert list(table) == ["mAP", "CP", "CR", "CF1", "OP", "OR", "OF1"]
    run = found["wan", 2][1]
    assert table.loc[("wan", 2, 0), "mAP"] == pytest.approx(run.summary["test_map"])
    family = metrics.f1_family(run.labels("test").probs, run.labels("test").full)
    assert table.loc[("wan", 2, 0), "CF1"] == pytest.approx(100 * family.numbers["CF1"])
    classes = class_ap(found)
    np.testing.assert_allclose(classes.mean(axis=1), table["mAP"])
    assert classes.columns.tolist() == run.classes
    assert len(all_runs(found)) == 8


def test_gains_are_over_the_baseline_of_the_same_seed(found):
    runs = {"an": found["an", 1], "wan": found["wan", 2]}
    table = class_gains(runs, "an")
    assert set(table.setting) == {"wan"} and len(table) == 2 * 10
    difference = runs["wan"][0].summary["test_map"] - runs["an"][0].summary["test_map"]
    assert table[table.seed == 1].gain.mean() == pytest.approx(difference)


def test_over_seeds():
    table = pd.DataFrame({0: [1.0, 5.0, np.nan], 1: [3.0, 5.0, 1.0]}, index=["an", "gr", "em"])
    assert over_seeds(table).to_dict() == {"an": "2.0 ± 1.4", "gr": "5.0 ± 0.0", "em": "--"}
    assert over_seeds(table[[1]], 2)["em"] == "1.00"


def test_histories(found):
    table = histories(found)
    assert table.groupby(["setting", "seed"]).epoch.agg(list).map(lambda epochs: epochs == [0, 1]).all()
    assert len(table) == 4 * 2 * 2 and table.val_map.notna().all()


def test_ablation_table(found):
    named = {"A: AN": found["an", 1], "ours": found["wan", 2]}
    table, highest = ablation_table(named, "LASD Table 3", {"VOC": {}}, ["mAP"])
    assert list(table.columns) == ["setting", "mAP", "mAP, VOC"] and table.shape == highest.shape
    assert table["mAP, VOC"].tolist()[0] == 85.89 and np.isnan(table["mAP, VOC"][1])
    means = scores(named).mean(axis=1)
    assert highest["mAP"].tolist() == (means == means.max()).tolist()
    wider, _ = ablation_table(named, "LASD Table 3", {"VOC": {}}, ["mAP"], {"ours": "A: AN"})
    assert list(wider.columns) == ["setting", "mAP", "gain in mAP", "mAP, VOC"]
    assert not highest["setting"].any() and highest["mAP, VOC"].tolist() == [True, False]


def test_gains():
    table = pd.DataFrame({0: [3.0, 2.0, 1.0], 1: [3.0, 2.5, 2.9], 2: [3.0, 2.0, 1.2]}, index=list("abc"))
    found = gains(table, {"a": "b", "c": "a"})
    assert found["b"] == "--" and found["a"] == str(Interval.of_mean([1.0, 0.5, 1.0]))
    assert found["c"].startswith("-1.3 [") and list(found.index) == list("abc")
    assert gains(table[[0]], {"a": "b"})["a"] == "+1"


def test_best():
    table = pd.DataFrame({0: [3.0, 2.0], 1: [3.1, 2.2], 2: [3.0, 2.1]}, index=[1.0, 0.5])
    assert best("", table, 1.0) == pairs("", table, [(1.0, 0.5)])
    assert best("", table, 1.0).verdict == "holds" and best("", table, 0.5).verdict == "does not hold"


def test_pairs():
    table = pd.DataFrame({0: [3.0, 2.0, 1.0], 1: [3.0, 2.5, 2.9], 2: [3.0, 2.0, 1.2]}, index=list("abc"))
    claim = pairs("a is best", table, [("a", "b"), ("a", "c")], "X")
    assert claim.verdict == "undecided"  # the second seed has c nearly as high
    assert claim.evidence == "a − b +0.8 [0.1, 1.6], a − c +1.3 [-1.3, 3.9]"
    assert pairs("", table, [("a", "b")]).verdict == "holds"
    longer = table.rename(index={"a": "BCE + SPLC"})
    assert pairs("", longer, [("BCE + SPLC", "b")]).evidence.startswith("(BCE + SPLC) − b +0.8 [")
    tried = table.rename(index={"a": 0.5, "b": 1.0}).rename_axis("tau")
    assert pairs("", tried, [(0.5, 1.0)]).evidence.startswith("(tau = 0.5) − (tau = 1) +0.8 [")
    many = pairs("", table, [("a", "b"), ("a", "c"), ("b", "c"), ("c", "b"), ("b", "a")])
    assert many.evidence.startswith("lowest 3 of 5: b − a -0.8 [-1.6, -0.1], c − b")
    assert pairs("", table, [("a", "c"), ("b", "a")]).verdict == "does not hold"
    assert pairs("", table[[0, 1]], [("a", "b")]).verdict == "not judged"


def test_a_wrong_setting_is_an_error_before_any_training(tmp_path):
    with pytest.raises(ValueError, match="no hyperparameter alpa"):
        sweep({"a": ("an", {}), "b": ("em", {"alpa": 1})}, [0], runs_dir=tmp_path, **SMALL)
    assert not list(tmp_path.iterdir())


def test_published():
    table = printed_ablation("GR Table 3", dataset="coco2014")
    assert len(table) == 9 and table.value.max() == 73.17
    assert printed_ablation("LASD Table 3").row.str[0].tolist() == list("ABCD")
    with pytest.raises(ValueError, match=r"no row of 'GR Table 9'; sources: .*GR Table 3"):
        printed_ablation("GR Table 9")
    with pytest.raises(ValueError, match="no row of 'GR Table 3', dataset = 'nuswide'"):
        printed_ablation("GR Table 3", dataset="nuswide")


def test_every_published_row_is_a_number_of_its_own():
    table = pd.read_csv(locate(PUBLISHED))
    assert table.value.between(1, 100).all()
    assert not table.duplicated(["source", "row", "setting", "dataset", "metric"]).any()
    backbones = table[table.source.isin(["Hill Table IX", "EM Table 2"])]
    assert set(backbones.row) <= set(names())


def test_above():
    table = pd.DataFrame(
        {0: [3.0, 2.0], 1: [3.0, 2.5], 2: [3.1, 2.4]}, index=pd.MultiIndex.from_tuples([(-2, 1), (-2, 0.5)])
    )
    claim = above("", table, pd.Series({0: 1.0, 1: 1.2, 2: 1.1}))
    assert claim.verdict == "holds" and claim.evidence.startswith("(-2, 1) +1.93 [")
    assert above("", table, pd.Series({0: 3.0, 1: 3.0, 2: 3.0})).verdict == "does not hold"


def test_half_widths():
    table = pd.DataFrame({0: [1.0, 2.0], 1: [3.0, 2.0], 2: [2.0, 2.0]}, index=[0.1, 0.2])
    assert half_widths(table).tolist() == pytest.approx([4.303 / np.sqrt(3), 0], abs=1e-3)  # t of two degrees
    assert half_widths(table[[0]]).tolist() == [0, 0]


def test_drawing():
    _, ax = plt.subplots()
    table = pd.DataFrame({0: [1.0, 2.0], 1: [3.0, 4.0]}, index=[0.1, 0.2])
    errorbars(ax, table, label="x")
    band(ax, table)
    assert [line.get_ydata().tolist() for line in ax.lines] == [[2, 3], [2, 3]]
    low, high = (function(ax.collections[-1].get_paths()[0].vertices[:, 1]) for function in (min, max))
    assert (low, high) == (1, 4)
    plt.close()


def test_searched(tmp_path):
    assert searched(tmp_path, "digits", "gr") == {}
    (tmp_path / "search").mkdir()
    for name, method in (("one", "gr"), ("two", "an")):
        text = f"# Chosen.\ndataset: digits\nmethod: {method}\nlr: 0.002\n"
        (tmp_path / "search" / f"{name}.best.yaml").write_text(text + "params: {}\n")
    ((name, fields),) = searched(tmp_path, "digits", "gr").items()
    assert name == "one" and fields["lr"] == 0.002
    assert not searched(tmp_path, "digits", "gr", root=tmp_path / "photos")  # not that of another folder
    found = final_values(fields, ("lr", "b", "q3", "nothing"))
    assert found == {"lr": 0.002, "b": -2.0, "q3": 1.0, "nothing": None}
    assert final_values(preset("gr", "coco2014"), ("w", "mu")) == {"w": 10, "mu": 0.8}
