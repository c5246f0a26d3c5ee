"""What a model predicts for unobserved labels: whether it separates false from true negatives, and finds missing ones.

(GR Fig. 3, 5; EM Fig. 2c, 4, Tables 4, 7; Hill Fig. 2, 5, 7; LASD Fig. 2.) A label whose truth is unknown is in no
group. Everything here is about validation images; for a run with `data={"val_is_train": True}`, these are the training
images.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from spml_core import analysis, figures
from spml_core.figures.claims import Interval, mean_sd
from spml_core.metrics import f1_family
from spml_core.runs import Labels, Run

GROUPS = ("false negatives", "true negatives")


def truth(labels: Labels) -> dict[str, np.ndarray]:
    """Return observed, full and known by name, as the functions of `analysis` take them."""
    return {name: getattr(labels, name) for name in ("observed", "full", "known")}


def unannotated(labels: Labels) -> Labels:
    """Return the same labels as if none had been observed, so that the groups hold all labels."""
    return replace(labels, observed=np.zeros_like(labels.observed))


def pooled(several: Iterable[Labels]) -> Labels:
    """Return the labels of several runs, e.g. one per seed, concatenated."""
    several = list(several)
    arrays = ([getattr(each, field.name) for each in several] for field in fields(Labels))
    return Labels(*map(np.concatenate, arrays))


def missing_scores(labels: Labels, names: tuple[str, str] = GROUPS) -> dict[str, np.ndarray]:
    """Return the probabilities of the unobserved labels that are truly positive, and of those truly negative."""
    masks = labels.missing_positive, labels.missing_negative
    return {name: labels.probs[mask] for name, mask in zip(names, masks, strict=True)}


def distance(labels: Labels) -> float:
    """Return the signed Wasserstein distance between the two groups of `missing_scores`; NaN if one is empty.

    The distance itself does not say which group scores higher: it may be large for a model that has them in the wrong
    order. The sign is that of the difference of the means, negative where the positives score lower.
    """
    positives, negatives = missing_scores(labels).values()
    size = analysis.wasserstein(positives, negatives)
    return size if np.isnan(size) else float(np.copysign(size, positives.mean() - negatives.mean()))


def class_distances(labels: Labels, classes: Iterable[str]) -> pd.DataFrame:
    """Return `distance` class by class (EM Fig. 4a): class, positives, negatives (numbers of labels), distance."""
    rows = []
    for c, name in enumerate(classes):
        own = labels.of_class(c)
        rows.append((name, own.missing_positive.sum(), own.missing_negative.sum(), distance(own)))
    return pd.DataFrame(rows, columns=["class", "positives", "negatives", "distance"])


def found(labels: Labels, threshold: float) -> pd.Series:
    """Return how many of the unobserved labels above a threshold are false negatives, by `analysis.identification`."""
    return analysis.identification(labels.probs > threshold, **truth(labels))


def missing(labels: Labels, threshold: float) -> dict[str, float]:
    """Return precision, recall and chance of `found`, and the `distance`."""
    rates = found(labels, threshold)[["precision", "recall", "chance"]]
    return rates.to_dict() | {"distance": distance(labels)}


def densities(
    found: Mapping[str, Iterable[Run]], classes: Iterable[int], split: str = "test"
) -> pd.DataFrame:
    """Return `analysis.logit_density` of single classes, best epoch, pooled over the seeds (EM Fig. 2c, 4b, 10).

    Args:
        found: setting -> its runs.
        classes: their numbers.
        split: its labels, all of known truth, are shown beside the missing ones of validation.

    Returns:
        One row per point: setting, class, labels ("missing" or the split), group ("positives" or "negatives"), logit,
        prob, density, n; the logits are the same for all.
    """
    groups = {}
    for setting, runs in found.items():
        shown = {
            "missing": pooled(run.labels("val") for run in runs),
            split: unannotated(pooled(run.labels(split) for run in runs)),
        }
        for c in classes:
            for part, labels in shown.items():
                own = labels.of_class(c)
                masks = {"positives": own.missing_positive, "negatives": own.missing_negative}
                for name, mask in masks.items():
                    groups[setting, runs[0].classes[c], part, name] = own.logits[mask]
    return analysis.logit_density(groups, names=("setting", "class", "labels", "group"))


def flatness(labels: Labels, test: analysis.SlopeTest) -> Interval:
    """Return how close k(p) is to a constant (Assumption 1 of GR): 1 for no slope at all, 0.5 for a factor of 2.

    It is the ratio of the odds of k at the two ends of the range of p, the smaller over the larger. The range covers
    90 % of the missing labels; the slope and its interval are those of the permutation test.

    Args:
        test: `analysis.slope_test` of the same labels.
    """
    p = labels.probs[labels.missing_positive | labels.missing_negative]
    low, high = np.quantile(p, (0.05, 0.95))
    ends = (high - low) * np.array(test.interval)
    nearest = 0 if ends[0] <= 0 <= ends[1] else np.abs(ends).min()
    value = min((high - low) * abs(test.w), np.abs(ends).max())
    return Interval(*np.exp([-value, -np.abs(ends).max(), -nearest]).tolist())


def curve_log_loss(labels: Labels, curve: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the log loss of a curve k(p) as a description of which missing labels are positive; lower is better."""
    scores = [*missing_scores(labels).values()]
    positive = np.repeat([1, 0], [len(group) for group in scores])
    return float(log_loss(positive, curve(np.concatenate(scores)), labels=[0, 1]))


def draw_histogram(ax, table: pd.DataFrame, **look) -> None:
    """Draw the groups of an `analysis.histogram` as steps, the positives, which come first, on top of the others.

    `look` goes to `ax.stairs`.
    """
    for name, color in zip(table["group"].unique()[::-1], (figures.NEGATIVE, figures.POSITIVE), strict=True):
        own = table[table["group"] == name]
        edges, label = [*own["low"], own["high"].iloc[-1]], f"{name} (n = {own['n'].iloc[0]:,})"
        options = {"fill": True, "alpha": 0.6, "color": color, "label": label} | look
        ax.stairs(own["share"], edges, **options)


def draw_buckets(ax, bins: pd.DataFrame, min_count: int = 0, **look) -> None:
    """Draw the share of false negatives by predicted probability, with its interval; sparse bins are faded.

    Args:
        bins: of `analysis.bucket_false_negatives`.
        min_count: bins with fewer missing labels are sparse.
        look: arguments of `ax.errorbar`.
    """
    options = {"fmt": "o", "ms": 2.5, "lw": 0.6, "color": "0.25"} | look
    sparse = bins["missing"] < max(min_count, 1)
    for own, alpha in ((bins[~sparse], 1.0), (bins[sparse & (bins["missing"] > 0)], 0.25)):
        bars = own["ratio"] - own["ratio_low"], own["ratio_high"] - own["ratio"]
        ax.errorbar(own["mean_prob"], own["ratio"], bars, alpha=alpha, **options)
    ax.set(xlabel="predicted probability $p$", ylabel="FN / (FN + TN)")


def predictive(labels: Labels, threshold: float, min_count: int = 1) -> dict[str, float]:
    """Return PPV, NPV (means over classes) and recall (of all labels) of probs > threshold, and the NPV of a guess.

    PPV = TP / (TP + FP), NPV = TN / (TN + FN) (LASD Fig. 2); a class without such a prediction is in neither mean. PPV
    is NaN where fewer than `min_count` labels exceed the threshold.
    """
    count = f1_family(labels.probs, labels.full, threshold, evaluated=labels.known).per_class
    refused, negatives = count["evaluated"] - count["predicted"], count["evaluated"] - count["positives"]
    right = refused - (count["positives"] - count["correct"])  # true negatives
    enough = count["predicted"].sum() >= min_count
    return {
        "ppv": (count["correct"] / count["predicted"]).mean() if enough else np.nan,
        "npv": (right / refused).mean(),
        "recall": count["correct"].sum() / count["positives"].sum(),
        "guess": negatives.sum() / labels.known.sum(),
    }


def pseudo_labels(run: Run, kind: str, share: float = 0.1) -> tuple[pd.Series, float]:
    """Return pseudo-labels of training images at the best epoch, judged by the truth, and the best possible precision.

    Args:
        kind: "negative": those of em_apl. "highest": the `share` of each class's unobserved labels that em_apl scored
            highest in that epoch. "positive": those of pseudo_label. "corrected": what splc takes for positive after
            its last epoch, of a run with `val_is_train`.

    Raises:
        ValueError: another kind.
    """
    labels, state = run.labels("train"), run.method_state()
    best, wanted = labels.full == 1, 1
    if kind == "negative":
        assigned, best, wanted = state["pseudo_negative"].numpy() > 0, labels.full == 0, 0
    elif kind == "highest":
        assigned = analysis.highest(state["recorded"].numpy(), labels.observed, share)
        best = analysis.highest(labels.full, labels.observed, share)
    elif kind == "positive":
        assigned = state["pseudo_positive"].numpy()
    elif kind == "corrected":
        assigned = run.labels("val", run.last_epoch).probs > run.config["params"]["tau"]
    else:
        raise ValueError(f"unknown kind {kind!r}: use negative, highest, positive or corrected")
    judge = lambda mask: analysis.identification(mask, **truth(labels), label=wanted)  # noqa: E731
    return judge(assigned), judge(best).precision


def accuracy_table(judged: Mapping[str, Iterable[tuple[pd.Series, float]]]) -> pd.DataFrame:
    """Return one row per kind of pseudo-labels, from `pseudo_labels` of each seed; in percent, over the seeds.

    Seeds that gave none are left out of the accuracy.
    """
    rows = []
    for name, several in judged.items():
        given, ceilings = zip(*several, strict=True)
        accuracy = [100 * each.precision for each in given if each.found]
        row = {"pseudo-labels": name, "given": round(float(np.mean([each.found for each in given])))}
        row["accuracy"] = mean_sd(accuracy) if accuracy else "none given"
        row["guess"] = mean_sd([100 * each.chance for each in given])
        rows.append(row | {"ceiling": f"{100 * np.mean(ceilings):.1f}"})
    return pd.DataFrame(rows)
