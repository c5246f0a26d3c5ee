"""Pure functions on arrays of scores and labels: what the papers' diagnostics measure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression


@dataclass(frozen=True)
class Buckets:
    """False-negative ratio by predicted probability (GR Fig. 5); one entry a bin.

    Attributes:
        low, high: edges of the bin. All bins share one grid on [0, 1]; the last includes 1.
        mean_prob: mean p of the missing labels in the bin, NaN where empty.
        missing: how many unobserved labels fall into the bin (FN + TN).
        false_negatives: how many of those are truly positive.
        ratio: FN / (FN + TN), NaN where empty.
        ratio_low, ratio_high: its Wilson interval, (0, 1) where empty.
    """

    low: np.ndarray
    high: np.ndarray
    mean_prob: np.ndarray
    missing: np.ndarray
    false_negatives: np.ndarray
    ratio: np.ndarray
    ratio_low: np.ndarray
    ratio_high: np.ndarray

    def frame(self) -> pd.DataFrame:
        """The same as a table, a row a bin."""
        return pd.DataFrame(asdict(self))


def bucket_false_negatives(probs, observed, full, num_bins: int = 100, confidence: float = 0.95) -> Buckets:
    """Share of false negatives among missing labels, by predicted probability: GR Fig. 5 and Appendix E.3.

    The paper says that this ratio "reflects P(s=1|y=1,x)"; by its own definition it estimates k = P(y=1|x,s=0).

    Args:
        probs: (N, C) predicted probabilities in [0, 1].
        observed: (N, C) in {1, 0, -1}; only unobserved entries (0) count as missing.
        full: (N, C) truth in {1, 0}.
        confidence: of the Wilson interval.

    Raises:
        ValueError: shapes differ, a probability lies outside [0, 1] (logits passed by mistake), the truth of a missing
            label is neither 1 nor 0, or `num_bins` or `confidence` is out of range.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be >= 1, got {num_bins}")
    p, positive = _missing(probs, observed, full)
    edges = np.linspace(0, 1, num_bins + 1)
    # By the edges themselves: int(0.29 * 100) is 28, a bin that ends at 0.29.
    index = np.minimum(np.searchsorted(edges, p, side="right") - 1, num_bins - 1)
    missing = np.bincount(index, minlength=num_bins)
    false_negatives = np.bincount(index, positive, minlength=num_bins).astype(int)
    total = np.bincount(index, p, minlength=num_bins)
    with np.errstate(invalid="ignore"):
        ratio, mean_prob = false_negatives / missing, total / missing
    low, high = wilson(false_negatives, missing, confidence)
    return Buckets(edges[:-1], edges[1:], mean_prob, missing, false_negatives, ratio, low, high)


def wilson(successes, trials, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson score interval of a proportion (Wilson 1927), elementwise; (0, 1) where there was no trial."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), e.g. 0.95, got {confidence}")
    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    z2 = stats.norm.isf((1 - confidence) / 2) ** 2
    centre = (successes + z2 / 2) / (trials + z2)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = successes * (trials - successes) / trials
    half = np.sqrt(z2 * (np.nan_to_num(spread) + z2 / 4)) / (trials + z2)
    # Exact at the ends, where rounding would leave the observed proportion outside its own interval.
    return np.where(successes == 0, 0, centre - half), np.where(successes == trials, 1, centre + half)


def k_hat_from_annotation_rate(p, a: float):
    """GR Eq. 6: k(x) = (1 - a) p / (1 - a p), with a = P(s=1|y=1), 1 / (mean positives an image) for one label each.

    Raises:
        ValueError: a or a p outside [0, 1].
    """
    if not 0 <= a <= 1:
        raise ValueError(f"a is a probability P(s=1|y=1), got {a}")
    p = _check_probs(p)
    return (1 - a) * p / np.where(a * p < 1, 1 - a * p, 1)  # at a = p = 1: 0, nothing is missing


def k_hat_logistic(p, w: float, b: float):
    """GR Eq. 7: sigmoid(w p + b)."""
    return expit(w * np.asarray(p, float) + b)


def fit_k_hat(probs, observed, full) -> tuple[float, float]:
    """Fit GR's logistic k(p) = sigmoid(w p + b) (Eq. 7) to what is truly missing, by maximum likelihood.

    Args as in `bucket_false_negatives`; every missing label counts once, so no binning enters.

    Returns:
        (w, b).

    Raises:
        ValueError: the missing labels hold no positive or no negative, or one value of p divides the two, so that no
            finite curve fits.
    """
    p, positive = _missing(probs, observed, full)
    if not 0 < positive.sum() < len(positive):
        raise ValueError(f"{positive.sum()} of {len(positive)} missing labels are positive: no logistic fits")
    if p[positive].min() >= p[~positive].max() or p[positive].max() <= p[~positive].min():
        raise ValueError(
            "one value of p divides all positive from all negative missing labels: no finite w fits"
        )
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(p[:, None], positive)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


@dataclass(frozen=True)
class SlopeTest:
    """Is the slope of k(p) more than chance? `p_value` near 0: yes.

    Attributes:
        w: the slope at w = 0 to first order (one Newton step), close to that of `fit_k_hat` where the curve is flat.
        null: the same with the classes of `probs` shuffled.
    """

    w: float
    null: np.ndarray

    @property
    def p_value(self) -> float:
        """Two-sided permutation p-value, in (0, 1]."""
        return float((1 + (np.abs(self.null) >= abs(self.w)).sum()) / (1 + len(self.null)))


def slope_test(probs, observed, full, permutations: int = 200, seed: int = 0) -> SlopeTest:
    """Permutation test of Assumption 1 of GR: before training, k(p) is constant.

    Before training p differs between classes far more than between images: the random head decides. The rows of the
    head are drawn alike, so every assignment of the columns of `probs` to classes is equally likely, and the slope
    with shuffled columns is what chance produces. A standard error that takes the N*C labels for independent would be
    too small.

    Args as in `fit_k_hat`.
    """
    rng = np.random.default_rng(seed)
    probs = np.asarray(probs)
    shuffled = (probs[:, rng.permutation(probs.shape[1])] for _ in range(permutations))
    return SlopeTest(_slope(probs, observed, full), np.array([_slope(q, observed, full) for q in shuffled]))


def _slope(probs, observed, full) -> float:
    p, positive = _missing(probs, observed, full)
    offset, rate = p - p.mean(), positive.mean()
    scale = (offset @ offset) * rate * (1 - rate)
    return float(offset @ (positive - rate) / scale) if scale else 0.0


def wasserstein(positives, negatives) -> float:
    """Wasserstein-1 distance between two sets of scores (GR Fig. 3a): on the values, never on histogram counts.

    Args:
        positives, negatives: scores of any shape, usually probabilities in [0, 1]; then the distance is in [0, 1].

    Returns:
        The distance; NaN if a group is empty.
    """
    positives, negatives = np.ravel(positives), np.ravel(negatives)
    return (
        float(stats.wasserstein_distance(positives, negatives))
        if len(positives) and len(negatives)
        else np.nan
    )


def missing_scores(probs, observed, full) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the missing labels that are truly positive, and of those truly negative. Args as above."""
    p, positive = _missing(probs, observed, full)
    return p[positive], p[~positive]


def _missing(probs, observed, full) -> tuple[np.ndarray, np.ndarray]:
    probs, observed, full = _check_probs(probs), np.asarray(observed), np.asarray(full)
    if not probs.shape == observed.shape == full.shape or probs.ndim != 2:
        raise ValueError(
            f"probs {probs.shape}, observed {observed.shape}, full {full.shape} must be one (N, C) shape"
        )
    missing = observed == 0
    unclear = missing & (full != 0) & (full != 1)
    if unclear.any():
        row, column = np.argwhere(unclear)[0]
        raise ValueError(
            f"truth of image {row}, class {column} is {full[row, column]}: what is missing must be known, 1 or 0"
        )
    return probs[missing], full[missing] == 1


def _check_probs(probs) -> np.ndarray:
    probs = np.asarray(probs, float)
    outside = probs[~((probs >= 0) & (probs <= 1))]  # catches NaN too
    if outside.size:
        raise ValueError(f"probs must lie in [0, 1], found {outside[0]:g}: apply the sigmoid to logits first")
    return probs
