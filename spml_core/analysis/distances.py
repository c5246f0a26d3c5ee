"""How far the scores of positives lie from those of negatives: distances and densities."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit

GRID = 2**20  # more scores than this are counted on as many bins, with a relative error of 1e-6 of a distance


def wasserstein(positives, negatives, positive_weights=None, negative_weights=None) -> float:
    """Return the Wasserstein-1 distance between two sets of scores (GR Fig. 3a), from values, not histogram counts.

    For histograms, pass the bin centres as scores and the counts as weights. More than 2^20 scores are counted on that
    many bins between the smallest and the largest, which bounds the memory; the error is at most the width of a bin.

    Args:
        positives, negatives: finite scores of any shape, usually probabilities in [0, 1]; then the distance is in
            [0, 1] too.
        positive_weights, negative_weights: >= 0, of the same size; None = each score counts once.

    Returns:
        The distance; NaN if a group is empty (`or_undefined` shows it as "undefined (n=0)").

    Raises:
        ValueError: a score is not finite, or weights do not fit their scores.
    """
    groups, weights = [np.ravel(positives), np.ravel(negatives)], [positive_weights, negative_weights]
    if not all(len(group) and (w is None or np.any(w)) for group, w in zip(groups, weights, strict=True)):
        return np.nan
    bounds = float(np.min([*map(np.min, groups)])), float(np.max([*map(np.max, groups)]))
    if not np.isfinite(bounds).all():
        raise ValueError(f"scores must be finite, but they range from {bounds[0]} to {bounds[1]}")
    if sum(map(len, groups)) <= GRID or positive_weights is not None or negative_weights is not None:
        return float(stats.wasserstein_distance(*groups, *weights))
    # From the cumulative counts: scipy would sort the grid and take three times the memory.
    shares = [np.histogram(group, GRID, bounds)[0].cumsum() / len(group) for group in groups]
    return float(np.abs(shares[0] - shares[1]).sum() * (bounds[1] - bounds[0]) / GRID)


def histogram(
    groups: Mapping[Hashable, np.ndarray],
    num_bins: int = 50,
    bounds=(0.0, 1.0),
    names: Sequence[str] = ("group",),
) -> pd.DataFrame:
    """Return densities of groups of scores on shared bins (GR Fig. 3b, 3c; Hill Fig. 2, 5; EM Fig. 2c, 4b, 10).

    Args:
        groups: scores by name, e.g. of positives and negatives; a name may be a tuple.
        bounds: first and last edge, shared; a score outside is an error.
        names: names of the columns that hold the parts of a group's name.

    Returns:
        One row per bin and group: group, low, high, count, share of the group and density (NaN in an empty group), n
        (of the group).
    """
    tables = {}
    for name, group in groups.items():
        count, edges = np.histogram(group, num_bins, bounds)
        if (n := np.size(group)) > count.sum():
            raise ValueError(
                f"scores of {name} range from {np.min(group):g} to {np.max(group):g}, beyond the bounds "
                f"[{bounds[0]:g}, {bounds[1]:g}]: widen them, since bins that leave scores out give wrong shares"
            )
        share = count / n if n else np.nan
        columns = {"low": edges[:-1], "high": edges[1:], "count": count, "share": share}
        tables[name] = pd.DataFrame(columns | {"density": share / np.diff(edges), "n": n})
    return _named(tables, names)


def logit_density(groups: Mapping[Hashable, np.ndarray], names: Sequence[str] = ("group",)) -> pd.DataFrame:
    """Return Gaussian kernel densities of groups of logits on one shared grid, with Scott's bandwidth for each group.

    The scale is that of logits: on [0, 1], a kernel would smear probability beyond both ends, where most scores lie.

    Args:
        groups, names: as in `histogram`; finite logits, at least one in all.

    Returns:
        One row per point and group: group, logit, prob (of that logit), density (per unit of logit; NaN in a group with
        fewer than two different logits), n.
    """
    groups = {name: np.ravel(group) for name, group in groups.items()}
    kernels = {name: stats.gaussian_kde(group) for name, group in groups.items() if len(np.unique(group)) > 1}
    margin = 4 * max((kernel.covariance.item() ** 0.5 for kernel in kernels.values()), default=0.25)
    together = np.concatenate([*groups.values()])
    points = np.linspace(together.min() - margin, together.max() + margin, 256)
    tables = {}
    for name, group in groups.items():
        density = kernels[name](points) if name in kernels else np.nan
        columns = {"logit": points, "prob": expit(points), "density": density, "n": len(group)}
        tables[name] = pd.DataFrame(columns)
    return _named(tables, names)


def _named(tables: Mapping[Hashable, pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    return pd.concat(tables, names=names).reset_index(names).reset_index(drop=True)
