"""Choose an epoch, hyperparameters or thresholds without clean labels: scores of predictions against observed labels.

Each rule of `RULES` is a function of logits (N, C) and observed labels (N, C) in {1, 0, -1}, of which at least one is
1; higher is better. Only the observed positives are used as labels. No rule takes `full`, so none can read it.
"""

import numpy as np
from scipy.stats import rankdata

from spml_core import metrics


def observed_map(logits, observed) -> float:
    """Return the mAP in percent that holds if every label that is not an observed positive is negative.

    If the observed positives of a class are a random part of its positives (SCAR), the precision at each of them is c
    = P(s=1|y=1) times the true precision. So a correction for positives among the unlabelled multiplies the AP of
    the class by 1/c. It ranks the epochs of a class in the same way, and only weighs the classes differently.
    """
    return 100 * metrics.average_precision(logits, _positive(observed).astype(np.int8)).mean


def observed_auc(logits, observed) -> float:
    """Return the area under the ROC curve in percent, mean over classes, of observed positives against the rest.

    It is the probability that a random observed positive scores above a random other image of its class.
    """
    positive = _positive(observed)
    number = positive.sum(0)
    mixed = (number > 0) & (number < len(positive))  # else undefined
    above = (rankdata(logits, axis=0) * positive).sum(0) - number * (number + 1) / 2
    return float(100 * np.mean(above[mixed] / (number * (len(positive) - number))[mixed]))


def reciprocal_rank(logits, observed) -> float:
    """Return the mean reciprocal rank in percent of the observed positives among the classes of their image."""
    return float(100 * np.mean(1 / _rank_in_image(logits)[_positive(observed)]))


def top_three(logits, observed) -> float:
    """Return the percentage of observed positives among the three highest scores of their image."""
    return float(100 * np.mean(_rank_in_image(logits)[_positive(observed)] <= 3))


def ranking(logits, observed) -> float:
    """Return the mean of `observed_map`, `observed_auc` and `reciprocal_rank`, in percent.

    The first two rank the images of a class, the third the classes of an image.
    """
    return float(np.mean([rule(logits, observed) for rule in (observed_map, observed_auc, reciprocal_rank)]))


def observed_risk(logits, observed) -> float:
    """Return minus the mean binary cross-entropy if every label that is not an observed positive is negative."""
    z = np.asarray(logits, float)
    return -float(np.mean(np.logaddexp(0, np.where(_positive(observed), -z, z))))


def pu_risk(logits, observed) -> float:
    """Return minus the PU-corrected risk: the logistic loss, non-negative for negatives (Kiryo et al., NeurIPS 2017).

    The prior of a class is its share of observed positives times `expected_positives` per observed one, both estimated
    here. Mean over the classes with an observed positive.
    """
    z, positive = np.asarray(logits, float), _positive(observed)
    number = positive.sum(0)
    seen = number > 0
    prior = np.minimum(number / len(z) * expected_positives(z, observed), 1)[seen]
    as_positive, as_negative = np.logaddexp(0, -z), np.logaddexp(0, z)
    of_positives = [(loss * positive).sum(0)[seen] / number[seen] for loss in (as_positive, as_negative)]
    negatives = np.maximum(as_negative.mean(0)[seen] - prior * of_positives[1], 0)
    return -float(np.mean(prior * of_positives[0] + negatives))


def bucket_information(logits, observed) -> float:
    """Return minus the cross-entropy of the observed labels given the bucket of the logit, over all labels.

    Buckets of ranks, each wider than the one before by a factor of 2^(1/4), replace the logit by the share of observed
    positives at its level. Under SCAR this share is c k̂: the k̂ of the buckets, estimated from observed positives. So
    only the order of the logits counts, not their scale.
    """
    positive = _positive(observed).ravel()[np.argsort(-np.ravel(logits), kind="stable")]
    place = np.arange(len(positive)) / (0.1 * positive.sum())
    bucket = (4 * np.log2(1 + place)).astype(int)
    # Half a label of the mean share in each bucket keeps the logarithm finite.
    share = (np.bincount(bucket, positive) + 0.5 * positive.mean()) / (np.bincount(bucket) + 0.5)
    share = share[bucket]
    return float(np.mean(np.where(positive, np.log(share), np.log1p(-share))))


RULES = {
    "map": observed_map,
    "auc": observed_auc,
    "mrr": reciprocal_rank,
    "top3": top_three,
    "ranking": ranking,
    "risk": observed_risk,
    "pu_risk": pu_risk,
    "buckets": bucket_information,
}


def expected_positives(logits, observed) -> float:
    """Return an estimate of the number of positives per observed positive: 1/c, where c = P(s=1|y=1) under SCAR.

    Of the highest scores of a class nearly all are truly positive, so the observed share among them is c (Elkan and
    Noto, KDD 2008). Counted are, in each class, as many scores as it has observed positives. The estimate is too high
    if some of these are negative.
    """
    positive = _positive(observed)
    highest = rankdata(-np.asarray(logits), axis=0, method="ordinal") <= positive.sum(0)
    hits = (positive & highest).sum()
    return float(min(highest.sum() / max(hits, 1), positive.shape[1]))


def prior_thresholds(logits, observed, expected: float | None = None) -> np.ndarray:
    """Return a threshold on the logits for each class (C,), above which lies as large a share as the class prior.

    Args:
        logits, observed: (N, C), of validation images.
        expected: positives per observed positive; with one observed label per image, the mean number of positives per
            image. None = `expected_positives`.

    Raises:
        ValueError: `expected` is below 1.
    """
    if expected is not None and not expected >= 1:
        raise ValueError(f"expected is the number of positives per observed positive, >= 1; got {expected}")
    expected = expected_positives(logits, observed) if expected is None else expected
    prior = np.clip(_positive(observed).mean(0) * expected, 0, 1)
    return np.array([np.quantile(column, 1 - share) for column, share in zip(logits.T, prior, strict=True)])


def _positive(observed) -> np.ndarray:
    return np.asarray(observed) == 1


def _rank_in_image(logits) -> np.ndarray:
    return rankdata(-np.asarray(logits), axis=1)
