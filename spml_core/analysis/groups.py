"""Scores by what is known and true of a label, and scores of one method class by class beside another's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit

from spml_core.metrics import AveragePrecision

GROUPS = ("annotated positive", "unannotated positive", "unannotated negative", "verified negative")


def group_means(logits, observed, full, known=None) -> pd.DataFrame:
    """Mean logits and probabilities by group of labels (EM Fig. 7: mean absolute logit; EM Fig. 8: mean probability).

    The mean of -log p is the loss of an annotated positive in nearly all methods: L+ of EM Fig. 2b and 6.

    Args:
        logits: (N, C).
        observed: (N, C) in {1, 0, -1}.
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; None = everywhere.

    Returns:
        Indexed by `GROUPS`: n, mean_abs_logit, mean_logit, mean_prob, mean_minus_log_p; NaN where a group is empty.
    """
    logits, observed, full = np.asarray(logits, float), np.asarray(observed), np.asarray(full)
    known = np.ones(full.shape, bool) if known is None else np.asarray(known, bool)
    if not logits.shape == observed.shape == full.shape == known.shape:
        raise ValueError(
            f"logits {logits.shape}, observed {observed.shape}, full {full.shape}, known {known.shape} must be one "
            "(N, C) shape"
        )
    free = (observed == 0) & known
    masks = (observed == 1, free & (full == 1), free & (full == 0), observed == -1)
    rows = []
    for mask in masks:
        z = logits[mask]
        means = (
            (np.abs(z).mean(), z.mean(), expit(z).mean(), -log_expit(z).mean()) if len(z) else (np.nan,) * 4
        )
        rows.append((len(z), *means))
    columns = ["n", "mean_abs_logit", "mean_logit", "mean_prob", "mean_minus_log_p"]
    return pd.DataFrame(rows, pd.Index(GROUPS, name="group"), columns)


def class_gain(
    ap: AveragePrecision, baseline: AveragePrecision, classes: Sequence[str] | None = None
) -> pd.DataFrame:
    """AP of a method beside a baseline's, class by class (EM Fig. 4c): class, positives, baseline, ap, gain.

    In percent and percent points; NaN where a class is undefined. Plot it sorted by `gain`.

    Raises:
        ValueError: the two differ in definition, classes or evaluated labels, so that no difference means anything.
    """
    same = (
        ap.definition == baseline.definition
        and np.array_equal(ap.evaluated, baseline.evaluated)
        and np.array_equal(ap.positives, baseline.positives)
    )
    if not same:
        raise ValueError("the two results differ in definition or evaluated labels: compare like with like")
    columns = {
        "class": range(len(ap.per_class)) if classes is None else list(classes),
        "positives": ap.positives,
        "baseline": 100 * baseline.per_class,
        "ap": 100 * ap.per_class,
        "gain": 100 * (ap.per_class - baseline.per_class),
    }
    return pd.DataFrame(columns)
