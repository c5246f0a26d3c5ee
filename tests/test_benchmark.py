"""The benchmark's tables: our numbers as the metrics compute them, printed ones as in the file."""

import csv
import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from spml_core import data, methods
from spml_core.paths import locate
from spml_core.studies import METRICS, comparison
from spml_core.studies.comparison import agreement, beside, cells, labels_left, published, report


def test_names_are_all_whole_methods():
    parts = {"focal_margin", "gr_trainable", "mse", "smile_joint", "unified"}
    assert set(comparison.names()) == set(methods.names()) - parts
    assert comparison.names()[:6] == ["bce", "iun", "iu", "gr", "an", "an_ls"]  # related ones together


@pytest.mark.parametrize("dataset", ["digits", "voc2012", "cub200"])
def test_parameters_can_be_built(dataset):
    chosen = comparison.parameters(comparison.names(), dataset)
    for name, params in chosen.items():
        required = dict.fromkeys(methods.get(name).requires, 1.5)
        methods.build(name, num_classes=312, num_examples=4, **required | params)
    published = {"digits": {}, "voc2012": {"expected_positives": 1.5}, "cub200": {"expected_positives": 31.4}}
    assert chosen["role"] == published[dataset] and chosen["en"] == {}  # else counted in the data
    assert chosen["em"] == {} if dataset == "digits" else chosen["em"]["alpha"] in (0.2, 0.01)


def test_cells():
    index = pd.MultiIndex.from_product([["an", "gr"], [0, 1]], names=[None, "seed"])
    table = pd.DataFrame({"mAP": [1.0, 3.0, 5.0, 5.0], "OP": [np.nan, 2.0, 1.0, 1.0]}, index=index)
    assert cells(table).to_dict() == {
        "mAP": {"an": "2.0 ± 1.4", "gr": "5.0 ± 0.0"},
        "OP": {"an": "--", "gr": "1.0 ± 0.0"},
    }


def test_published_by_our_names():
    table = published("GR Table 2", metric="mAP")
    assert table.loc["gr"].tolist() == ["89.83 ± 0.12", "73.17 ± 0.36", "49.08 ± 0.04", "21.64 ± 0.32"]
    assert table.loc["role", "VOC"] == "88.26 ± 0.21" and "fm_splc" in table.index
    assert table.loc["hill"].isna().sum() == 2
    full = published("EM Table 1", value="mean", metric="mAP")
    assert full.loc["bce", "VOC"] == 89.42 and full.loc["iun", "VOC"] == 87.60
    by_metric = published("Hill Table XII", "metric", labels="single_positive")
    assert list(by_metric) == list(METRICS) and by_metric.loc["hill", "OF1"] == "69.5"
    assert published("Hill Table III", "labels", metric="mAP").loc["an"].dropna().size == 3
    with pytest.raises(ValueError, match=r"no row of 'gr_table9'; sources: gr_table2"):
        published("GR Table 9")


@pytest.mark.parametrize(
    "source", ["GR Table 2", "EM Table 1", "LASD Table 2", "Hill Table III", "Hill Table X"]
)
def test_rows_are_registered_or_have_a_name(source):
    rows = published(
        source, "dataset" if "Hill" not in source else "metric", labels=["single_positive", "full"]
    )
    assert not set(rows.index) - set(methods.names()) - set(comparison.OTHERS)


def test_known_slips_are_those_that_are_described():
    table = pd.read_csv(locate(comparison.PUBLISHED)).set_index(["source", "loss", "dataset"])["mean"]
    for name in ("nuswide", "cub200"):
        assert table["gr_table2", "smile", name].item() == table["gr_table2", "splc", name].item()
    for name in ("voc2012", "coco2014"):
        assert table["gr_table2", "role_li", name].item() == table["em_table1", "role_li", name].item()
    assert table["gr_table2", "role_li", "nuswide"].item() != table["em_table1", "role_li", "nuswide"].item()
    described = locate("data/README.md").read_text()
    assert all(word in described for word in ("published_results.csv", "SMILE", "LinearInit", "119,103"))


def test_every_published_row_is_a_number_of_its_own():
    with open(locate(comparison.PUBLISHED)) as file:
        rows = list(csv.DictReader(file))
    keys = [tuple(row[k] for k in ("source", "loss", "dataset", "labels", "metric")) for row in rows]
    assert len(set(keys)) == len(keys) == 651
    assert all(1 < float(row["mean"]) < 100 for row in rows)


def test_side_by_side():
    ours = pd.DataFrame({"digits": ["90.0 ± 1.0", "99.0 ± 0.1", "91.0 ± 1.0"]}, index=["an", "bce", "gr"])
    printed = pd.DataFrame({"VOC": ["89.83 ± 0.12", "85.89 ± 0.38", np.nan]}, index=["mime", "an", "bce"])
    both = beside(ours, printed, ["gr", "lasd"])
    assert both.index.tolist() == ["mime", "an", "bce", "gr"] and both.loc["mime", "digits"] == "--"
    table, highest = report({"": both})
    assert table["method"].tolist() == ["MIME", "AN", "BCE (full labels)", "GR"]
    assert highest["digits"].tolist() == [False, False, False, True]  # an oracle is no rival
    assert highest["VOC"].tolist() == [True, False, False, False] and not highest["method"].any()
    table, highest = report({"75 %": both, "single": both.loc[["an", "bce"]]}, "labels left")
    assert table["labels left"].tolist() == ["75 %"] * 4 + ["single"] * 2 and table.shape == highest.shape
    assert highest["digits"].tolist() == [False, False, False, True, True, False]


def test_agreement():
    ours = pd.DataFrame({0: [1.0, 2, 3, 4, 9], 1: [1.0, 3, 2, 4, 9]}, index=["an", "em", "gr", "hill", "bce"])
    printed = pd.DataFrame(
        {"VOC": [10.0, 20, 30, 40, 5, 1], "COCO": [40.0, 30, 20, 10, 5, 1], "NUS": [1.0, 2] + 4 * [np.nan]},
        index=["an", "em", "gr", "hill", "bce", "smile"],
    )
    table = agreement(ours, printed).set_index("dataset")
    assert table.index.tolist() == ["VOC", "COCO"]  # two methods have no order to speak of
    assert table.methods.tolist() == [4, 4]
    assert table.loc["VOC", ["lowest", "highest", "with_first"]].tolist() == pytest.approx([0.8, 1, 1])
    assert table.loc["VOC", "p_value"] == pytest.approx(
        4 / 24
    )  # two tie: four of 24 orders are as good or as bad
    assert table.loc["COCO", "with_first"] == -1 and table.loc["COCO", "spearman"] < -0.9
    ranks = comparison.ranks(ours, printed["VOC"])
    assert ranks.index.tolist() == ["hill", "gr", "em", "an"] and ranks.printed.tolist() == [1, 2, 3, 4]
    assert ranks.loc["gr", ["here", "best", "worst"]].tolist() == [2.5, 2, 3]


def test_labels_left():
    seeds = itertools.count()

    def run(observed):
        full = np.array([[1, 1, 0, 0], [1, 1, 0, 0]])
        seen = SimpleNamespace(observed=np.array(observed), full=full)
        return SimpleNamespace(labels=lambda split: seen, config={"seed": next(seeds)})

    half = [[1, 0, 0, -1], [1, 0, 0, 0]]
    found = {("full", "bce"): [run([[1, 1, -1, -1]] * 2)], ("single", "an"): [run(half), run(half)]}
    assert labels_left(found).to_dict() == {"full": 100, "single": 50}


def test_orders_of_absent_methods_claim_nothing():
    table = pd.DataFrame({s: [3.0, 2.0] for s in range(3)}, index=["gr", "an"])
    (claim,) = comparison.ordered("", table, [("gr", "an"), ("gr", "em")])
    assert claim.verdict == "holds" and claim.evidence == "gr − an +1.0 [1.0, 1.0]"
    assert comparison.ordered("", table, [("em", "an")]) == []


def test_paired_differences():
    table = pd.DataFrame([[3.0, 4.0, 5.0], [1.0, 2.0, 3.5]], index=["gr", "an"], columns=[0, 1, 2])
    (row,) = comparison.paired_differences(table, "gr", ["an"]).to_dict("records")
    assert row["difference"] == "GR − AN" and row["seed 2"] == 1.5 and row["mean"] == pytest.approx(11 / 6)
    assert row["high"] - row["mean"] == pytest.approx(2.4841 * np.std([2, 2, 1.5], ddof=1), rel=1e-4)
    (row,) = comparison.paired_differences(table[[0]], "gr", ["an"]).to_dict("records")
    assert row["mean"] == 2 and np.isnan(row["low"]) and np.isnan(row["high"])  # one seed has no interval


def test_crowded_digits_leave_the_published_shares():
    """Hill's Table II: of COCO's 2.9 labels, 2.2, 1.2 and 1 are left."""
    counts = [0.05, 0.15, 0.6, 0.2]
    full = data.load("digits", train=4000, val=10, test=10, counts=counts).parts["train"].full
    kept = {r: data.labels.num_kept(full.sum(1), r).mean() for r in (0.0, 0.5, 0.75, 1.0)}
    assert kept[0.0] == pytest.approx(2.95, abs=0.03) and kept[1.0] == 1
    assert kept[0.5] == pytest.approx(2.15, abs=0.05) and kept[0.75] == pytest.approx(1.2, abs=0.02)
