"""What a notebook found: its headline numbers, and the verdict on each claim of the papers."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from spml_core.paths import locate, write_whole

MIN_SEEDS = 3  # with fewer, a claim about training is not judged
CONFIDENCE = 0.95
SHOWN = 3  # intervals shown as evidence of a claim about more than four
HOLDS, DOES_NOT_HOLD, UNDECIDED, NOT_JUDGED = VERDICTS = (
    "holds", "does not hold", "undecided", "not judged",
)  # fmt: skip


def mean_sd(values: Sequence[float], digits: int = 1) -> str:
    """Return mean and standard deviation over the seeds, "96.3 ± 0.7"; for one value, only that."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


class Interval(NamedTuple):
    """An estimate with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_mean(cls, values: Sequence[float]) -> "Interval":
        """Return the mean of a few values, one per seed, with Student's interval: ± 2.48 sd for three of them.

        The interval is unbounded for a single value, and if a value is NaN.
        """
        mean = statistics.fmean(values)
        if len(values) < 2 or math.isnan(mean):
            return cls(mean, -math.inf, math.inf)
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
        half = float(quantile) * statistics.stdev(values) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)

    def __str__(self) -> str:
        """Return e.g. "+3.1 [1.2, 5.0]", with digits as the width justifies, and enough to tell each end from 0."""
        width = self.high - self.low
        if not math.isfinite(width):
            return "undefined" if math.isnan(self.value) else f"{self.value:+.3g}"
        digits = 1 if width == 0 else min(max(1 - math.floor(math.log10(width)), 0), 6)
        while digits < 6 and any(end != 0 == round(end, digits) for end in (self.low, self.high)):
            digits += 1
        value, low, high = (round(each, digits) + 0.0 for each in self)  # + 0.0: no -0
        return f"{value:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


@dataclass(frozen=True)
class Claim:
    """A paper's qualitative claim and the verdict on it. Make one with `order`, `differences`, `bounds` or `fact`.

    Attributes:
        claim: what is claimed, e.g. "GR's Wasserstein distance is larger than AN's".
        verdict: one of `VERDICTS`.
        evidence: the numbers behind the verdict.
        source: where the claim is made, e.g. "GR 4.4".
        seeds: number of seeds behind the evidence; None = nothing is random.
    """

    claim: str
    verdict: str
    evidence: str
    source: str = ""
    seeds: int | None = None

    @classmethod
    def fact(cls, claim: str, holds: bool, evidence: str, source: str = "") -> "Claim":
        """Return a claim in which nothing is random, such as one about an equation or about counts of labels."""
        return cls(claim, HOLDS if holds else DOES_NOT_HOLD, evidence, source)

    @classmethod
    def bounds(
        cls, claim: str, intervals: Mapping[str, Interval], source: str = "", *, above: float = 0, seeds: int
    ) -> "Claim":
        """Return the claim that every quantity is larger than `above`.

        It holds if all intervals lie above the bound, does not hold if one lies below it, and is undecided otherwise.
        The level of 95 % applies to each interval, not to all of them together.

        Args:
            intervals: estimate by name; the lowest are shown where there are many.
            above: the bound, 0 for a difference. For a claim that a quantity is smaller, pass its negative.
            seeds: number of seeds behind the intervals; with fewer than 3 there is no verdict.
        """
        return cls(claim, _verdict(intervals, above, seeds), _evidence(intervals, above), source, seeds)

    @classmethod
    def differences(
        cls, claim: str, paired: Mapping[str, Sequence[float]], source: str = "", *, above: float = 0
    ) -> "Claim":
        """Return the claim that every difference is larger than `above`, by Student's intervals over the seeds.

        Runs with the same seed share labels, initial weights and order of examples, so their difference varies less
        than either of them.

        Args:
            paired: name of a difference, e.g. "GR - AN" -> one value per seed.
        """
        intervals = {name: Interval.of_mean(values) for name, values in paired.items()}
        return cls.bounds(claim, intervals, source, above=above, seeds=min(map(len, paired.values())))

    @classmethod
    def order(cls, claim: str, values: Mapping[str, Sequence[float]], source: str = "") -> "Claim":
        """Return the claim that `values`, one per seed, fall from the first name to the last."""
        gaps = {f"{a} - {b}": np.subtract(values[a], values[b]).tolist() for a, b in pairwise(values)}
        return cls.differences(claim, gaps, source)


def _verdict(intervals: Mapping[str, Interval], above: float, seeds: int) -> str:
    if seeds < MIN_SEEDS:
        return NOT_JUDGED
    if any(interval.high < above for interval in intervals.values()):
        return DOES_NOT_HOLD
    return HOLDS if intervals and all(interval.low > above for interval in intervals.values()) else UNDECIDED


def _evidence(intervals: Mapping[str, Interval], above: float) -> str:
    lowest = sorted(intervals, key=lambda name: intervals[name].value)
    shown = lowest[:SHOWN] if len(lowest) > SHOWN + 1 else intervals
    text = ", ".join(f"{name} {intervals[name]}" for name in shown)
    if len(shown) < len(intervals):
        text = f"lowest {len(shown)} of {len(intervals)}: {text}"
    return text if above == 0 else f"{text}; bound {above:g}"


def tally(claims: Iterable[Mapping]) -> str:
    """Return how many of the claims have each verdict, e.g. "4 hold, 2 do not hold, 5 undecided"; "" without claims.

    Args:
        claims: as `save_headline` writes them, with the key "verdict".
    """
    verdicts = [claim["verdict"] for claim in claims]
    plural = {HOLDS: "hold", DOES_NOT_HOLD: "do not hold"}
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}
    return ", ".join(
        f"{n} {verdict if n == 1 else plural.get(verdict, verdict)}" for verdict, n in counts.items()
    )


def decided(claims: Iterable[Mapping]) -> str:
    """Return a sentence that says how many of the claims are decided; "" without claims."""
    if not (claims := list(claims)):
        return ""
    number = sum(claim["verdict"] in (HOLDS, DOES_NOT_HOLD) for claim in claims)
    said = f"{number} of {len(claims)} claims are decided. Verdicts: {tally(claims)}."
    if any(claim["verdict"] == NOT_JUDGED for claim in claims):
        said += f" With fewer than {MIN_SEEDS} seeds, a claim is not judged."
    return said


def save_headline(
    name: str, numbers: dict, directory: str | Path = "figures", *, claims: Iterable[Claim] = ()
) -> None:
    """Write and print a notebook's headline numbers, NAME.json: the first is the headline, floats keep 4 digits.

    An `Interval` is written as its text. `claims` follow under the key "claims"; `spml figures` and the gallery show
    the verdict on each.

    Raises:
        ValueError: a number is NaN or infinite; names it, and nothing is written.
    """
    rounded = {}
    for key, value in numbers.items():
        value = value.item() if isinstance(value, np.generic) else value
        value = str(value) if isinstance(value, Interval) else value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"headline number {key!r} is {value}: check what it is computed from")
            value = float(f"{value:.4g}")
        rounded[key] = value
    if stated := [asdict(claim) for claim in claims]:
        rounded["claims"] = stated
    text = json.dumps(rounded, indent=1, allow_nan=False, ensure_ascii=False)
    write_whole(locate(directory) / f"{name}.json", text + "\n")
    print(text)
