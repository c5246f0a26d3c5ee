"""Headline numbers, and the verdicts on claims."""

import json

import numpy as np
import pytest
from scipy import stats

from spml_core.figures import Claim, Interval, mean_sd, save_headline
from spml_core.figures.claims import decided, tally


def test_interval_is_students():
    values = [1.0, 2.0, 4.0]
    interval = Interval.of_mean(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert interval == pytest.approx((np.mean(values), low, high))
    half = 2.484 * np.std(values, ddof=1)  # of three values
    assert interval.high - interval.value == pytest.approx(half, rel=1e-3)
    assert Interval.of_mean([3.0])[1:] == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ({"a - b": [1.0, 1.1, 0.9]}, "holds"),
        ({"a - b": [-1.0, -1.1, -0.9]}, "does not hold"),
        ({"a - b": [5.0, -5.0, 0.9]}, "undecided"),
        ({"a - b": [0.0, 0.0, 0.0]}, "undecided"),
        ({"a - b": [1.0, 1.1]}, "not judged"),
        ({"a - b": [1.0, 1.1, 0.9], "b - c": [1.0, -1.0, 0.5]}, "undecided"),
        ({"a - b": [1.0, 1.1, 0.9], "b - c": [-1.0, -1.1, -0.9]}, "does not hold"),
    ],
)
def test_verdict_on_paired_differences(differences, verdict):
    claim = Claim.differences("a > b", differences, "GR 4.2")
    assert (claim.verdict, claim.source, claim.seeds) == (verdict, "GR 4.2", len(differences["a - b"]))


def test_order_compares_neighbours_seed_by_seed():
    """Seeds differ far more than methods, which share labels and initial weights."""
    values = {"gr": [90.0, 70.0, 50.0], "em": [89.0, 68.9, 49.1], "an": [80.0, 60.0, 40.0]}
    claim = Claim.order("GR > EM > AN", values)
    assert claim.verdict == "holds"
    assert claim.evidence.startswith("gr - em +1.00 [") and "em - an +9" in claim.evidence
    assert Claim.order("EM > GR", {"em": values["em"], "gr": values["gr"]}).verdict == "does not hold"


def test_bounds_other_than_zero_are_named():
    claim = Claim.bounds("Spearman > 0.8", {"seed 0": Interval(0.9, 0.85, 0.95)}, above=0.8, seeds=3)
    assert claim.verdict == "holds" and claim.evidence == "seed 0 +0.90 [0.85, 0.95]; bound 0.8"


def test_evidence_has_the_digits_of_the_difference():
    assert str(Interval(0.00421, 0.0038, 0.0046)) == "+0.00421 [0.00380, 0.00460]"
    assert str(Interval(12.3, -4.0, 28.6)) == "+12 [-4, 29]"


@pytest.mark.parametrize("scale", [100, 1, 0.03, 0.0004])
@pytest.mark.parametrize(
    "differences", [[1.0, 1.1, 0.9], [1.0, 1.0, 1.0], [1.0, 1.4, 0.602], [-1.0, -1.4, -0.602]]
)
def test_evidence_shows_why_an_order_holds(scale, differences):
    """Not "holds: role 0.03 = an 0.03", nor an interval that is printed as if it began at 0 (case 48)."""
    claim = Claim.differences("role > an", {"role - an": [scale * x for x in differences]})
    low, high = map(float, claim.evidence.split("[")[1].rstrip("]").split(", "))
    assert (claim.verdict == "holds") == (low > 0) and (claim.verdict == "does not hold") == (high < 0)
    assert claim.verdict != "undecided"


def test_another_processor_decides_or_leaves_open_but_does_not_turn_a_verdict_round():
    """Trainings of another processor are other draws of the same noise (case 40)."""
    rng = np.random.default_rng(0)
    for true, never in ((0.0, ()), (0.3, ("does not hold",)), (3.0, ("does not hold", "undecided"))):
        verdicts = [
            Claim.differences("", {"gr - an": (true + 0.3 * rng.standard_normal(3)).tolist()}).verdict
            for _ in range(200)
        ]
        assert not set(verdicts) & set(never)
        if not true:  # the mean of either sign; seldom more than the 5 % that the level allows
            assert verdicts.count("undecided") > 180


def test_an_interval_of_what_is_not_defined():
    assert str(Interval.of_mean([0.5, float("nan")])) == "undefined"
    claim = Claim.differences("rises", {"Spearman": [0.9, float("nan"), 0.9]}, above=0.8)
    assert claim.verdict == "undecided" and "undefined" in claim.evidence


def test_there_is_no_minus_zero():
    assert str(Interval(-0.3, -19, 18)) == "+0 [-19, 18]"


def test_evidence_of_many_differences_is_the_lowest():
    many = {f"d{n}": [n + 1.0, n + 1.1, n + 0.9] for n in range(6)}
    assert Claim.differences("all", many).evidence.startswith("lowest 3 of 6: d0 +1.0")


def test_facts_need_no_seeds():
    assert Claim.fact("COCO has 80 classes", np.bool_(True), "80").verdict == "holds"
    assert Claim.fact("COCO has 81 classes", False, "80").verdict == "does not hold"


def test_claims_lie_beside_the_numbers(tmp_path):
    claim = Claim.fact("k̂ rises", True, "Spearman 0.99", "GR E.3")
    save_headline("99-a-test", {"x": 1}, tmp_path, claims=[claim])
    written = json.loads((tmp_path / "99-a-test.json").read_text())
    shown = {"claim": "k̂ rises", "verdict": "holds", "evidence": "Spearman 0.99", "source": "GR E.3"}
    assert written == {"x": 1, "claims": [shown | {"seeds": None}]}


def test_how_many_claims_are_decided():
    claims = [{"verdict": v} for v in ("holds", "undecided", "holds", "does not hold", "not judged")]
    assert tally(claims) == "2 hold, 1 does not hold, 1 undecided, 1 not judged"
    assert decided(iter(claims)).startswith("3 of 5 claims are decided. Verdicts: 2 hold, ")
    assert decided(claims).endswith("1 not judged. With fewer than 3 seeds, a claim is not judged.")
    assert "fewer" not in decided(claims[:-1])
    assert tally([]) == decided([]) == ""


def test_a_headline_may_be_an_interval(tmp_path):
    save_headline("99-a-test", {"gain": Interval(1.0, 0.5, 1.5)}, tmp_path)
    assert json.loads((tmp_path / "99-a-test.json").read_text()) == {"gain": "+1.0 [0.5, 1.5]"}


def test_mean_and_spread():
    assert mean_sd([96.0, 97.0]) == "96.5 ± 0.7" and mean_sd([0.123], 2) == "0.12"
