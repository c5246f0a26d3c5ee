"""Which labels of the training images an annotator should look at: probably missing positives, and doubtful labels.

labels = out_of_fold(run)                  # Labels of the training images, with logits of models that saw others
ranked(labels)                             # one row per suggestion, the most urgent first
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from spml_core import runs
from spml_core.data.folds import held_out
from spml_core.runs import Experiment, Labels, Run

KINDS = {"missing": "unobserved", "doubtful": "observed"}  # kind of suggestion -> of which labels


def experiments(run: Run, folds: int = 5, root: str | None = None) -> list[Experiment]:
    """Return the experiments that predict the training images of a run: `folds` trainings with its settings and its
    labels, each without one fold of the images.

    Args:
        root: folder of the data set; None = where it was when the run was trained.

    Raises:
        ValueError: the epoch of the run was chosen on its training images (`val_is_train`), or it is itself a fold.
    """
    same = Experiment.of_run(run)
    if taken := {"val_is_train", "fold"} & same.data.keys():
        raise ValueError(f"{run.path.name} was trained with the option {min(taken)}: name a run without it")
    same = replace(same, observe={"manifest": str(run.path / "labels.csv")}, root=root or same.root)
    return [replace(same, data=same.data | {"fold": [n, folds]}) for n in range(folds)]


def out_of_fold(
    run: Run, folds: int = 5, root: str | None = None, executor=None, runs_dir: str | Path | None = None
) -> Labels:
    """Return the labels of a run's training images, with logits of models that were not trained on these images.

    Each fold is an ordinary run: it is kept, and an interrupted one resumes.

    Args:
        folds, root: as for `experiments`.
        executor: as for `run_all`. None trains one fold after the other.
        runs_dir: folder of the runs of the folds; None = that of the run.

    Raises:
        ValueError: as `experiments`; or the data set has changed since the run was trained.
    """
    wanted, place = experiments(run, folds, root), run.path.parent if runs_dir is None else runs_dir
    if executor is None:
        found = [runs.run(each, place) for each in tqdm(wanted, "folds", leave=False, disable=None)]
    else:
        found = runs.run_all(wanted, executor, place)
    labels = run.labels("train")
    logits = np.empty(labels.full.shape, np.float32)
    for n, fold in enumerate(found):
        rows = held_out(len(logits), n, folds)
        if not np.array_equal(fold.labels("test").full, labels.full[rows]):
            raise ValueError(
                f"the data set has changed since {run.path.name} was trained: its labels differ. Train the run again."
            )
        logits[rows] = fold.logits("test")
    return replace(labels, logits=logits)


def ranked(labels: Labels, missing: int | None = None, doubtful: int | None = None) -> pd.DataFrame:
    """Return unobserved labels from the highest probability to the lowest, then observed ones by how far the
    probability contradicts them. The truth is not used.

    The two are not mixed: with assumed negatives, probabilities are far too low, so almost every observed positive
    would seem more doubtful than any unobserved label seems missing. Within each kind, the order is that of cleanlab's
    label quality score, self-confidence: p of a positive label, 1 - p of a negative one. That is one line of NumPy, so
    cleanlab is not a dependency. Ties keep the order of images and classes.

    Args:
        labels: of training images, with out-of-fold logits.
        missing, doubtful: how many rows of each kind at most; None = all.

    Returns:
        One row per suggestion: kind ("missing" or "doubtful"), row and column (in the arrays of `labels`), observed,
        probability.
    """
    found = []
    unobserved = labels.observed == 0
    for kind, chosen, most in zip(KINDS, (unobserved, ~unobserved), (missing, doubtful), strict=True):
        row, column = np.nonzero(chosen)
        observed, p = labels.observed[chosen], labels.probs[chosen]
        order = np.argsort(np.where(observed == 1, p, 1 - p), kind="stable")[:most]
        table = {"row": row, "column": column, "observed": observed, "probability": p}
        found.append(pd.DataFrame({"kind": kind} | {name: values[order] for name, values in table.items()}))
    return pd.concat(found, ignore_index=True)


def judged(labels: Labels, at: tuple[int, ...] = (100, 500, 1000)) -> dict[int, float]:
    """Return the share of missing positives among the first n suggestions for each n; NaN if there are fewer than n.

    Suggestions whose truth is not known are left out.
    """
    known = replace(labels, observed=np.where(labels.known, labels.observed, 1))
    first = ranked(known, max(at), 0)
    right = labels.full[first["row"], first["column"]] == 1
    return {k: float(right[:k].mean()) if k <= len(right) else np.nan for k in at}
