"""What it costs to choose an epoch or hyperparameters without clean labels: regrets of rules on held-out halves.

The validation images are halved at random. A rule sees one half with its observed labels and chooses among all states,
that is, all epochs of all runs of a seed; its choice is judged by its true mAP on the other half. The regret is how far
this lies below the choice by the true mAP of the first half. It may be negative: clean labels are noisy as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from spml_core import analysis, methods, metrics
from spml_core.methods import Step
from spml_core.runs import Labels, Run
from spml_core.studies.epochs import last_epoch

STOP_DROP = 2.0  # mAP points, of GR's released code


def regrets(found: Mapping[Hashable, Iterable[Run]], halvings: int = 5, own: bool = False) -> pd.DataFrame:
    """Return the regrets, in points of mAP, of all rules that choose a state among those of each seed.

    Rules besides `analysis.RULES`: "last", the last epoch of the first run, without a choice; "stop_drop", GR's printed
    rule: mAP against observed labels, until it falls more than 2 points below its best; "agreement", the correlation of
    the logits with those of the next seed, mean over classes, where there are several seeds; "own_loss", see `own`.

    Args:
        found: setting -> its runs: for each seed the same number, in the same order, the default first.
        halvings: random halves of the validation images; regrets are means over them.
        own: also choose by the method's own loss on the observed labels of the half, with the schedule at that epoch.

    Returns:
        One row per setting, seed and rule: setting, seed, rule, regret, and chosen (true mAP of the choice).
    """
    rows, total = [], sum(len(list(runs)) for runs in found.values())
    with tqdm(total=total, desc="regrets", unit="run", leave=False, disable=None) as bar:
        for setting, runs in found.items():
            by_seed: dict[int, list[Run]] = {}
            for run in runs:
                by_seed.setdefault(run.config["seed"], []).append(run)
            states = {seed: _states(several) for seed, several in by_seed.items()}
            for place, (seed, mine) in enumerate(states.items()):
                following = list(states.values())[(place + 1) % len(states)] if len(states) > 1 else None
                table = _of_seed(mine, following, seed, halvings, own)
                rows.append(table.assign(setting=[setting] * len(table), seed=seed))
                bar.update(len(by_seed[seed]))
    return pd.concat(rows, ignore_index=True)[["setting", "seed", "rule", "regret", "chosen"]]


def _states(runs: list[Run]) -> list[tuple[Run, int, Labels]]:
    return [(run, epoch, run.labels("val", epoch)) for run in runs for epoch in range(1, last_epoch(run) + 1)]


def _of_seed(states: list, following: list | None, seed: int, halvings: int, own: bool) -> pd.DataFrame:
    """Return rule, regret and chosen, means over the halvings."""
    labels = states[0][2]
    draw, sums = np.random.default_rng(seed), {}
    for _ in range(halvings):
        order = draw.permutation(len(labels.full))
        seen, judged = np.array_split(order, 2)
        clean, true = (np.array([_map(state, rows) for state in states]) for rows in (seen, judged))
        choices = {"clean": int(np.nanargmax(clean))} | _choices(states, following, seen, own)
        for rule, choice in choices.items():
            sums[rule] = sums.get(rule, 0) + np.array([true[choices["clean"]] - true[choice], true[choice]])
    table = pd.DataFrame({rule: value / halvings for rule, value in sums.items()}, index=["regret", "chosen"])
    return table.T.rename_axis("rule").reset_index()


def _map(state, rows: np.ndarray) -> float:
    labels = state[2]
    return 100 * metrics.average_precision(labels.logits[rows], labels.full[rows], labels.known[rows]).mean


def _choices(states: list, following: list | None, rows: np.ndarray, own: bool) -> dict[str, int]:
    """Return the number of the state that each rule chooses from the observed labels of some rows."""
    observed = states[0][2].observed[rows]
    logits = [labels.logits[rows] for _, _, labels in states]
    scores = {name: [rule(z, observed) for z in logits] for name, rule in analysis.RULES.items()}
    scores["stop_drop"] = _until_drop(states, scores["map"])
    if following is not None and len(following) == len(states):
        others = [labels.logits[rows] for _, _, labels in following]
        scores["agreement"] = [_correlation(z, other) for z, other in zip(logits, others, strict=True)]
    if own:
        scores["own_loss"] = [
            -_own_loss(run, epoch, z, observed) for (run, epoch, _), z in zip(states, logits, strict=True)
        ]
    last = last_epoch(states[0][0]) - 1
    return {"last": last} | {name: int(np.nanargmax(values)) for name, values in scores.items()}


def _until_drop(states: list, maps: list[float]) -> list[float]:
    """Return the mAP of the states of each run until it has fallen by `STOP_DROP`, and -1 after that."""
    kept, best, stopped = [], 0.0, False
    for (_, epoch, _), value in zip(states, maps, strict=True):
        best, stopped = (0.0, False) if epoch == 1 else (best, stopped)
        kept.append(-1.0 if stopped else value)
        best = max(best, value)
        stopped = stopped or value < best - STOP_DROP
    return kept


def _correlation(logits: np.ndarray, others: np.ndarray) -> float:
    """Return Pearson's correlation of two (N, C) arrays over the images, mean over the classes; 0 where constant."""
    a, b = (z - z.mean(0) for z in (logits.astype(float), others.astype(float)))
    size = np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return float(np.mean((a * b).sum(0) / np.where(size > 0, size, 1)))


@torch.no_grad()
def _own_loss(run: Run, epoch: int, logits: np.ndarray, observed: np.ndarray) -> float:
    config = run.config
    method = methods.build(config["method"], logits.shape[1], len(logits), **config["params"])
    step = Step(epoch=epoch, num_epochs=config["epochs"], index=torch.arange(len(logits)))
    return float(method(torch.from_numpy(logits), torch.from_numpy(observed), step))


def threshold_scores(runs: Iterable[Run], split: str) -> pd.DataFrame:
    """Return CF1 and OF1 in percent on a split, with thresholds chosen in several ways on validation images.

    Ways: "0.5"; "prior", from the class prior by the mean number of positives per image; "estimated prior", the same
    without that number (`analysis.expected_positives`); "clean F1", the best F1 on clean validation labels.

    Returns:
        One row per run and way: method, seed, threshold, CF1, OF1, expected (mean positives per observed one that the
        way used; NaN for the others), at the best epoch.
    """
    rows = []
    for run in runs:
        val, scored = run.labels("val"), run.labels(split)
        counted = float((val.full[val.known] == 1).sum() / (val.observed == 1).sum())
        estimated = analysis.expected_positives(val.logits, val.observed)
        ways = {
            "0.5": (0.0, np.nan),
            "prior": (analysis.prior_thresholds(val.logits, val.observed, counted), counted),
            "estimated prior": (analysis.prior_thresholds(val.logits, val.observed), estimated),
            "clean F1": (
                metrics.fit_thresholds(val.logits, val.full, "logit", evaluated=val.known).values,
                np.nan,
            ),
        }
        for way, (threshold, expected) in ways.items():
            found = metrics.f1_family(scored.logits, scored.full, threshold, "logit", scored.known).numbers
            row = {"method": run.config["method"], "seed": run.config["seed"], "threshold": way}
            rows.append(row | {name: 100 * found[name] for name in ("CF1", "OF1")} | {"expected": expected})
    return pd.DataFrame(rows)
