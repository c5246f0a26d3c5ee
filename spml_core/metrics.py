"""Mean average precision and the F1 family, each with its definition, with undefined values reported."""

import hashlib
import warnings
from typing import NamedTuple

import numpy as np

from spml_core import extra

with extra("notebooks"):
    import pandas as pd

from spml_core.words import check_name, count

# Labels ranked 0, 1, 1, 0, 1 give 0.5889, 0.6444 and 0.6424: a number without its definition says little.
DEFINITIONS = {
    "step": "step-wise area under precision-recall (as scikit-learn; ties share one threshold)",
    "voc2010": "VOC 2010 and later: all-point interpolated area (ties share one threshold)",
    "voc2007": "VOC 2007: mean of interpolated precision at the 11 recalls 0, 0.1, ..., 1 (ties share one threshold)",
}
KINDS = {"prob": 0.5, "logit": 0.0}  # and the neutral threshold of each


class AveragePrecision(NamedTuple):
    """Average precision of each class, all values in [0, 1]; `str()` gives the whole result in one line.

    Attributes:
        per_class: (C,), NaN where undefined.
        undefined: the classes without an AP: with fewer than `min_positives` evaluated positives, or with only
            positives among labels of which some are not evaluated, so that any ranking would have an AP of 1.
        mean: mAP over the defined classes; NaN if there is none.
        mean_zero_filled: mAP with 0 for undefined classes, as much released code reports it.
        evaluated: (C,) number of evaluated labels of each class.
        definition: which of the field's AP definitions this is, a value of `DEFINITIONS`.
        num_examples: N.
        min_positives: number of positives that a class needed.
    """

    per_class: np.ndarray
    undefined: tuple[int, ...]
    mean: float
    mean_zero_filled: float
    evaluated: np.ndarray
    definition: str
    num_examples: int
    min_positives: int

    def __str__(self) -> str:
        number, defined = len(self.per_class), len(self.per_class) - len(self.undefined)
        mean = f"{self.mean:.4f}" if defined else "undefined"
        undefined = ", ".join(map(str, self.undefined)) or "none"
        return (
            f"mAP over {count(defined, 'defined class')} = {mean}; zero-filled over {number} = "
            f"{self.mean_zero_filled:.4f}; undefined classes (fewer than {count(self.min_positives, 'positive')}, or "
            f"no known negative): {undefined}; {self.evaluated.sum()} of {number * self.num_examples} evaluated; "
            f"{self.definition}"
        )


def average_precision(
    scores, full, evaluated=None, *, definition: str = "step", min_positives: int = 1
) -> AveragePrecision:
    """Return the average precision of each class, from logits or any other scores: only their order counts.

    Warns if the scores are decisions, that is, only 0 and 1.

    Args:
        scores: (N, C) finite real scores, array or tensor. No sigmoid is applied, so large logits do not tie.
        full: (N, C) truth in {1, 0}.
        evaluated: (N, C) bool, labels to count; the rest is unknown and left out of its class. None = all.
        definition: "step" (scikit-learn), "voc2010" (all-point interpolated) or "voc2007" (11-point).
        min_positives: >= 1, classes with fewer evaluated positives are undefined.

    Raises:
        ValueError: shapes differ, a score is not finite, a label is neither 1 nor 0, or an option is unknown.
    """
    check_name("definition", definition, DEFINITIONS)
    if not min_positives >= 1:
        raise ValueError(f"min_positives must be >= 1, since AP needs a positive; got {min_positives}")
    scores, full, mask = _checked(scores, full, evaluated)
    if scores.size and scores.min() == 0 and scores.max() == 1 and np.isin(scores, (0, 1)).all():
        warnings.warn(
            "the scores contain only 0 and 1: AP ranks scores, so pass the scores before the threshold",
            stacklevel=2,
        )
    everything = mask.all()
    # One class after the other in memory, for the sorts below.
    by_class, positive, counted = scores.T.copy(), (full.T == 1).copy(), mask.T
    per_class = np.full(full.shape[1], np.nan)
    for c, (column, truth) in enumerate(zip(by_class, positive, strict=True)):
        if not everything:
            column, truth = column[counted[c]], truth[counted[c]]
        chosen = np.sort(column[truth])[::-1]  # descending
        if len(chosen) >= min_positives and (everything or len(chosen) < len(column)):
            # Precision is needed at the positives' scores only: count what lies at or above each. Sorting values is
            # ten times faster than sorting an order (numpy sorts them by vector instructions).
            column.sort()
            above = len(column) - np.searchsorted(column, chosen, side="left")
            hits = len(chosen) - np.searchsorted(chosen[::-1], chosen, side="left")
            per_class[c] = _area(hits, hits / above, definition)
    defined = per_class[~np.isnan(per_class)]
    return AveragePrecision(
        per_class=per_class,
        undefined=tuple(map(int, np.flatnonzero(np.isnan(per_class)))),
        mean=float(defined.mean()) if len(defined) else float("nan"),
        mean_zero_filled=float(np.nan_to_num(per_class).mean()) if len(per_class) else float("nan"),
        evaluated=mask.sum(0),
        definition=DEFINITIONS[definition],
        num_examples=len(full),
        min_positives=min_positives,
    )


def _area(hits: np.ndarray, precision: np.ndarray, definition: str) -> float:
    """Return AP from the number of hits and the precision at each positive's score, in descending order of scores."""
    if definition == "step":
        return precision.mean()
    # The best precision at this recall or a higher one.
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    if definition == "voc2010":
        return envelope.mean()
    # recall >= k / 10, in integers
    at = [np.searchsorted(10 * hits, k * len(hits), side="left") for k in range(11)]
    return envelope[at].mean()


class Thresholds(NamedTuple):
    """A threshold for each class, fitted on validation scores.

    Attributes:
        values: (C,), on the scale of `kind`; a score is a positive if it is above.
        kind: "prob" or "logit".
        neutral: classes without a positive in validation, which got 0.5 ("prob") or 0 ("logit").
        fitted_on: SHA-256 of the scores and labels, so that `f1_family` can refuse to be evaluated on them.
    """

    values: np.ndarray
    kind: str
    neutral: tuple[int, ...]
    fitted_on: str


class F1Family(NamedTuple):
    """Precision, recall and F1 at a threshold, all in [0, 1], NaN where undefined.

    Attributes:
        numbers: CP, CR, CF1: macro precision and recall and the mean of the per-class F1, over the classes with an
            evaluated positive; a class for which nothing was predicted has precision 0, as the field counts it.
            CF1_of_means: the other common definition, 2 CP CR / (CP + CR).
            OP, OR, OF1: micro precision, recall and F1, over all evaluated labels of all classes; undefined where
            nothing was predicted (OP) or is positive (OR).
        per_class: one row per class: precision, recall, f1 (undefined without an evaluated positive), positives,
            predicted, correct, evaluated.
    """

    numbers: dict[str, float]
    per_class: pd.DataFrame


def f1_family(scores, full, threshold=None, kind: str = "prob", evaluated=None) -> F1Family:
    """Return CP, CR, CF1, OP, OR, OF1 at a threshold (Hill Tables III to V and X to XV).

    Args:
        scores: (N, C) probabilities or logits, as `kind` says.
        full: (N, C) truth in {1, 0}.
        threshold: one for all classes or (C,), on the scale of `kind`; or a result of `fit_thresholds`. A score above
            it is a positive. None = neutral: 0.5 for probabilities, 0 for logits, which is the same decision.
        kind: "prob" or "logit".
        evaluated: (N, C) bool, labels to count; None = all.

    Raises:
        ValueError: as `average_precision`; a probability or its threshold lies outside [0, 1]; or fitted thresholds are
            applied to the labels they were fitted on, or to scores of another kind.
    """
    scores, full, mask = _of_kind(kind, scores, full, evaluated)
    if isinstance(threshold, Thresholds):
        if threshold.kind != kind:
            raise ValueError(
                f"the thresholds were fitted to kind {threshold.kind!r}, the scores are {kind!r}"
            )
        if threshold.fitted_on == _digest(scores, full, mask):
            raise ValueError(
                "these thresholds were fitted on these very labels: fit on validation, judge on test (to see the fit "
                "itself, pass threshold.values)"
            )
        threshold = threshold.values
    threshold = np.asarray(KINDS[kind] if threshold is None else threshold, float)
    if threshold.shape not in ((), (full.shape[1],)):
        raise ValueError(
            f"threshold has shape {threshold.shape}: pass one number, or one per class, ({full.shape[1]},)"
        )
    if kind == "prob" and not ((threshold >= 0) & (threshold <= 1)).all():
        raise ValueError(
            f"a threshold on probabilities lies in [0, 1], got {threshold}: is it one on logits?"
        )

    predicted, positive = (scores > threshold) & mask, (full == 1) & mask
    correct, predicted, positive = (labels.sum(0) for labels in (predicted & positive, predicted, positive))
    defined = positive > 0
    table = pd.DataFrame(
        {
            "precision": np.where(defined, correct / np.maximum(predicted, 1), np.nan),
            "recall": np.where(defined, correct / np.maximum(positive, 1), np.nan),
            "f1": np.where(defined, 2 * correct / np.maximum(predicted + positive, 1), np.nan),
            "positives": positive,
            "predicted": predicted,
            "correct": correct,
            "evaluated": mask.sum(0),
        }
    )
    p, r, f1 = table[["precision", "recall", "f1"]].mean()
    hits, guesses, truths = correct.sum(), predicted.sum(), positive.sum()
    with np.errstate(invalid="ignore"):  # 0 of 0 is NaN
        micro = {"OP": hits / guesses, "OR": hits / truths, "OF1": 2 * hits / (guesses + truths)}
        of_means = 2 * p * r / (p + r) if p + r else p + r
    numbers = {"CP": p, "CR": r, "CF1": f1, "CF1_of_means": of_means} | micro
    return F1Family({name: float(value) for name, value in numbers.items()}, table)


def fit_thresholds(val_scores, val_full, kind: str = "prob", evaluated=None) -> Thresholds:
    """Return the threshold of each class that maximises its F1 on validation, half-way between two scores.

    A class without a positive in validation gets the neutral threshold and is listed.

    Args:
        val_scores, val_full, kind, evaluated: as in `f1_family`, for the validation split.

    Raises:
        ValueError: as `f1_family`.
    """
    scores, full, mask = _of_kind(kind, val_scores, val_full, evaluated)
    values, neutral = np.full(full.shape[1], KINDS[kind], float), []
    for c in range(full.shape[1]):
        column, truth = scores[mask[:, c], c].astype(float), full[mask[:, c], c] == 1
        if not truth.any():
            neutral.append(c)
            continue
        # Ties share a level, the highest score is the first.
        levels, rank = np.unique(-column, return_inverse=True)
        predicted, hits = np.bincount(rank).cumsum(), np.bincount(rank, truth).cumsum()
        best = np.argmax(2 * hits / (predicted + truth.sum()))
        lowest = 0.0 if kind == "prob" else -levels[-1] - 1  # below all scores
        above, below = -levels[best], -levels[best + 1] if best + 1 < len(levels) else lowest
        middle = below + (above - below) / 2
        values[c] = middle if middle < above else below
    return Thresholds(values, kind, tuple(neutral), _digest(scores, full, mask))


def _checked(scores, full, evaluated) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores, full = _array(scores), _array(full)
    mask = np.ones(full.shape, bool) if evaluated is None else _array(evaluated).astype(bool)
    if scores.ndim != 2 or scores.shape != full.shape or mask.shape != full.shape:
        raise ValueError(
            f"scores {scores.shape}, full {full.shape} and evaluated {mask.shape} must have the same shape (N, C)"
        )
    # float32 where it holds the scores exactly, float64 otherwise: the order must not change.
    exact = scores.dtype in (np.float16, np.float32)
    scores = scores.astype(np.float32 if exact else np.float64, copy=False)
    for name, values, wrong in (
        ("score", scores, ~np.isfinite(scores)),
        ("label", full, mask & (full != 0) & (full != 1)),
    ):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"{name} of image {row}, class {column} is {values[row, column]}; finite scores and labels 1 or 0 only"
            )
    return scores, full, mask


def _of_kind(kind: str, scores, full, evaluated) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `_checked`, after a check that the scores are on the scale of `kind`."""
    check_name("kind of scores", kind, KINDS)
    scores, full, mask = _checked(scores, full, evaluated)
    outside = scores[(scores < 0) | (scores > 1)] if kind == "prob" else ()
    if len(outside):
        raise ValueError(
            f'probabilities lie in [0, 1], found {outside[0]:g}: for logits pass kind="logit" (neutral threshold 0)'
        )
    return scores, full, mask


def _digest(*arrays: np.ndarray) -> str:
    content = hashlib.sha256()
    for array in arrays:
        content.update(np.ascontiguousarray(array, float).tobytes())
    return content.hexdigest()


def _array(values) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return np.asarray(values)
