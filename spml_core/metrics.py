"""Mean average precision, with its definition and what is undefined said out loud."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score

STEP = "step-wise area under precision-recall (as scikit-learn; ties share one threshold)"


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision of each class, all values in [0, 1].

    Attributes:
        per_class: (C,), NaN where undefined.
        undefined: the classes without a positive (or without any evaluated label): no AP exists for them.
        mean: mAP over the defined classes; NaN if there is none.
        mean_zero_filled: mAP with 0 for undefined classes, as much released code reports it.
        evaluated: (C,) how many labels of each class entered.
        definition: which of the field's AP definitions this is.
    """

    per_class: np.ndarray
    undefined: tuple[int, ...]
    mean: float
    mean_zero_filled: float
    evaluated: np.ndarray
    definition: str = STEP


def average_precision(scores, full, evaluated=None) -> AveragePrecision:
    """Average precision by class, from logits or any other scores: only their order counts.

    Args:
        scores: (N, C) finite real scores, array or tensor. No sigmoid is applied, so large logits do not tie.
        full: (N, C) truth in {1, 0}.
        evaluated: (N, C) bool, labels to count; the rest is unknown and left out of its class. None = all.

    Raises:
        ValueError: shapes differ, a score is not finite, or a label is neither 1 nor 0.
    """
    scores, full = np.asarray(_numpy(scores), np.float64), np.asarray(_numpy(full))
    mask = np.ones(full.shape, bool) if evaluated is None else np.asarray(_numpy(evaluated), bool)
    if scores.ndim != 2 or scores.shape != full.shape or mask.shape != full.shape:
        raise ValueError(
            f"scores {scores.shape}, full {full.shape} and evaluated {mask.shape} must be one (N, C) shape"
        )
    for name, wrong in (("score", ~np.isfinite(scores)), ("label", mask & (full != 0) & (full != 1))):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            value = (scores if name == "score" else full)[row, column]
            raise ValueError(
                f"{name} of image {row}, class {column} is {value}; finite scores and labels 1 or 0 only"
            )

    per_class = np.full(full.shape[1], np.nan)
    for c in range(full.shape[1]):
        truth = full[mask[:, c], c]
        if truth.any():
            per_class[c] = average_precision_score(truth, scores[mask[:, c], c])
    defined = per_class[~np.isnan(per_class)]
    return AveragePrecision(
        per_class=per_class,
        undefined=tuple(map(int, np.flatnonzero(np.isnan(per_class)))),
        mean=float(defined.mean()) if len(defined) else float("nan"),
        mean_zero_filled=float(np.nan_to_num(per_class).mean()) if len(per_class) else float("nan"),
        evaluated=mask.sum(0),
    )


def _numpy(values):
    return values.detach().double().cpu().numpy() if hasattr(values, "detach") else values
