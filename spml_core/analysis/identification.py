"""Whether a method finds the missing positives, and whether its pseudo-labels are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from spml_core.analysis.missing import missing_blocks
from spml_core.metrics import f1_family


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
    def f1(self) -> float:
        return _ratio(2 * self.correct, self.found + self.missing_positives)

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
        ValueError: `found` is no mask of 0 and 1, another label, or as `bucket_false_negatives`.
    """
    if label not in (1, 0):
        raise ValueError(f"label must be 1 (positive) or 0 (negative), got {label!r}")
    found = np.asarray(found)
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise ValueError("found must be a mask of True and False: compare the scores with a threshold first")
    counts = np.zeros(4, int)
    for chosen, positive in missing_blocks(found, observed, full, known):
        chosen, right = chosen == 1, positive == label
        counts += (chosen.sum(), (chosen & right).sum(), right.sum(), len(right))
    return Identification(*map(int, counts))


def identification_curve(scores, observed, full, thresholds=None, known=None) -> pd.DataFrame:
    """`identification` of scores > threshold, for many thresholds in one pass and bounded memory.

    Args:
        scores: (N, C) finite; probabilities or logits, as the thresholds are.
        thresholds: None = 0, 0.01, ..., 1.

    Returns:
        A row a threshold, increasing: threshold, found, correct, precision, recall, f1 (NaN where undefined).
    """
    thresholds = np.linspace(0, 1, 101) if thresholds is None else np.sort(np.ravel(thresholds))
    found, correct = np.zeros((2, len(thresholds) + 1), int)
    for values, positive in missing_blocks(scores, observed, full, known, probs=False):
        passed = np.searchsorted(thresholds, values, side="left")  # how many thresholds lie below
        found += np.bincount(passed, minlength=len(found))
        correct += np.bincount(passed[positive], minlength=len(found))
    unobserved, positives = int(found.sum()), int(correct.sum())
    found, correct = (a[::-1].cumsum()[::-1][1:] for a in (found, correct))
    rows = [
        Identification(*map(int, pair), positives, unobserved) for pair in zip(found, correct, strict=True)
    ]
    rates = {name: [getattr(row, name) for row in rows] for name in ("precision", "recall", "f1")}
    return pd.DataFrame({"threshold": thresholds, "found": found, "correct": correct, **rates})


def predictive_values(probs, full, threshold: float = 0.9, evaluated=None) -> pd.DataFrame:
    """Return PPV = TP / (TP + FP) and NPV = TN / (TN + FN) of probs > threshold for each class (LASD Fig. 2).

    The paper averages "for all labels" and leaves open over what: over the classes, or of the sums of the counts.

    Args:
        probs: (N, C) probabilities; the default threshold is LASD's tau.
        full: (N, C) truth in {1, 0}.
        evaluated: (N, C) bool, labels to count; None = all.

    Returns:
        One row per class: tp, fp, fn, tn, ppv, npv (NaN where nothing was predicted so).
    """
    counts = f1_family(probs, full, threshold, evaluated=evaluated).per_class
    table = pd.DataFrame({"tp": counts["correct"], "fp": counts["predicted"] - counts["correct"]})
    table["fn"] = counts["positives"] - counts["correct"]
    table["tn"] = counts["evaluated"] - counts["predicted"] - table["fn"]
    table["ppv"], table["npv"] = table.tp / (table.tp + table.fp), table.tn / (table.tn + table.fn)
    return table


def highest(scores, observed, share: float) -> np.ndarray:
    """(N, C) bool: the `share` of each class's unobserved labels with the highest scores (EM App. D), rounded down.

    Of equal scores the first rows are taken. `highest(full, observed, share)` is the best that any scores could do.

    Args:
        scores: (N, C); those of observed labels do not matter.
        observed: (N, C) in {1, 0, -1}.
        share: in [0, 1].
    """
    scores, unobserved = np.asarray(scores, float), np.asarray(observed) == 0
    if scores.shape != unobserved.shape or not 0 <= share <= 1:
        raise ValueError(
            f"scores {scores.shape} and observed {unobserved.shape} must be one (N, C) shape, share={share} in [0, 1]"
        )
    candidates = pd.DataFrame(np.where(unobserved, scores, np.nan))
    rank = candidates.rank(method="first", ascending=False).to_numpy()  # NaN where observed
    return rank <= np.floor(share * unobserved.sum(0) + 1e-9)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
