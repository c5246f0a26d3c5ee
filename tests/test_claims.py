"""Headline numbers and claims."""

import json

import numpy as np
import pytest

from spml_core.figures import Claim, mean_sd, save_headline


def test_a_claim_holds_or_does_not_or_is_not_judged():
    assert Claim("x rises", True, "1, 2, 3").verdict == "holds"
    assert Claim("x rises", np.bool_(False), "3, 2, 1", seeds=3).verdict == "does not hold"
    assert Claim("x rises", True, "1, 2, 3", seeds=2).verdict == "not judged"


def test_order_of_methods():
    maps = {"bce": [98.0, 99.0, 98.5], "gr": [96.0, 97.0, 96.5], "an": [89.0, 90.0, 88.0]}
    claim = Claim.order("BCE > GR > AN", maps, "GR Table 2")
    assert (claim.verdict, claim.seeds) == ("holds", 3)
    assert claim.evidence == "bce 98.5 ± 0.5 > gr 96.5 ± 0.5 > an 89.0 ± 1.0"
    turned = Claim.order("AN > GR", {"an": maps["an"], "gr": maps["gr"]})
    assert turned.verdict == "does not hold" and turned.evidence.startswith("gr 96.5")
    equal = Claim.order("equal", {"a": [1, 1, 1], "b": [1, 1, 1], "c": [0, 0, 0]})
    assert equal.verdict == "does not hold" and equal.evidence.startswith("a 1.0 ± 0.0 = b 1.0 ± 0.0 > c 0.0")
    assert Claim.order("one seed", {"a": [2], "b": [1]}).verdict == "not judged"


def test_claims_lie_beside_the_numbers(tmp_path):
    claims = [Claim("k̂ rises", True, "Spearman 0.99", "GR E.3", 3)]
    save_headline("99-a-test", {"x": 1}, tmp_path, claims=claims)
    assert json.loads((tmp_path / "99-a-test.json").read_text()) == {
        "x": 1,
        "claims": [
            {
                "claim": "k̂ rises",
                "verdict": "holds",
                "evidence": "Spearman 0.99",
                "source": "GR E.3",
                "seeds": 3,
            }
        ],
    }
    with pytest.raises(ValueError, match="claims="):
        save_headline("99-a-test", {"claims": 1}, tmp_path)


def test_mean_and_spread():
    assert mean_sd([96.0, 97.0]) == "96.5 ± 0.7" and mean_sd([0.123], 2) == "0.12"


def test_a_difference_within_its_spread_is_told():
    """Seed by seed, since a seed has the same data for all."""
    steady = Claim.order("a > b", {"a": [90.0, 70.0, 50.0], "b": [89.0, 68.9, 49.1]})
    noisy = Claim.order("a > b", {"a": [90.0, 70.0, 50.0], "b": [85.0, 75.0, 49.1]})
    assert steady.holds and noisy.holds
    assert "no evidence either way" in noisy.evidence and "no evidence" not in steady.evidence
    against = Claim.order("b > a", {"b": [85.0, 75.0, 49.1], "a": [90.0, 70.0, 50.0]})
    assert against.verdict == "does not hold" and "no evidence either way" in against.evidence
