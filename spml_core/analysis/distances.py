"""How far the scores of positives lie from those of negatives: distances and densities."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit

from spml_core.analysis.buckets import bin_index, shared_edges
from spml_core.analysis.missing import BLOCK, missing_blocks, missing_labels

GRID = 2**20  # bins for more than this many scores, and so the relative error of a distance: 1e-6


def wasserstein(positives, negatives, positive_weights=None, negative_weights=None) -> float:
    """Wasserstein-1 distance between two sets of scores (GR Fig. 3a): on the values, never on histogram counts.

    A histogram enters as the centres of its bins with the counts as weights. More than 2^20 scores are counted on that
    many bins between the smallest and the largest, which bounds the memory; the error is at most their width.

    Args:
        positives, negatives: finite scores of any shape, usually probabilities in [0, 1]; then so is the distance.
        positive_weights, negative_weights: >= 0, of the same size; None = each score counts once.

    Returns:
        The distance; NaN if a group is empty (`or_undefined` makes "undefined (n=0)" of it).

    Raises:
        ValueError: a score is not finite, or weights do not fit their scores.
    """
    groups = [_flat(positives), _flat(negatives)]
    weights = [_weights(w, g) for w, g in zip((positive_weights, negative_weights), groups, strict=True)]
    if any(len(g) == 0 or (w is not None and w.sum() == 0) for g, w in zip(groups, weights, strict=True)):
        return np.nan
    low, high = min(g.min() for g in groups), max(g.max() for g in groups)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"scores must be finite, found {high if np.isfinite(low) else low}")
    if sum(map(len, groups)) <= GRID or any(w is not None for w in weights):
        return float(stats.wasserstein_distance(*groups, *weights))
    return _of_counts([_counts(group, low, high) for group in groups], low, high)


def wasserstein_missing(probs, observed, full, known=None) -> float:
    """`wasserstein` between the missing labels that are truly positive and those truly negative, in bounded memory.

    Args: see `bucket_false_negatives`.
    """
    if np.size(probs) <= GRID:
        p, positive = missing_labels(probs, observed, full, known)
        return wasserstein(p[positive], p[~positive])
    counts = np.zeros((2, GRID))
    for p, positive in missing_blocks(probs, observed, full, known):
        counts[0] += _counts(p[positive], 0, 1)
        counts[1] += _counts(p[~positive], 0, 1)
    return _of_counts(counts, 0, 1)


def _counts(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the numbers of scores on the grid; `np.histogram` would pass over the grid for every 65,536 scores."""
    low, high, counts = float(low), float(high), np.zeros(GRID, int)
    for start in range(0, len(scores), BLOCK):
        part = scores[start : start + BLOCK]
        index = ((part - low) * (GRID / (high - low) if high > low else 0)).astype(np.int64)
        counts += np.bincount(np.minimum(index, GRID - 1, out=index), minlength=GRID)
    return counts


def _of_counts(counts, low: float, high: float) -> float:
    """Return the distance of two rows of counts on the grid; scipy would sort it, in three times the memory."""
    shares = np.cumsum(counts, 1, dtype=float)
    if not shares[:, -1].all():
        return np.nan
    shares /= shares[:, -1:].copy()
    return float(np.abs(shares[0] - shares[1]).sum() * (float(high) - float(low)) / GRID)


def histogram(
    groups: Mapping[Hashable, np.ndarray],
    num_bins: int = 50,
    bounds=(0.0, 1.0),
    min_count: int = 0,
    names: Sequence[str] = ("group",),
) -> pd.DataFrame:
    """Return densities of groups of scores on shared bins (GR Fig. 3b, 3c; Hill Fig. 2, 5; EM Fig. 2c, 4b, 10).

    Args:
        groups: scores by name, e.g. of positives and negatives; a name may be a tuple.
        bounds: first and last edge, shared; a score outside is an error.
        min_count: bins with fewer scores are marked `sparse`.
        names: of the columns that hold the parts of a group's name.

    Returns:
        One row per bin and group: group, low, high, count, share of the group and density (NaN in an empty group), n
        (of the group), sparse.
    """
    edges, tables = shared_edges(num_bins, bounds), {}
    for name, group in groups.items():
        group, count = _flat(group), np.zeros(num_bins, int)
        for start in range(0, len(group), BLOCK):
            count += np.bincount(bin_index(group[start : start + BLOCK], edges), minlength=num_bins)
        table = pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": count})
        table["share"] = count / len(group) if len(group) else np.nan
        table["density"] = table["share"] / np.diff(edges)
        tables[name] = table.assign(n=len(group), sparse=count < min_count)
    return _named(tables, names)


def logit_density(
    groups: Mapping[Hashable, np.ndarray], num_points: int = 256, names: Sequence[str] = ("group",)
) -> pd.DataFrame:
    """Return Gaussian kernel densities of groups of logits on one shared grid, with Scott's bandwidth for each group.

    On the logit, since a kernel on [0, 1] smears probability beyond both ends, where most scores lie. The kernel is
    laid over fine bins, in time and memory of the grid: `scipy.stats.gaussian_kde` visits every score for every point.

    Args:
        groups, names: as in `histogram`; finite logits.

    Returns:
        One row per point and group: group, logit, prob (of that logit), density (per unit of logit; NaN in a group of
        less than two different logits), n.
    """
    groups = {name: _flat(group) for name, group in groups.items()}
    filled = {name: group for name, group in groups.items() if len(group)}
    if not filled:
        raise ValueError(f"every group is empty: {', '.join(map(str, groups))}")
    width = dict.fromkeys(groups, 0.0) | {name: g.std() * len(g) ** -0.2 for name, g in filled.items()}
    margin = 4 * max(width.values()) or 1.0
    low, high = min(map(np.min, filled.values())) - margin, max(map(np.max, filled.values())) + margin
    if not np.isfinite([low, high]).all():
        raise ValueError("logits must be finite")
    points, fine, tables = np.linspace(low, high, num_points), shared_edges(2**14, (low, high)), {}
    step, centres = fine[1] - fine[0], (fine[:-1] + fine[1:]) / 2
    for name, group in groups.items():
        density = np.full(num_points, np.nan)
        if width[name]:
            count = np.histogram(group, fine)[0].astype(float)
            smooth = gaussian_filter1d(count, width[name] / step, mode="constant", truncate=8)
            density = np.interp(points, centres, smooth / (len(group) * step))
        tables[name] = pd.DataFrame(
            {"logit": points, "prob": expit(points), "density": density, "n": len(group)}
        )
    return _named(tables, names)


def _named(tables: Mapping[Hashable, pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    return pd.concat(tables, names=names).reset_index(names).reset_index(drop=True)


def _flat(values) -> np.ndarray:
    values = np.asarray(values)
    return values.reshape(-1) if values.dtype.kind == "f" else values.reshape(-1).astype(float)


def _weights(weights, group: np.ndarray) -> np.ndarray | None:
    if weights is None:
        return None
    weights = np.asarray(weights, float).reshape(-1)
    if len(weights) != len(group) or not (weights >= 0).all():
        raise ValueError(f"{len(weights)} weights for {len(group)} scores: give one each, none below 0")
    return weights
