"""What it costs to choose an epoch or hyperparameters without clean labels: regrets of rules on held-out halves.

The validation images are halved at random. A rule sees one half with its observed labels and chooses among all states,
that is, all epochs of all runs of a seed; its choice is judged by its true mAP on the other half. The regret is how far
this lies below the choice by the true mAP of the first half. It may be negative: clean labels are noisy as well.
"""

from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from spml_core import analysis, methods, metrics
from spml_core.methods import Step
from spml_core.runs import Labels, Run

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
    tables = []
    for setting, runs in tqdm(found.items(), "regrets", unit="setting", leave=False, disable=None):
        states: dict[int, list[tuple[Run, int, Labels]]] = {}
        for run in runs:
            for epoch in range(1, run.last_epoch + 1):
                states.setdefault(run.config["seed"], []).append((run, epoch, run.labels("val", epoch)))
        of_seeds = [*states.values()]
        for seed, mine, following in zip(states, of_seeds, of_seeds[1:] + of_seeds[:1], strict=True):
            table = _of_seed(mine, following, seed, halvings, own)
            tables.append(table.assign(setting=[setting] * len(table), seed=seed))
    return pd.concat(tables, ignore_index=True)[["setting", "seed", "rule", "regret", "chosen"]]


def _of_seed(states: list, following: list, seed: int, halvings: int, own: bool) -> pd.DataFrame:
    """Return rule, regret and chosen, means over the halvings; `following`: the states of the next seed."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(halvings):
        seen, judged = np.array_split(draw.permutation(len(states[0][2].full)), 2)
        clean, true = (np.array([_map(state, half) for state in states]) for half in (seen, judged))
        choices = {"clean": int(np.nanargmax(clean))} | _choices(states, following, seen, own)
        rows += [(rule, true[choices["clean"]] - true[n], true[n]) for rule, n in choices.items()]
    table = pd.DataFrame(rows, columns=["rule", "regret", "chosen"])
    return table.groupby("rule", sort=False, as_index=False).mean()


def _map(state, rows: np.ndarray) -> float:
    labels = state[2]
    return 100 * metrics.average_precision(labels.logits[rows], labels.full[rows], labels.known[rows]).mean


def _choices(states: list, following: list, rows: np.ndarray, own: bool) -> dict[str, int]:
    """Return the number of the state that each rule chooses from the observed labels of some rows."""
    observed = states[0][2].observed[rows]
    logits = [labels.logits[rows] for _, _, labels in states]
    scores = {name: [rule(z, observed) for z in logits] for name, rule in analysis.RULES.items()}
    scores["stop_drop"] = _until_drop(states, scores["map"])
    if following is not states and len(following) == len(states):
        others = [labels.logits[rows] for _, _, labels in following]
        scores["agreement"] = [_correlation(z, other) for z, other in zip(logits, others, strict=True)]
    if own:
        pairs = zip(states, logits, strict=True)
        scores["own_loss"] = [-_own_loss(run, epoch, z, observed) for (run, epoch, _), z in pairs]
    last = states[0][0].last_epoch - 1
    return {"last": last} | {name: int(np.nanargmax(values)) for name, values in scores.items()}


def _until_drop(states: list, maps: list[float]) -> pd.Series:
    """Return the mAP of the states of each run until it has fallen by `STOP_DROP`, and -1 after that."""
    maps, run = pd.Series(maps), np.cumsum([epoch == 1 for _, epoch, _ in states])
    fallen = maps < maps.groupby(run).cummax() - STOP_DROP
    return maps.where(fallen.groupby(run).cumsum() <= fallen, -1.0)


def _correlation(logits: np.ndarray, others: np.ndarray) -> float:
    """Return Pearson's correlation of two (N, C) arrays over the images, mean over the classes; 0 where constant."""
    frames = (pd.DataFrame(z, dtype=float) for z in (logits, others))
    return float(next(frames).corrwith(next(frames)).fillna(0).mean())


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
        clean = metrics.fit_thresholds(val.logits, val.full, "logit", evaluated=val.known)
        ways = {
            "0.5": (0.0, np.nan),
            "prior": (analysis.prior_thresholds(val.logits, val.observed, counted), counted),
            "estimated prior": (analysis.prior_thresholds(val.logits, val.observed), estimated),
            "clean F1": (clean.values, np.nan),
        }
        for way, (threshold, expected) in ways.items():
            found = metrics.f1_family(scored.logits, scored.full, threshold, "logit", scored.known).numbers
            row = {"method": run.config["method"], "seed": run.config["seed"], "threshold": way}
            rows.append(row | {name: 100 * found[name] for name in ("CF1", "OF1")} | {"expected": expected})
    return pd.DataFrame(rows)
