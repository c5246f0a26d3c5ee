"""How far runs tell positives from negatives: tables over methods, seeds, epochs and classes.

Runs come by (method, seed). Scores are of the validation set's missing labels, drawn as those of training, unless said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from spml_core import analysis, metrics
from spml_core.runs import Run

Runs = Mapping[tuple[str, int], Run]
KINDS = ("positives", "negatives")


def last_epoch(run: Run) -> int:
    return int(run.history["epoch"].max())


def missing_scores(run: Run, epoch: int | None = None) -> dict[str, np.ndarray]:
    """Probabilities of the missing labels by `KINDS`; epoch None = the last one."""
    epoch = last_epoch(run) if epoch is None else epoch
    found = analysis.missing_scores(run.probs("val", epoch), run.observed("val"), run.full("val"))
    return dict(zip(KINDS, found, strict=True))


def all_scores(run: Run, split: str) -> dict[str, np.ndarray]:
    """Probabilities of all labels of a split by `KINDS`, best epoch."""
    probs, full = run.probs(split), run.full(split)
    return {"positives": probs[full == 1], "negatives": probs[full == 0]}


def histograms(scores: Mapping[str, Mapping[str, np.ndarray]], num_bins: int) -> pd.DataFrame:
    """`analysis.histogram` of scores by method and kind, with columns method, kind, and share of the group."""
    tables = [
        analysis.histogram(groups, num_bins).rename(columns={"group": "kind"}).assign(method=method)
        for method, groups in scores.items()
    ]
    table = pd.concat(tables, ignore_index=True)
    return table.assign(share=table["count"] / table["n"].clip(lower=1))


def by_epoch(runs: Runs) -> pd.DataFrame:
    """Wasserstein distance between missing positives and negatives (GR Fig. 3a): method, seed, epoch, wasserstein."""
    rows = [
        (method, seed, epoch, analysis.wasserstein(*missing_scores(run, epoch).values()))
        for (method, seed), run in runs.items()
        for epoch in run.history["epoch"]
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "epoch", "wasserstein"])


def by_class(runs: Runs) -> pd.DataFrame:
    """The same for each class, last epoch (EM Fig. 4a): class, positives, negatives, distance, method, seed."""
    tables = []
    for (method, seed), run in runs.items():
        arrays = run.probs("val", last_epoch(run)), run.observed("val"), run.full("val")
        tables.append(analysis.wasserstein_by_class(*arrays, run.classes).assign(method=method, seed=seed))
    return pd.concat(tables, ignore_index=True)


def class_gains(runs: Runs, baseline: str, split: str = "test") -> pd.DataFrame:
    """`analysis.class_gain` over a baseline of the same seed, best epoch (EM Fig. 4c), with columns method, seed."""
    ap = {key: metrics.average_precision(run.logits(split), run.full(split)) for key, run in runs.items()}
    tables = [
        analysis.class_gain(ap[method, seed], ap[baseline, seed], runs[method, seed].classes).assign(
            method=method, seed=seed
        )
        for method, seed in runs
        if method != baseline
    ]
    return pd.concat(tables, ignore_index=True)


def densities(runs: Runs, classes: Iterable[int], split: str = "test") -> pd.DataFrame:
    """`analysis.logit_density` of single classes, best epoch, pooled over the seeds (EM Fig. 2c, 4b, 10).

    Args:
        classes: their numbers.
        split: whose labels, all of them, stand beside the missing ones of validation.

    Returns:
        A row a point: method, class, labels ("missing" or the split), kind (`KINDS`), logit, prob, density, n; the
        logits are the same for all.
    """
    groups: dict[tuple, list] = {}
    for (method, _), run in runs.items():
        for c in classes:
            column = slice(c, c + 1)
            for labels, part in (("missing", "val"), (split, split)):
                logits, full = run.logits(part)[:, column], run.full(part)[:, column]
                observed = run.observed(part)[:, column] if labels == "missing" else np.zeros_like(full)
                found = analysis.missing_logits(logits, observed, full)
                for kind, values in zip(KINDS, found, strict=True):
                    groups.setdefault((method, run.classes[c], labels, kind), []).append(values)
    keys = list(groups)
    table = analysis.logit_density({str(n): np.concatenate(groups[key]) for n, key in enumerate(keys)})
    index = table.pop("group").astype(int)
    named = (
        pd.DataFrame(keys, columns=["method", "class", "labels", "kind"]).loc[index].reset_index(drop=True)
    )
    return pd.concat([named, table], axis=1)
