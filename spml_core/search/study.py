"""Hyperparameter search with Optuna; a YAML file defines the search space (`spml_core.search.space`).

    found = search(read("digits-gr"), root="runs")
    found.preset        # the best configuration, for `spml train --preset`
    found.runs          # it, trained with `test_seeds` seeds

Each trial is a `run(Experiment)`, so finished runs are loaded. Trials are compared by validation mAP, or by the
rule `select` of the experiment, alone; the test
result is read once, at the end, for the chosen configuration. The study is stored in a journal file, or in a database
that many machines share. Starting an interrupted search again resumes it.
"""

import copy
import statistics
import sys
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import optuna
import pandas as pd
from filelock import FileLock, Timeout
from optuna.samplers import GridSampler, TPESampler
from optuna.storages import RetryHeartbeatStaleTrialCallback
from tqdm.auto import tqdm

from spml_core import methods, train, words
from spml_core.paths import locate
from spml_core.runs import FORMAT, Experiment, Run, run, run_all
from spml_core.runs.executors import WorkLost, outcomes
from spml_core.search.space import Space, write_preset

HEARTBEAT = 60  # seconds; in a database, a trial that was silent for three times as long is repeated
FINISHED = ("complete", "pruned", "failed")
POLL = 5  # seconds between checks of what other machines still do


class SearchResult(NamedTuple):
    """The result of a search.

    Attributes:
        chosen: the best values of the space; `val_map`: their mean validation mAP (percent), or score of the rule
            `select` of the experiment, over `space.seeds` seeds. So is val_map in `trials`.
        runs: its runs with the seeds 0 to `space.test_seeds` - 1.
        counts: trials that are "complete", "pruned" and "failed".
        preset: file of the best configuration.
        trials: one row per finished trial, the best first: its number, its values, val_map (percent; NaN where it was
            pruned or failed), state, and error. Also written as `<name>.trials.csv`, beside the preset, where the score
            is named after the rule, such as val_ranking.
    """

    space: Space
    chosen: dict
    val_map: float
    runs: list[Run]
    counts: dict[str, int]
    preset: Path
    trials: pd.DataFrame


def search(
    space: Space, executor=None, root: str | Path = "runs", *, storage: str | None = None
) -> SearchResult:
    """Run the trials that are missing, choose the best by validation mAP, and train it with `test_seeds` seeds.

    A trial that was running when the search was killed is repeated. Data are loaded, and frozen features computed,
    before the first trial.

    Args:
        executor: as in `run_all`; None = here. Its workers must have access to `root` and `storage`.
        root: folder of all runs; the study's files are in its subfolder `search`.
        storage: None = the journal file `root/search/<name>.journal`, which one search at a time may use. Or a URL
            such as "postgresql://user@host/base": searches of the same name on many machines share its trials.

    Raises:
        ValueError: an invalid value, before any trial; another search has this name; no trial succeeded.
        WorkLost: workers were lost; raised when all others are finished.
    """
    shared, root = storage is not None, locate(root)
    if shared and "://" not in storage:
        raise ValueError(f"storage is the URL of a database, such as sqlite:///searches.db; got {storage!r}")
    first = Experiment(**space.fields(space.probes()[0])).resolved()
    data = first.load_data(root / "cache")
    key = [FORMAT, data.fingerprint, methods.source_digest(first.method)]
    folder = root / "search"
    folder.mkdir(parents=True, exist_ok=True)
    storage = storage or str(folder / f"{space.name}.journal")
    lock = nullcontext() if shared else FileLock(root / ".locks" / f"search-{space.name}.lock", timeout=0)
    try:
        with lock:
            study = _open(space, storage)
            _same_search(study, space, key, None if shared else storage)
            _make_trials(study, space, executor, root, storage)
            return _finish(study, space, executor, root)
    except Timeout:
        raise ValueError(
            f"another process is running the search {space.name!r} in {root}: give it more workers (--jobs), or give "
            f"both a database (--storage)"
        ) from None


def _make_trials(study, space: Space, executor, root: Path, storage: str) -> None:
    task = partial(_trial, space=space, storage=storage, root=root)
    options = {"desc": f"search {space.name}", "unit": "trial", "leave": False, "disable": None}
    with tqdm(total=space.budget, **options) as bar:
        while (start := _show(bar, study)) < space.budget:
            _repeat_interrupted(study, shared="://" in storage)
            missing = space.budget - start - _counts(study)["running"]
            if missing <= 0:  # other machines are running the last ones
                time.sleep(POLL)
            lost = []
            # An interruption does not change these numbers, so a resumed search makes the same trials.
            for _, outcome in outcomes(task, range(start, start + missing), executor):
                lost += [outcome] if isinstance(outcome, Exception) else []
                done = _show(bar, study)
                if bar.disable:  # no terminal: print lines instead
                    said = f"search {space.name}: {done} of {space.budget} trials"
                    print(said, file=sys.stderr, flush=True)
            if lost:
                raise WorkLost(
                    f"{len(lost)} of {missing} trials were lost ({type(lost[0]).__name__}: {lost[0]}): start the same "
                    "search again, it repeats them"
                ) from lost[0]


def _finish(study, space: Space, executor, root: Path) -> SearchResult:
    counts = _counts(study)
    if not counts["complete"]:
        reasons = {trial.user_attrs["error"]: None for trial in study.trials if "error" in trial.user_attrs}
        raise ValueError(f"none of {space.budget} trials succeeded: {'; '.join(reasons)}")
    best = study.best_trial
    chosen = space.values(best.params)
    fields = space.fields(chosen)
    experiments = [Experiment(**fields, seed=seed) for seed in range(space.test_seeds)]
    runs = run_all(experiments, executor, root)
    counts = {kind: counts[kind] for kind in FINISHED}
    preset = root / "search" / f"{space.name}.best.yaml"
    said = f"{sum(counts.values())} trials: {space.measure} {best.value:.2f}, "
    said += f"mean of {words.count(space.seeds, 'seed')}"
    write_preset(preset, fields, f"Chosen by the search {space.name!r} among {said}.")
    trials = _trials(study, space)
    written = trials.rename(columns={"val_map": f"val_{space.rule}"})
    written.to_csv(root / "search" / f"{space.name}.trials.csv", index=False)
    return SearchResult(space, chosen, best.value, runs, counts, preset, trials)


def _trials(study, space: Space) -> pd.DataFrame:
    rows = []
    for trial in study.trials:
        if (kind := _kind(trial)) in FINISHED:
            value = trial.value if kind == "complete" else float("nan")
            reached = {"val_map": value, "state": kind, "error": trial.user_attrs.get("error", "")}
            tried = {name: trial.params.get(name) for name in space.space}
            rows.append({"trial": trial.number} | tried | reached)
    return pd.DataFrame(rows).sort_values("val_map", ascending=False, kind="stable", ignore_index=True)


# --- one trial ---


def _trial(number: int, *, space: Space, storage: str, root: Path) -> None:
    """Run one more trial, unless other machines have made enough of them. Workers call this function.

    Args:
        number: seed of the sampler. With a shared database it is not used, or all machines would draw the same trials.
    """
    study = _open(space, storage, None if "://" in storage else number)
    counts = _counts(study)
    if counts["finished"] + counts["running"] < space.budget:
        study.optimize(partial(_objective, space=space, root=root), n_trials=1, catch=(Exception,))


def _objective(trial, *, space: Space, root: Path) -> float:
    try:
        fields = space.fields(space.suggest(trial))
        experiments = [Experiment(**fields, seed=seed) for seed in range(space.seeds)]
        return statistics.mean(_val_map(trial, one, root, one.seed * one.epochs) for one in experiments)
    except train.Abandoned:
        raise optuna.TrialPruned from None
    except Exception as error:
        trial.set_user_attr("error", f"{type(error).__name__}: {error}")
        raise


def _val_map(trial, experiment: Experiment, root: Path, before: int) -> float:
    """Return `space.measure` of one run and report every epoch to the pruner; `before`: epochs of earlier seeds."""
    reported = set()

    def on_epoch(row: dict) -> None:
        reported.add(row["epoch"])
        trial.report(train.score(row), before + row["epoch"])
        # Pruning after the last epoch would save nothing.
        if row["epoch"] < experiment.epochs and trial.should_prune():
            raise train.Abandoned

    finished = run(experiment, root, progress=False, on_epoch=on_epoch)
    for row in finished.history[1:].to_dict("records"):
        if row["epoch"] not in reported:  # trained earlier
            trial.report(train.score(row), before + row["epoch"])
    return train.score(finished.summary)


# --- the study ---


class _Grid(GridSampler):
    """Optuna's grid in a fixed random order, in which a repeated trial keeps its point.

    Optuna assigns points by trial number. A repeated trial gets a new number, so a point would be left out if only a
    part of the grid is tried.
    """

    def __init__(self, space: Space):
        super().__init__({name: list(choices) for name, choices in space.choices.items()}, seed=0)

    def before_trial(self, study, trial) -> None:
        trial, trials = copy.copy(trial), study.get_trials(deepcopy=False)
        first = trial.system_attrs.get("failed_trial", trial.number)
        trial.number = first - sum("failed_trial" in earlier.system_attrs for earlier in trials[:first])
        super().before_trial(study, trial)


def _open(space: Space, storage: str, seed: int | None = None):
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # no line for each trial
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of heartbeats
    shared = "://" in storage
    sampler = _Grid(space) if space.sampler == "grid" else TPESampler(seed=seed)
    pruner = optuna.pruners.MedianPruner() if space.pruner == "median" else optuna.pruners.NopPruner()
    options = {"study_name": space.name, "direction": "maximize", "load_if_exists": True}
    try:
        if shared:
            heartbeat = {"heartbeat_interval": HEARTBEAT, "grace_period": 3 * HEARTBEAT}
            repeat = RetryHeartbeatStaleTrialCallback()
            opened = optuna.storages.RDBStorage(storage, **heartbeat, heartbeat_stale_trial_callback=repeat)
        else:
            opened = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
        return optuna.create_study(storage=opened, sampler=sampler, pruner=pruner, **options)
    except Exception as error:  # of the URL, the driver or the server
        where = "the database" if shared else storage  # a URL may hold a password
        raise ValueError(f"cannot open {where} ({type(error).__name__}): {error}") from error


def _same_search(study, space: Space, key: list, journal: str | None) -> None:
    """Raise ValueError if the study of that name compares something else."""
    own = space.model_dump(mode="json", include={"experiment", "space", "seeds"})
    own["experiment"].pop("root", None)
    own["space"] = {n: {"log": False} | d if isinstance(d, dict) else d for n, d in own["space"].items()}
    own["data or code"] = key
    known = study.user_attrs.get("search")
    if known is None:
        study.set_user_attr("search", own)
    elif known != own:
        changed = ", ".join(name for name in own if known.get(name) != own[name])
        shared = f"optuna delete-study --study-name {space.name} --storage URL"
        how = f"delete {journal}" if journal else shared
        raise ValueError(
            f"there is a search {space.name!r} with another {changed}: its trials cannot be compared with new ones. "
            f"Choose another name (`spml search --name`, or `name:` in the file), or delete that search ({how}; its "
            f"runs stay)"
        )


def _repeat_interrupted(study, shared: bool) -> None:
    """Queue interrupted trials again. Optuna does so itself only for databases, by a heartbeat."""
    optuna.storages.fail_stale_trials(study)
    if not shared:  # no other process is working on it, since this one holds the lock
        for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    repeated = {number for trial in study.trials for number in trial.system_attrs.get("retry_history", ())}
    for trial in study.trials:
        if _kind(trial) == "interrupted" and trial.number not in repeated:
            RetryHeartbeatStaleTrialCallback()(study, trial)


def _kind(trial) -> str:
    """Return "complete", "pruned", "running", "waiting", "failed" (it raised an error) or "interrupted"."""
    if trial.state.name == "FAIL":
        return "failed" if "error" in trial.user_attrs else "interrupted"
    return trial.state.name.lower()


def _counts(study) -> Counter:
    """Return the number of trials of each kind, and of all that are finished."""
    counts = Counter(map(_kind, study.trials))
    return counts + Counter(finished=sum(counts[kind] for kind in FINISHED))


def _show(bar: tqdm, study) -> int:
    """Show the finished trials and the best so far on the bar, and return their number."""
    bar.n, complete = _counts(study)["finished"], [t.value for t in study.trials if _kind(t) == "complete"]
    bar.set_postfix_str(f"best score {max(complete):.2f}" if complete else "")
    return bar.n
