"""Whether a method finds the missing positives, and whether its pseudo-labels are right."""

import numpy as np
import pandas as pd

from spml_core.analysis.missing import missing_blocks


def identification(found, observed, full, known=None, *, label: int = 1) -> pd.Series:
    """Return precision and recall of the missing labels that were found (Hill Fig. 7), or of pseudo-labels.

    Nearly all unobserved labels are negative, so pseudo-negatives of which 99 % are right (EM Tables 4 and 7) may be no
    better than chance.

    Args:
        found: (N, C) bool, labels taken as positive, e.g. probs > tau; only unobserved ones count.
        observed, full, known: see `bucket_false_negatives`.
        label: 1; or 0 for labels taken as negative, such as EM+APL's `run.method_state()["pseudo_negative"] > 0`.

    Returns:
        A row of `identification_curve`.

    Raises:
        ValueError: `found` is not a mask of 0 and 1, or as `bucket_false_negatives`.
    """
    found, full = np.asarray(found), np.asarray(full)
    if not np.isin(found, (0, 1)).all():
        raise ValueError("found must be a mask of True and False: compare the scores with a threshold first")
    return identification_curve(found, observed, full if label else 1 - full, [0.5], known).iloc[0]


def identification_curve(probs, observed, full, thresholds, known=None) -> pd.DataFrame:
    """Return how well probs > threshold finds missing positives, for many thresholds in one pass and bounded memory.

    Returns:
        One row per threshold, increasing: threshold, found (how many missing labels are above it), correct (how many of
        them are positive), precision (correct / found), recall (of the missing positives), chance (the precision of a
        guess: the share of positives). A share of zero labels is NaN.
    """
    thresholds = np.sort(np.ravel(thresholds))
    found, correct = np.zeros((2, len(thresholds) + 1), int)
    for p, positive in missing_blocks(probs, observed, full, known):
        passed = np.searchsorted(thresholds, p, side="left")  # how many thresholds lie below
        found += np.bincount(passed, minlength=len(found))
        correct += np.bincount(passed[positive], minlength=len(found))
    above = pd.DataFrame({"found": found, "correct": correct})[::-1].cumsum()[::-1]
    everything, above = above.iloc[[0]], above[1:].reset_index(drop=True)
    above["precision"] = above["correct"] / above["found"]
    above["recall"] = above["correct"] / everything["correct"].item() if correct.any() else np.nan
    above["chance"] = (everything["correct"] / everything["found"]).item()
    above.insert(0, "threshold", thresholds)
    return above


def highest(scores, observed, share: float) -> np.ndarray:
    """Return a mask (N, C) of the `share` of each class's unobserved labels with the highest scores (EM App. D).

    Their number is rounded down; ties go to the first rows. `highest(full, observed, share)` is the best that any
    scores could do.

    Args:
        scores: (N, C); those of observed labels do not matter.
        observed: (N, C) in {1, 0, -1}.
        share: in [0, 1].
    """
    unobserved = np.asarray(observed) == 0
    candidates = pd.DataFrame(np.where(unobserved, np.asarray(scores, float), np.nan))
    rank = candidates.rank(method="first", ascending=False).to_numpy()  # NaN where observed
    return rank <= np.floor(share * unobserved.sum(0) + 1e-9)
