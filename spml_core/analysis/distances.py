"""How far the scores of positives lie from those of negatives: distances and densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit

from spml_core.analysis.buckets import bin_index, shared_edges
from spml_core.analysis.missing import BLOCK, missing_blocks, missing_labels, missing_scores

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
    weighted = any(w is not None for w in weights)
    if weighted or sum(map(len, groups)) <= GRID:
        return float(stats.wasserstein_distance(*groups, *weights))
    counts = np.zeros((2, GRID))
    for row, group in zip(counts, groups, strict=True):
        for start in range(0, len(group), BLOCK):
            row += _on_grid(group[start : start + BLOCK], float(low), float(high))
    return _distance_on_grid(counts, float(high) - float(low))


def wasserstein_missing(probs, observed, full, known=None) -> float:
    """`wasserstein` between the missing labels that are truly positive and those truly negative, in bounded memory.

    Args: see `bucket_false_negatives`.
    """
    if np.size(probs) <= GRID:
        return wasserstein(*missing_scores(probs, observed, full, known))
    counts = np.zeros((2, GRID))
    for p, positive in missing_blocks(probs, observed, full, known):
        counts[0] += _on_grid(p[positive], 0, 1)
        counts[1] += _on_grid(p[~positive], 0, 1)
    return _distance_on_grid(counts, 1) if counts.sum(1).all() else np.nan


def wasserstein_by_class(
    probs, observed, full, classes: Sequence[str] | None = None, known=None
) -> pd.DataFrame:
    """`wasserstein` of the missing labels of each class (EM Fig. 4a): class, positives, negatives, distance.

    positives and negatives are the numbers of missing labels; where one is 0 the distance is NaN.
    """
    arrays = [np.asarray(a) for a in (probs, observed, full)]
    known = np.ones(arrays[0].shape, bool) if known is None else np.asarray(known)
    names = range(arrays[0].shape[1]) if classes is None else classes
    rows = []
    for c, name in enumerate(names):
        groups = missing_scores(*(a[:, c : c + 1] for a in arrays), known[:, c : c + 1])
        rows.append((name, *map(len, groups), wasserstein(*groups)))
    return pd.DataFrame(rows, columns=["class", "positives", "negatives", "distance"])


def histogram(
    groups: Mapping[str, np.ndarray], num_bins: int = 50, bounds=(0.0, 1.0), min_count: int = 0
) -> pd.DataFrame:
    """Densities of groups of scores on shared bins (GR Fig. 3b, 3c; Hill Fig. 2, 5; EM Fig. 2c, 4b, 10).

    Args:
        groups: scores by name, e.g. of positives and negatives.
        bounds: first and last edge, shared; a score outside is an error.
        min_count: bins with fewer scores are marked `sparse`.

    Returns:
        A row a bin and group: group, low, high, count, density (NaN in an empty group), n (of the group), sparse.
    """
    edges = shared_edges(num_bins, bounds)
    tables = []
    for name, group in groups.items():
        group, count = _flat(group), np.zeros(num_bins, int)
        for start in range(0, len(group), BLOCK):
            count += np.bincount(bin_index(group[start : start + BLOCK], edges), minlength=num_bins)
        density = count / (len(group) * np.diff(edges)) if len(group) else np.full(num_bins, np.nan)
        columns = {"low": edges[:-1], "high": edges[1:], "count": count, "density": density, "n": len(group)}
        tables.append(pd.DataFrame({"group": name, **columns, "sparse": count < min_count}))
    return pd.concat(tables, ignore_index=True)


def logit_density(groups: Mapping[str, np.ndarray], num_points: int = 256) -> pd.DataFrame:
    """Gaussian kernel densities of groups of logits on one shared grid, with Scott's bandwidth for each group.

    On the logit, since a kernel on [0, 1] smears probability beyond both ends, where most scores lie. In time and
    memory of the grid: the kernel is laid over fine bins.

    Args:
        groups: finite logits by name.

    Returns:
        A row a point and group: group, logit, prob (of that logit), density (per unit of logit; NaN in a group of less
        than two different logits), n.
    """
    groups = {name: _flat(group) for name, group in groups.items()}
    deviation = {name: float(g.std()) if len(g) else 0.0 for name, g in groups.items()}
    width = {name: deviation[name] * len(g) ** -0.2 if len(g) else 0.0 for name, g in groups.items()}
    filled = [g for g in groups.values() if len(g)]
    if not filled:
        raise ValueError(f"every group is empty: {', '.join(groups)}")
    margin = 4 * max(width.values()) or 1.0
    low, high = min(g.min() for g in filled) - margin, max(g.max() for g in filled) + margin
    if not np.isfinite([low, high]).all():
        raise ValueError("logits must be finite")
    points, fine, tables = np.linspace(low, high, num_points), shared_edges(2**14, (low, high)), []
    step, centres = fine[1] - fine[0], (fine[:-1] + fine[1:]) / 2
    for name, group in groups.items():
        if width[name]:
            count = np.histogram(group, fine)[0].astype(float)
            smooth = gaussian_filter1d(count, width[name] / step, mode="constant", truncate=8)
            density = np.interp(points, centres, smooth / (len(group) * step))
        else:
            density = np.full(num_points, np.nan)
        columns = {"logit": points, "prob": expit(points), "density": density, "n": len(group)}
        tables.append(pd.DataFrame({"group": name, **columns}))
    return pd.concat(tables, ignore_index=True)


def missing_logits(logits, observed, full, known=None) -> tuple[np.ndarray, np.ndarray]:
    """`missing_scores` of logits: those of truly positive and of truly negative missing labels."""
    z, positive = missing_labels(logits, observed, full, known, probs=False)
    return z[positive], z[~positive]


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


def _on_grid(values: np.ndarray, low: float, high: float) -> np.ndarray:
    index = ((values - low) * (GRID / (high - low) if high > low else 0)).astype(np.int64)
    return np.bincount(np.minimum(index, GRID - 1, out=index), minlength=GRID)


def _distance_on_grid(counts: np.ndarray, span: float) -> float:
    shares = counts.cumsum(1) / counts.sum(1, keepdims=True)
    return float(np.abs(shares[0] - shares[1]).sum() * span / GRID)
