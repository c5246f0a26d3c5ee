"""Whether a method finds the missing positives, and whether its pseudo-labels are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from spml_core.analysis.missing import missing_blocks


@dataclass(frozen=True)
class Identification:
    """How many missing positives a method found.

    Attributes:
        found: unobserved labels that the method takes for positive.
        correct: how many of them truly are.
        missing_positives: unobserved labels that are truly positive.
        unobserved: unobserved labels (of known truth).
    """

    found: int
    correct: int
    missing_positives: int
    unobserved: int

    @property
    def precision(self) -> float:
        """correct / found; NaN if nothing was found."""
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
        """Precision of a guess: the share of positives among unobserved labels."""
        return _ratio(self.missing_positives, self.unobserved)


def identification(found, observed, full, known=None) -> Identification:
    """Precision and recall of the missing labels that were found (Hill Fig. 7).

    Args:
        found: (N, C) bool, labels taken for positive, e.g. probs > tau; only unobserved ones count.
        observed, full, known: see `bucket_false_negatives`.

    Raises:
        ValueError: `found` is no mask of 0 and 1, or as `bucket_false_negatives`.
    """
    found = np.asarray(found)
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise ValueError("found must be a mask of True and False: compare the scores with a threshold first")
    counts = np.zeros(4, int)
    for chosen, positive in missing_blocks(found, observed, full, known):
        chosen = chosen == 1
        counts += (chosen.sum(), (chosen & positive).sum(), positive.sum(), len(positive))
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


@dataclass(frozen=True)
class PredictiveValues:
    """Positive and negative predictive value at a threshold; NaN where nothing was predicted so.

    Attributes:
        ppv, npv: mean over the classes where they are defined.
        ppv_micro, npv_micro: over all labels at once.
        per_class: a row a class: tp, fp, fn, tn, ppv, npv.
    """

    ppv: float
    npv: float
    ppv_micro: float
    npv_micro: float
    per_class: pd.DataFrame


def predictive_values(probs, full, threshold: float = 0.9, evaluated=None) -> PredictiveValues:
    """PPV = TP / (TP + FP) and NPV = TN / (TN + FN) of probs > threshold (LASD Fig. 2, on the test set).

    The paper averages "for all labels" and leaves open over what: `ppv` is the mean over classes, `ppv_micro` pools.

    Args:
        probs: (N, C) probabilities; the default threshold is LASD's tau.
        full: (N, C) truth in {1, 0}.
        evaluated: (N, C) bool, labels to count; None = all.
    """
    probs, full = np.asarray(probs), np.asarray(full)
    mask = np.ones(full.shape, bool) if evaluated is None else np.asarray(evaluated, bool)
    if not probs.shape == full.shape == mask.shape or probs.ndim != 2:
        raise ValueError(
            f"probs {probs.shape}, full {full.shape} and evaluated {mask.shape} must be one (N, C) shape"
        )
    chosen, positive = probs > threshold, full == 1
    pairs = {"tp": chosen & positive, "fp": chosen & ~positive, "fn": ~chosen & positive}
    counts = {name: (cells & mask).sum(0) for name, cells in pairs.items()}
    counts["tn"] = mask.sum(0) - sum(counts.values())
    table = pd.DataFrame(counts).astype(float)
    table["ppv"], table["npv"] = table.tp / (table.tp + table.fp), table.tn / (table.tn + table.fn)
    total = table.sum()
    return PredictiveValues(
        float(table.ppv.mean()),
        float(table.npv.mean()),
        _ratio(total.tp, total.tp + total.fp),
        _ratio(total.tn, total.tn + total.fn),
        table.astype(dict.fromkeys(counts, int)),
    )


@dataclass(frozen=True)
class PseudoLabels:
    """How many pseudo-labels of one kind were given, and how many are right.

    Attributes:
        chance: the accuracy of labels given at random, i.e. the share of that truth among unobserved labels.
    """

    given: int
    correct: int
    chance: float

    @property
    def accuracy(self) -> float:
        """correct / given; NaN if none was given."""
        return _ratio(self.correct, self.given)


def pseudo_label_accuracy(assigned, observed, full, label: int, known=None) -> PseudoLabels:
    """Accuracy of negative or positive pseudo-labels (EM Tables 4 and 7), beside that of a guess.

    Nearly all unobserved labels are negative, so 99 % of right negatives may be no better than chance.

    Args:
        assigned: (N, C) bool, which labels got the pseudo-label: for EM+APL
            `run.method_state()["pseudo_negative"] > 0`. Observed labels do not count.
        label: what they were labelled: 0 (or -1) for negative, 1 for positive.
    """
    if label not in (1, 0, -1):
        raise ValueError(f"label must be 1 (positive) or 0 (negative), got {label!r}")
    found = identification(assigned, observed, full, known)
    if label == 1:
        return PseudoLabels(found.found, found.correct, found.chance)
    return PseudoLabels(found.found, found.found - found.correct, 1 - found.chance)


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
    order = np.argsort(np.where(unobserved, -scores, np.inf), axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(order))[:, None], axis=0)
    return (rank < np.floor(share * unobserved.sum(0) + 1e-9)) & unobserved


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
