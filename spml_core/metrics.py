"""Mean average precision and the F1 family, each with its definition, and what is undefined said out loud."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass

import numpy as np

from spml_core import extra

with extra("notebooks"):
    import pandas as pd

from spml_core.words import count

STEP = "step-wise area under precision-recall (as scikit-learn; ties share one threshold)"
# Labels ranked 0, 1, 1, 0, 1 give 0.5889, 0.6444 and 0.6424: a number without its definition says little.
DEFINITIONS = {
    "step": STEP,
    "voc2010": "VOC 2010 and later: all-point interpolated area (ties share one threshold)",
    "voc2007": "VOC 2007: mean of interpolated precision at the 11 recalls 0, 0.1, ..., 1 (ties share one threshold)",
}
KINDS = {"prob": 0.5, "logit": 0.0}  # and the neutral threshold of each


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision of each class, all values in [0, 1]; `str()` says the whole result in one line.

    Attributes:
        per_class: (C,), NaN where undefined.
        undefined: the classes with fewer than `min_positives` evaluated positives: no AP is given for them.
        mean: mAP over the defined classes; NaN if there is none.
        mean_zero_filled: mAP with 0 for undefined classes, as much released code reports it.
        evaluated: (C,) how many labels of each class entered.
        definition: which of the field's AP definitions this is, a value of `DEFINITIONS`.
        positives: (C,) how many of the evaluated labels are positive.
        num_examples: N.
        min_positives: how many positives a class needed.
    """

    per_class: np.ndarray
    undefined: tuple[int, ...]
    mean: float
    mean_zero_filled: float
    evaluated: np.ndarray
    definition: str = STEP
    positives: np.ndarray | None = None
    num_examples: int = 0
    min_positives: int = 1

    def __str__(self) -> str:
        number, defined = len(self.per_class), len(self.per_class) - len(self.undefined)
        mean = f"{self.mean:.4f}" if defined else "undefined"
        return (
            f"mAP over {count(defined, 'defined class')} = {mean}; zero-filled over {number} = "
            f"{self.mean_zero_filled:.4f}; undefined classes (fewer than {count(self.min_positives, 'positive')}): "
            f"{_listed(self.undefined)}; {self.evaluated.sum()} of {number * self.num_examples} evaluated; "
            f"{self.definition}"
        )


def average_precision(
    scores, full, evaluated=None, *, definition: str = "step", min_positives: int = 1
) -> AveragePrecision:
    """Average precision by class, from logits or any other scores: only their order counts.

    Warns if the scores are decisions, 0 and 1 and nothing else.

    Args:
        scores: (N, C) finite real scores, array or tensor. No sigmoid is applied, so large logits do not tie.
        full: (N, C) truth in {1, 0}.
        evaluated: (N, C) bool, labels to count; the rest is unknown and left out of its class. None = all.
        definition: "step" (scikit-learn), "voc2010" (all-point interpolated) or "voc2007" (11-point).
        min_positives: >= 1, classes with fewer evaluated positives are undefined.

    Raises:
        ValueError: shapes differ, a score is not finite, a label is neither 1 nor 0, or an option is unknown.
    """
    if definition not in DEFINITIONS:
        raise ValueError(f"unknown definition {definition!r}: use one of {', '.join(DEFINITIONS)}")
    if not min_positives >= 1:
        raise ValueError(f"min_positives must be >= 1, since AP needs a positive; got {min_positives}")
    scores, full, mask = _checked(scores, full, evaluated)
    if _are_decisions(scores):
        warnings.warn(
            "the scores hold only 0 and 1: AP ranks, so give it the scores before the threshold",
            stacklevel=2,
        )
    everything = mask.all()
    # One class after the other in memory, for the sorts below.
    by_class, positive, counted = scores.T.copy(), (full.T == 1).copy(), mask.T
    per_class, positives = np.full(full.shape[1], np.nan), np.zeros(full.shape[1], int)
    for c, (column, truth) in enumerate(zip(by_class, positive, strict=True)):
        if not everything:
            column, truth = column[counted[c]], truth[counted[c]]
        chosen = np.sort(column[truth])[::-1]  # descending
        positives[c] = len(chosen)
        if len(chosen) >= min_positives:
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
        positives=positives,
        num_examples=len(full),
        min_positives=min_positives,
    )


def _area(hits: np.ndarray, precision: np.ndarray, definition: str) -> float:
    """AP from the number of hits and the precision at the score of each positive, in descending order of scores."""
    if definition == "step":
        return precision.mean()
    envelope = np.maximum.accumulate(precision[::-1])[
        ::-1
    ]  # the best precision at this recall or a higher one
    if definition == "voc2010":
        return envelope.mean()
    # recall >= k / 10, in integers
    at = [np.searchsorted(10 * hits, k * len(hits), side="left") for k in range(11)]
    return envelope[at].mean()


@dataclass(frozen=True)
class Thresholds:
    """A threshold for each class, fitted on validation scores.

    Attributes:
        values: (C,), on the scale of `kind`; a score is a positive if it is above.
        kind: "prob" or "logit".
        neutral: classes without a positive in validation, which got 0.5 ("prob") or 0 ("logit").
        fitted_on: SHA-256 of the scores and labels, so that `f1_family` can refuse to judge by them.
    """

    values: np.ndarray
    kind: str
    neutral: tuple[int, ...]
    fitted_on: str


@dataclass(frozen=True)
class F1Family:
    """Precision, recall and F1 at a threshold, all in [0, 1]; `str()` says the result in one line.

    CP, CR and CF1 are means over the classes with an evaluated positive; a class for which nothing was predicted has
    precision 0, as the field counts it.

    Attributes:
        CP, CR: macro precision and recall.
        CF1: mean of the per-class F1.
        CF1_of_means: the other common definition, 2 CP CR / (CP + CR).
        OP, OR, OF1: micro precision, recall and F1, over all evaluated labels of all classes; NaN where nothing was
            predicted (OP) or is positive (OR).
        per_class: a row a class: precision, recall, f1 (NaN where undefined), positives, predicted, correct, evaluated,
            threshold.
        undefined: classes without an evaluated positive, left out of CP, CR, CF1.
        unpredicted: classes with positives of which none was predicted.
        zero_filled: CP, CR, CF1, CF1_of_means over all classes, with 0 for the undefined ones.
        kind: what the threshold was compared with.
    """

    CP: float
    CR: float
    CF1: float
    CF1_of_means: float
    OP: float
    OR: float
    OF1: float
    per_class: pd.DataFrame
    undefined: tuple[int, ...]
    unpredicted: tuple[int, ...]
    zero_filled: dict
    kind: str

    def row(self) -> dict[str, float]:
        """The seven numbers by name, as a row of a table."""
        names = ("CP", "CR", "CF1", "CF1_of_means", "OP", "OR", "OF1")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        low, high = self.per_class["threshold"].min(), self.per_class["threshold"].max()
        at = f"{low:g}" if low == high else f"{low:g} to {high:g}, by class"
        numbers = ", ".join(f"{k} {v:.4f}" for k, v in self.row().items() if k != "CF1_of_means")
        return (
            f"{numbers} (CF1: mean of per-class F1; F1 of CP and CR: {self.CF1_of_means:.4f}) at {self.kind} > {at}; "
            f"undefined classes (no positive): {_listed(self.undefined)}; "
            f"nothing predicted for: {_listed(self.unpredicted)}"
        )


def f1_family(scores, full, threshold=None, kind: str = "prob", evaluated=None) -> F1Family:
    """CP, CR, CF1, OP, OR, OF1 at a threshold (Hill Tables III to V and X to XV).

    Args:
        scores: (N, C) probabilities or logits, as `kind` says.
        full: (N, C) truth in {1, 0}.
        threshold: one for all or (C,), on the scale of `kind`; or what `fit_thresholds` returned. A score above it is a
            positive. None = neutral: 0.5 of a probability, 0 of a logit, which is the same decision.
        kind: "prob" or "logit".
        evaluated: (N, C) bool, labels to count; None = all.

    Raises:
        ValueError: as `average_precision`; a probability or its threshold lies outside [0, 1]; or fitted thresholds are
            applied to the labels they were fitted on, or to scores of another kind.
    """
    _check_kind(kind)
    scores, full, mask = _checked(scores, full, evaluated)
    _check_scale(scores, kind)
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
            f"threshold has shape {threshold.shape}: give one number or one a class, ({full.shape[1]},)"
        )
    if kind == "prob" and not ((threshold >= 0) & (threshold <= 1)).all():
        raise ValueError(
            f"a threshold on probabilities lies in [0, 1], got {threshold}: is it one on logits?"
        )

    predicted, positive = (scores > threshold) & mask, (full == 1) & mask
    correct = (predicted & positive).sum(0)
    predicted, positive = predicted.sum(0), positive.sum(0)
    with np.errstate(invalid="ignore"):
        recall = correct / positive
        table = pd.DataFrame(
            {
                # Defined as long as the class is: the field counts 0 where nothing was predicted.
                "precision": np.where(positive > 0, correct / np.maximum(predicted, 1), np.nan),
                "recall": recall,
                "f1": np.where(positive > 0, 2 * correct / np.maximum(predicted + positive, 1), np.nan),
                "positives": positive,
                "predicted": predicted,
                "correct": correct,
                "evaluated": mask.sum(0),
                "threshold": np.broadcast_to(threshold, full.shape[1:]),
            }
        )
    rates = table[["precision", "recall", "f1"]]
    hits, guesses, truths = int(correct.sum()), int(predicted.sum()), int(positive.sum())
    return F1Family(
        **_macro(rates.mean()),
        OP=_divide(hits, guesses),
        OR=_divide(hits, truths),
        OF1=_divide(2 * hits, guesses + truths),
        per_class=table,
        undefined=tuple(map(int, np.flatnonzero(positive == 0))),
        unpredicted=tuple(map(int, np.flatnonzero((positive > 0) & (predicted == 0)))),
        zero_filled=_macro(rates.fillna(0).mean()),
        kind=kind,
    )


def fit_thresholds(
    val_scores, val_full, kind: str = "prob", evaluated=None, split: str = "val"
) -> Thresholds:
    """The threshold of each class that maximises its F1 on validation; half-way between two scores.

    A class without a positive in validation gets the neutral threshold and is listed.

    Args:
        val_scores, val_full, kind, evaluated: as `f1_family` takes them, of validation.
        split: where they come from; anything but "val" is an error, since a threshold that has seen the test labels
            makes every number on them too good.

    Raises:
        ValueError: another split, or as `f1_family`.
    """
    if split != "val":
        raise ValueError(f"thresholds are fitted on the validation split alone, got split={split!r}")
    _check_kind(kind)
    scores, full, mask = _checked(val_scores, val_full, evaluated)
    _check_scale(scores, kind)
    values, neutral = np.full(full.shape[1], KINDS[kind], float), []
    for c in range(full.shape[1]):
        column, truth = scores[mask[:, c], c].astype(float), full[mask[:, c], c] == 1
        if not truth.any():
            neutral.append(c)
            continue
        order = np.argsort(-column, kind="stable")
        column, hits = column[order], truth[order].cumsum()
        last = np.flatnonzero(np.append(np.diff(column) != 0, True))  # the last of each run of ties
        best = last[np.argmax(2 * hits[last] / (last + 1 + truth.sum()))]
        if best + 1 < len(column):
            below = column[best + 1]
        else:  # everything is a positive
            below = 0.0 if kind == "prob" else column[best] - 1
        middle = below + (column[best] - below) / 2
        values[c] = middle if middle < column[best] else below
    return Thresholds(values, kind, tuple(neutral), _digest(scores, full, mask))


def _checked(scores, full, evaluated) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores, full = _floating(_numpy(scores)), np.asarray(_numpy(full))
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
    return scores, full, mask


def _floating(scores) -> np.ndarray:
    """float32 where it holds the scores exactly, float64 otherwise: the order must not change."""
    scores = np.asarray(scores)
    exact = scores.dtype in (np.float16, np.float32)
    return scores.astype(np.float32 if exact else np.float64, copy=False)


def _are_decisions(scores: np.ndarray) -> bool:
    low, high = (scores.min(), scores.max()) if scores.size else (0, 0)
    return bool(
        low == 0 and high == 1 and np.isin(scores[:2], (0, 1)).all() and np.isin(scores, (0, 1)).all()
    )


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r} of scores: use one of {', '.join(KINDS)}")


def _check_scale(scores: np.ndarray, kind: str) -> None:
    outside = scores[(scores < 0) | (scores > 1)] if kind == "prob" else ()
    if len(outside):
        raise ValueError(
            f'probabilities lie in [0, 1], found {outside[0]:g}: for logits say kind="logit" (neutral threshold 0)'
        )


def _macro(means: pd.Series) -> dict[str, float]:
    p, r, f1 = (float(means[name]) for name in ("precision", "recall", "f1"))
    return {"CP": p, "CR": r, "CF1": f1, "CF1_of_means": 2 * p * r / (p + r) if p + r else p + r}


def _divide(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _digest(*arrays: np.ndarray) -> str:
    content = hashlib.sha256()
    for array in arrays:
        content.update(np.ascontiguousarray(array, float).tobytes())
    return content.hexdigest()


def _listed(classes: tuple[int, ...]) -> str:
    return ", ".join(map(str, classes)) or "none"


def _numpy(values):
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
