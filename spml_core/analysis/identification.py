"""Whether a method finds the missing positives, and whether its pseudo-labels are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from spml_core.analysis.missing import missing_blocks


@dataclass(frozen=True)
class Identification:
    """How many missing positives a method found, or how many of its pseudo-labels are right.

    Attributes:
        found: unobserved labels that the method takes for positive (or, if so asked, for negative).
        correct: how many of them truly are.
        missing_positives: unobserved labels that are truly positive (or negative).
        unobserved: unobserved labels of known truth.
    """

    found: int
    correct: int
    missing_positives: int
    unobserved: int

    @property
    def precision(self) -> float:
        """correct / found, the accuracy of pseudo-labels; NaN if nothing was found."""
        return _ratio(self.correct, self.found)

    @property
    def recall(self) -> float:
        """correct / missing_positives; NaN if nothing is missing."""
        return _ratio(self.correct, self.missing_positives)

    @property
    def chance(self) -> float:
        """Precision of a guess: the share of that truth among unobserved labels."""
        return _ratio(self.missing_positives, self.unobserved)


def identification(found, observed, full, known=None, *, label: int = 1) -> Identification:
    """Return precision and recall of the missing labels that were found (Hill Fig. 7), or of pseudo-labels.

    Nearly all unobserved labels are negative, so 99 % of right negatives (EM Tables 4 and 7) may be no better than
    chance.

    Args:
        found: (N, C) bool, labels taken for positive, e.g. probs > tau; only unobserved ones count.
        observed, full, known: see `bucket_false_negatives`.
        label: 1; or 0 for labels taken for negative, such as EM+APL's `run.method_state()["pseudo_negative"] > 0`.

    Raises:
        ValueError: `found` is no mask of 0 and 1, or as `bucket_false_negatives`.
    """
    if not np.isin(found, (0, 1)).all():
        raise ValueError("found must be a mask of True and False: compare the scores with a threshold first")
    counts = np.zeros(4, int)
    for chosen, positive in missing_blocks(found, observed, full, known):
        chosen, right = chosen == 1, positive == label
        counts += (chosen.sum(), (chosen & right).sum(), right.sum(), len(right))
    return Identification(*map(int, counts))


def identification_curve(probs, observed, full, thresholds, known=None) -> pd.DataFrame:
    """Return `identification` of probs > threshold, for many thresholds in one pass and bounded memory.

    Returns:
        One row per threshold, increasing: threshold, found, correct, precision, recall (NaN where undefined).
    """
    thresholds = np.sort(np.ravel(thresholds))
    found, correct = np.zeros((2, len(thresholds) + 1), int)
    for p, positive in missing_blocks(probs, observed, full, known):
        passed = np.searchsorted(thresholds, p, side="left")  # how many thresholds lie below
        found += np.bincount(passed, minlength=len(found))
        correct += np.bincount(passed[positive], minlength=len(found))
    above = pd.DataFrame({"found": found, "correct": correct})[::-1].cumsum()[::-1]
    above["precision"] = above["correct"] / above["found"]
    above["recall"] = above["correct"] / above["correct"].iloc[0] if correct.any() else np.nan
    above = above[1:].reset_index(drop=True)
    above.insert(0, "threshold", thresholds)
    return above


def highest(scores, observed, share: float) -> np.ndarray:
    """(N, C) bool: the `share` of each class's unobserved labels with the highest scores (EM App. D), rounded down.

    Of equal scores the first rows are taken. `highest(full, observed, share)` is the best that any scores could do.

    Args:
        scores: (N, C); those of observed labels do not matter.
        observed: (N, C) in {1, 0, -1}.
        share: in [0, 1].
    """
    unobserved = np.asarray(observed) == 0
    candidates = pd.DataFrame(np.where(unobserved, np.asarray(scores, float), np.nan))
    rank = candidates.rank(method="first", ascending=False).to_numpy()  # NaN where observed
    return rank <= np.floor(share * unobserved.sum(0) + 1e-9)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
