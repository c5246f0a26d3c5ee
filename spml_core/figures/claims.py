"""What a notebook found: its headline numbers, and of each claim of the papers whether it holds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from spml_core.paths import locate

MIN_SEEDS = 3  # below, a claim about training is not judged
NOT_JUDGED = "not judged"


def mean_sd(values: Sequence[float], digits: int = 1) -> str:
    """ "96.3 ± 0.7": mean and standard deviation over the seeds; one value stands alone."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def doubt(differences: Sequence[float]) -> str:
    """What to add to the evidence where the mean of the seeds' differences is no larger than their deviation."""
    if len(differences) < 2 or abs(statistics.fmean(differences)) > statistics.stdev(differences):
        return ""
    return "; the smallest difference is within its sd, so this is no evidence either way"


@dataclass(frozen=True)
class Claim:
    """A paper's qualitative claim and what became of it.

    A claim of an order holds where the means over the seeds have it; `doubt` says where that shows little.

    Args:
        text: the claim, e.g. "GR's Wasserstein distance is larger than AN's".
        holds: whether it does here.
        evidence: the numbers that say so.
        source: where it is made, e.g. "GR 4.4".
        seeds: how many seeds stand behind the numbers; None = nothing is random. Fewer than 3 judge nothing.
    """

    text: str
    holds: bool
    evidence: str
    source: str = ""
    seeds: int | None = None

    @classmethod
    def order(
        cls, text: str, values: Mapping[str, Sequence[float]], source: str = "", digits: int = 1
    ) -> Claim:
        """The claim that the means of `values` (a number a seed) fall from first to last."""
        means = [statistics.fmean(numbers) for numbers in values.values()]
        found = sorted(values, key=lambda name: -statistics.fmean(values[name]))
        shown = {name: f"{statistics.fmean(values[name]):.{digits}f}" for name in found}
        evidence = f"{found[0]} {mean_sd(values[found[0]], digits)}"
        for one, other in pairwise(found):  # what is alike to the last digit shown is not written as an order
            sign = "=" if shown[one] == shown[other] else ">"
            evidence += f" {sign} {other} {mean_sd(values[other], digits)}"
        holds = all(high > low for high, low in pairwise(means))
        gaps = [np.subtract(high, low) for high, low in pairwise(values.values()) if len(high) == len(low)]
        if gaps:  # a seed has the same data and labels in all of them
            evidence += doubt(min(gaps, key=np.mean).tolist())
        return cls(text, holds, evidence, source, min(map(len, values.values())))

    @property
    def verdict(self) -> str:
        """ "holds", "does not hold", or "not judged" where the seeds are too few."""
        if self.seeds is not None and self.seeds < MIN_SEEDS:
            return NOT_JUDGED
        return "holds" if self.holds else "does not hold"

    def record(self) -> dict:
        shown = {
            "claim": self.text,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "source": self.source,
        }
        return shown | {"seeds": self.seeds}


def save_headline(
    name: str, numbers: dict, directory: str | Path = "figures", *, claims: Iterable[Claim] = ()
) -> None:
    """Write and print a notebook's headline numbers, NAME.json: the first is the headline, floats keep 4 digits.

    `claims` follow under the key "claims"; `spml figures` and the gallery say of each whether it holds.

    Raises:
        ValueError: a number is NaN or infinite; names it, and nothing is written.
    """
    if "claims" in numbers:
        raise ValueError(
            '"claims" is no headline number: give them as save_headline(..., claims=[Claim(...)])'
        )
    rounded = {}
    for key, value in numbers.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"headline number {key!r} is {value}: look at what it is computed from")
            value = float(f"{value:.4g}")
        rounded[key] = value
    if stated := [claim.record() for claim in claims]:
        rounded["claims"] = stated
    text = json.dumps(rounded, indent=1, allow_nan=False, ensure_ascii=False)
    folder = locate(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)
