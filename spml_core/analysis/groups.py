"""Mean scores of labels grouped by what is observed and by the truth."""

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit

from spml_core.analysis.missing import of_one_shape

GROUPS = ("annotated positive", "unannotated positive", "unannotated negative", "verified negative")


def group_means(logits, observed, full, known=None) -> pd.DataFrame:
    """Return mean logits and probabilities by group of labels (EM Fig. 7: absolute logit; EM Fig. 8: probability).

    The mean of -log p is the loss of an annotated positive in nearly all methods: L+ of EM Fig. 2b and 6.

    Args:
        logits: (N, C).
        observed: (N, C) in {1, 0, -1}.
        full: (N, C) truth in {1, 0}.
        known: (N, C) bool, where the truth is known; None = everywhere.

    Returns:
        Indexed by `GROUPS`: n, mean_abs_logit, mean_logit, mean_prob, mean_minus_log_p; NaN where a group is empty.
    """
    logits, observed, full, known = of_one_shape(known, logits=logits, observed=observed, full=full)
    free, logits = (observed == 0) & known, logits.astype(float)
    masks = (observed == 1, free & (full == 1), free & (full == 0), observed == -1)
    rows = []
    for z in (logits[mask] for mask in masks):
        values = {
            "mean_abs_logit": np.abs(z),
            "mean_logit": z,
            "mean_prob": expit(z),
            "mean_minus_log_p": -log_expit(z),
        }
        rows.append({"n": len(z)} | pd.DataFrame(values).mean().to_dict())
    return pd.DataFrame(rows, pd.Index(GROUPS, name="group"))
