"""Statistics of label matrices, as pure functions on arrays, for the tables and figures about data sets."""

import numpy as np
import pandas as pd

from spml_core.analysis.missing import of_one_shape


def summary(full, observed=None, known=None) -> dict[str, float]:
    """Return the size and mean label counts of a set of images, as in the data set tables of the papers.

    Args:
        full: (N, C) truth in {1, 0}.
        observed: (N, C) in {1, 0, -1}; None = nothing is observed.
        known: (N, C) bool, where the truth is known; None = everywhere.

    Returns:
        images, classes, positives (their numbers), mean_positives, mean_negatives (per image), without_positive (number
        of images), observed, mean_observed (positives: number, per image), and false_negative_share: the share of
        positives among the unobserved labels whose truth is known (NaN if there are none).

    Raises:
        ValueError: the shapes differ.
    """
    table = per_class(full, np.zeros_like(full) if observed is None else observed, known)
    full, total = np.asarray(full), table.drop(columns="class").sum()
    missing = total["missing_positives"] + total["missing_negatives"]
    known_labels = full.size if known is None else np.sum(known)
    return {
        "images": len(full),
        "classes": len(table),
        "positives": int(total["positives"]),
        "mean_positives": total["positives"] / len(full),
        "mean_negatives": (known_labels - total["positives"]) / len(full),
        "without_positive": int((~(full == 1).any(1)).sum()),
        "observed": int(total["observed_positives"]),
        "mean_observed": total["observed_positives"] / len(full),
        "false_negative_share": total["missing_positives"] / missing if missing else float("nan"),
    }


def per_class(full, observed, known=None) -> pd.DataFrame:
    """Return observed and missing labels of each class (GR, Chen et al., 2024, Fig. 4; EM, Zhou et al., Fig. 2d, 9).

    Args:
        full, observed, known: as in `summary`.

    Returns:
        One row per class: class (its number), images; positives, of which observed_positives (s = 1) and
        missing_positives (y = 1, s = 0); missing_negatives (y = 0, s = 0, known); missing_share: missing over all
        positives; positive_share: share of positives among the unobserved labels (the others are negative). A share of
        zero labels is NaN.

    Raises:
        ValueError: the shapes differ.
    """
    full, observed, known = of_one_shape(known, full=full, observed=observed)
    positive = full == 1
    missing = (observed == 0) & known
    table = pd.DataFrame(
        {
            "class": range(full.shape[1]),
            "images": len(full),
            "positives": positive.sum(0),
            "observed_positives": (observed == 1).sum(0),
            "missing_positives": (positive & missing).sum(0),
            "missing_negatives": (~positive & missing).sum(0),
        }
    )
    unobserved = table.missing_positives + table.missing_negatives
    table["missing_share"] = table.missing_positives / table.positives.where(table.positives > 0)
    table["positive_share"] = table.missing_positives / unobserved.where(unobserved > 0)
    return table


def labels_per_image(full, most: int) -> np.ndarray:
    """Return the shares (most + 1,) of images with 0, 1, 2, ... positives; the last entry counts `most` and more."""
    count = np.minimum((np.asarray(full) == 1).sum(1), most)
    return np.bincount(count, minlength=most + 1) / len(count)
