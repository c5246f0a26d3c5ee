"""GR's pseudo-label k(p): its published forms, fits to the truth of the missing labels, and a test of its slope."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from spml_core.analysis.missing import check_probs, missing_labels


def k_hat_from_annotation_rate(p, a: float):
    """Return k(x) = (1 - a) p / (1 - a p), GR Eq. 6.

    Args:
        p: probabilities in [0, 1].
        a: P(s=1|y=1), in [0, 1]; with one label per image, 1 / (mean positives per image).

    Raises:
        ValueError: a or an entry of p lies outside [0, 1].
    """
    if not 0 <= a <= 1:
        raise ValueError(f"a is a probability P(s=1|y=1), got {a}")
    p = check_probs(p)
    return (1 - a) * p / np.where(a * p < 1, 1 - a * p, 1)  # at a = p = 1: 0, nothing is missing


def k_hat_logistic(p, w: float, b: float):
    """Return sigmoid(w p + b), GR Eq. 7."""
    return expit(w * np.asarray(p, float) + b)


class KHatFit(NamedTuple):
    """GR's logistic k(p) = sigmoid(w p + b), fitted to the truth of the missing labels; call it with p.

    Attributes:
        w, b: slope and offset.
        standard_errors: of w and of b, from the inverse Fisher information. They assume independent labels; those of
            one image or one class are not, so a band over seeds is wider, and honest.
    """

    w: float
    b: float
    standard_errors: tuple[float, float]

    def __call__(self, p) -> np.ndarray:
        return k_hat_logistic(p, self.w, self.b)


def fit_k_hat(probs, observed, full, known=None) -> KHatFit:
    """Fit GR's logistic k(p) = sigmoid(w p + b) (Eq. 7) to the truth of the missing labels, by maximum likelihood.

    Args as in `bucket_false_negatives`; every missing label counts once, without binning.

    Raises:
        ValueError: the missing labels hold no positive or no negative, or one value of p separates the two, so that no
            finite curve fits.
    """
    p, positive = missing_labels(probs, observed, full, known)
    return _fit(p, positive.astype(int), np.ones(len(p), int))


def fit_k_hat_to_buckets(buckets: pd.DataFrame) -> KHatFit:
    """Fit GR's logistic k(p) (Eq. 7) to the result of `bucket_false_negatives`.

    Each bucket counts at its mean p, weighted by its number of missing labels. With narrow bins this is nearly the fit
    of `fit_k_hat`, in the memory of the bins.

    Raises:
        ValueError: as `fit_k_hat`.
    """
    used = buckets[buckets["missing"] > 0]
    return _fit(*(used[name].to_numpy() for name in ("mean_prob", "false_negatives", "missing")))


def _fit(p: np.ndarray, positives: np.ndarray, number: np.ndarray) -> KHatFit:
    """Fit to groups of missing labels, each of `number` labels at one p, some of them positive."""
    negatives, total = number - positives, int(number.sum())
    if not 0 < positives.sum() < total:
        raise ValueError(f"{positives.sum()} of {total} missing labels are positive: no logistic fits")
    of_positives, of_negatives = p[positives > 0], p[negatives > 0]
    if of_positives.min() >= of_negatives.max() or of_positives.max() <= of_negatives.min():
        raise ValueError(
            "one value of p separates all positive from all negative missing labels: no finite w fits"
        )
    label = np.repeat([1, 0], [len(of_positives), len(of_negatives)])
    weight = np.concatenate([positives[positives > 0], negatives[negatives > 0]])
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8)
    model.fit(np.concatenate([of_positives, of_negatives])[:, None], label, weight)
    w, b = float(model.coef_[0, 0]), float(model.intercept_[0])
    k = k_hat_logistic(p, w, b)
    design = np.stack([p, np.ones_like(p)], 1)
    information = design.T @ (design * (number * k * (1 - k))[:, None])
    return KHatFit(w, b, tuple(np.sqrt(np.diag(np.linalg.inv(information))).tolist()))


class SlopeTest(NamedTuple):
    """Whether the slope of k(p) is more than chance: it is if `p_value` is near 0.

    Attributes:
        w: the slope at w = 0 to first order (one Newton step), close to that of `fit_k_hat` where the curve is flat.
        null: the same slope for random permutations of the classes of `probs`.
        p_value: two-sided permutation p-value, in (0, 1].
        interval: 95 % interval of the slope beyond chance: w minus the upper and the lower percentile of `null`.
    """

    w: float
    null: np.ndarray
    p_value: float
    interval: tuple[float, float]


def slope_test(probs, observed, full, known=None, *, permutations: int = 200, seed: int = 0) -> SlopeTest:
    """Return a permutation test of Assumption 1 of GR: before training, k(p) is constant.

    Before training, p differs far more between classes than between images, because of the random head. The rows of the
    head are drawn from one distribution, so every assignment of the columns of `probs` to classes is equally likely,
    and the slope with permuted columns is what chance produces. A standard error that treats the N*C labels as
    independent would be too small.

    Args as in `fit_k_hat`.
    """
    rng = np.random.default_rng(seed)
    probs = np.asarray(probs)
    permuted = (probs[:, rng.permutation(probs.shape[1])] for _ in range(permutations))
    truth = observed, full, known
    w, null = _slope(probs, *truth), np.array([_slope(q, *truth) for q in permuted])
    p_value = (1 + (np.abs(null) >= abs(w)).sum()) / (1 + permutations)
    low, high = np.quantile(null, (0.025, 0.975))
    return SlopeTest(w, null, float(p_value), (float(w - high), float(w - low)))


def _slope(probs, observed, full, known) -> float:
    p, positive = missing_labels(probs, observed, full, known)
    offset, rate = p - p.mean(), positive.mean()
    scale = (offset @ offset) * rate * (1 - rate)
    return float(offset @ (positive - rate) / scale) if scale else 0.0
