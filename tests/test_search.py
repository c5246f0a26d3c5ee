"""A search tries what its file defines, chooses on validation data only, and resumes after any interruption."""

import copy
import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import optuna
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from filelock import FileLock
from test_runs import paint

from spml_core import search, train
from spml_core.cli import main
from spml_core.runs import protocol
from spml_core.search import Space, read, space, study

GRID = {"lr": [1e-3, 1e-2], "params.alpha": [0.1, 0.4]}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return paint(tmp_path_factory.mktemp("somewhere") / "pictures")


@pytest.fixture(scope="module")
def fixed(pictures):
    """Return the fields of a training that takes a tenth of a second."""
    return {"dataset": "folder", "root": str(pictures), "data": {"size": 16}, "mode": "end_to_end", "method": "em",
            "backbone": "digits_cnn", "epochs": 2, "batch_size": 8, "accelerator": "cpu"}  # fmt: skip


@pytest.fixture
def plan(fixed):
    """`plan(space=..., trials=...)`: a search over a grid of four by default."""
    options = {
        "name": "small",
        "experiment": fixed,
        "space": GRID,
        "sampler": "grid",
        "test_seeds": 2,
        "pruner": "none",
    }
    return lambda **changes: Space(**options | changes)


@pytest.fixture
def trained(monkeypatch):
    """Return the learning rates of all trainings in this process."""
    calls, fit = [], train.fit

    def spy(*args, **options):
        calls.append(args[4].lr)
        return fit(*args, **options)

    monkeypatch.setattr(train, "fit", spy)
    return calls


def trials(root, name="small"):
    backend = optuna.storages.journal.JournalFileBackend(str(root / "search" / f"{name}.journal"))
    return optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(backend)).trials


# --- the file ---


def write(folder, text):
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def test_read(tmp_path):
    text = "experiment: {dataset: folder, method: em, lr: 1e-3}\n"
    text += "space: {lr: [1e-4, 2.5E+1], params.alpha: {low: 1e-2, high: 1}}\n"
    found = read(write(tmp_path, text), {"root": "photos", "data.min_images": 20})
    assert found.name == "mine" and found.budget == 40 and found.seeds == 1 and found.test_seeds == 3
    assert found.experiment == {
        "dataset": "folder",
        "method": "em",
        "lr": 0.001,
        "root": "photos",
        "data": {"min_images": 20},
    }
    assert found.space["lr"] == [0.0001, 25.0] and found.space["params.alpha"] == {"low": 0.01, "high": 1}


@pytest.mark.parametrize(
    "text, message",
    [
        ("experiment: {methd: em}\nspace: {lr: [1, 2]}", "'methd'.*did you mean 'method'"),
        ("experiment: {seed: 3}\nspace: {lr: [1, 2]}", "'seed'"),
        ("space: {learning_rate: [1, 2]}", "'learning_rate'"),
        ("space: {lr: []}", "lr is .*at least 1 item"),
        ("space: {}", "space"),
        ("sampler: grid\nspace: {lr: {low: 1, high: 2}}", "lr.*range.*tpe"),
        ("space: {lr: {low: 2, high: 1}}", "low"),
        ("space: {lr: {low: 0, high: 1, log: true}}", "log"),
        ("space: {lr: [1]}\nsampler: random", "grid.*tpe"),
        ("space: {lr: [1]}\ntrails: 4", "trails"),
        ("space: {lr: [1]}\ntrials: 0", "trials"),
        ("space: {params.w.1: [1]}\nexperiment: {params: {w: 3}}", "params.w.1"),
        ("space: {params.w.2: [1]}\nexperiment: {params: {w: [3, 4]}}", "params.w.2"),
        ("- a\n- b", "not a mapping"),
        ("a: [", "not YAML"),
        ("name: a/b\nspace: {lr: [1]}", "name"),
    ],
)
def test_a_file_that_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=f"mine.yaml.*{message}|no field.*{message}|{message}"):
        read(write(tmp_path, text))


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "spaec: {lr: [1]}",
            "space: Field required; no field 'spaec' of a search: did you mean 'space'",
        ),
        ("space: {lr: [1]}\nsampler: gird", "sampler is 'gird': Input should be 'grid' or 'tpe'"),
        ("space: {lr: [1]}\ntrials: many", "trials is 'many': Input should be a valid integer"),
        (
            "space: {lr: 1e-3}",
            "space.lr is 0.001: Input should be a valid dictionary",
        ),
        (
            "space: {lr: {low: 1, hihg: 2}}",
            "lr of the space is {'low': 1, 'hihg': 2}, not a range {low, high, log}",
        ),
        ("space: {lr: {low: a, high: 2}}", "lr of the space is {'low': 'a', 'high': 2}, not a range"),
        ("space: {lr: {low: 2, high: 1}}", "lr of the space is {'low': 2, 'high': 1}, not a range"),
        ("space: {}", "space is {}: Dictionary should have at least 1 item"),
        ("space: [lr]", "space is ['lr']: Input should be a valid dictionary"),
        ("space: {lr: [1]}\nexperiment: 3", "experiment is 3: Input should be a valid dictionary"),
        ("space: {lr: [1]}\nexperiment: {seed: 3}", "'seed' does not belong in a file"),
        ("name: a b\nspace: {lr: [1]}", "name is 'a b': String should match pattern"),
        ("a: 1\nb: [", "is not YAML, line 2"),
        ("", "is not a mapping: it must hold"),
    ],
)
def test_a_wrong_file_gives_one_line_with_place_and_value(tmp_path, text, expected):
    file = write(tmp_path, text)
    with pytest.raises(ValueError) as raised:
        read(file)
    said = str(raised.value)
    assert said.startswith(str(file)) and expected in said and "\n" not in said
    assert not re.search("pydantic|function-after|Value error|Extra inputs", said)


def test_a_preset_is_no_search_file_nor_the_reverse(tmp_path):
    file = write(tmp_path, "dataset: digits\nlr: 1e-3")
    with pytest.raises(ValueError, match="space: Field required; no field 'dataset' of a search"):
        read(file)
    file = write(tmp_path, "experiment: {method: em}\nspace: {lr: [1e-3]}")
    result = CliRunner().invoke(main, ["train", "--preset", str(file)])
    assert result.exit_code == 2 and "of an experiment" in result.output


def test_no_such_file_lists_those_of_the_package():
    with pytest.raises(ValueError, match=r"nowhere.*digits-gr.*em_apl.*gr"):
        read("nowhere")


@pytest.mark.parametrize("name", space.shipped())
def test_every_shipped_search_can_be_tried(name):
    assert read(name).budget >= 8


@pytest.mark.parametrize("name, paper", [("gr", "gr"), ("em", "em"), ("em_apl", "em"), ("an", "em")])
def test_grids_of_the_papers_train_as_the_papers_did(name, paper):
    found = read(name)
    tried = [*found.space, "lr", "batch_size"]
    published = {field: value for field, value in protocol(paper, "voc2012").items() if field not in tried}
    assert published.items() <= found.experiment.items()
    assert found.pruner == "none" and found.sampler == "grid"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"space": {"params.alpha": [0.1, -1]}}, r"alpha.*-1"),
        ({"space": {"lr": {"low": -1, "high": 1}}}, "lr"),
        ({"space": {"method": ["em", "emm"]}}, "'emm'"),
    ],
)
def test_values_are_checked_before_any_trial(plan, tmp_path, trained, changes, message):
    with pytest.raises(ValueError, match=message):
        search.search(plan(sampler="tpe", **changes), root=tmp_path)
    assert not trained and not (tmp_path / "search").exists()


def test_what_the_file_fixes_is_not_changed_by_a_sweep(plan, fixed):
    before = copy.deepcopy(fixed | {"params": {"w": [0, 2]}, "method": "gr"})
    ends = {"ends": [{"params.w.1": 5, "params.b": [1, 2]}, {"params.w.1": 9}], "data.size": [16, 18]}
    found = plan(experiment=copy.deepcopy(before), space=ends)
    product = itertools.product(*found.space.values())
    every = [found.fields(dict(zip(found.space, chosen, strict=True))) for chosen in product]
    assert sorted((f["params"]["w"][1], f["params"].get("b"), f["data"]["size"]) for f in every) == [
        (5, [1, 2], 16), (5, [1, 2], 18), (9, None, 16), (9, None, 18)]  # fmt: skip
    assert found.experiment == before


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_part_of_a_grid_is_random_and_always_the_same(plan):
    wide = plan(space={"lr": [0.1, 0.2, 0.3, 0.4], "batch_size": [1, 2, 3]}, trials=5)
    assert wide.budget == 5 and plan(trials=9).budget == 4
    first = asked(wide, 5)
    assert first == asked(wide, 5)
    assert len({one["lr"] for one in first}) > 2 and len({one["batch_size"] for one in first}) > 1


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_repeated_trial_takes_the_place_of_no_other_in_part_of_a_grid(plan):
    wide = plan(space={"lr": [0.1, 0.2, 0.3, 0.4], "batch_size": [1, 2, 3]})
    assert asked(wide, 5, interrupt=(0, 2, 3)) == asked(wide, 5)


def asked(wide, number, interrupt=()):
    """Return what a grid tries first; `interrupt`: trials that are started, abandoned and repeated."""
    kept = optuna.create_study(sampler=study._Grid(wide))
    for n in range(number + len(interrupt)):
        trial = kept.ask()
        if n not in interrupt:  # else it is killed before anything is drawn, or after
            wide.suggest(trial)
            kept.tell(trial, 0.0)
        elif n:
            wide.suggest(trial)
        study._repeat_interrupted(kept, shared=False)
    done = [t for t in kept.trials if t.state.name == "COMPLETE"]
    return sorted((t.params for t in done), key=lambda params: tuple(params.values()))


# --- the search ---


def test_grid(plan, tmp_path, trained):
    found = search.search(plan(), root=tmp_path)
    every = trials(tmp_path)
    combinations = [(lr, alpha) for lr in GRID["lr"] for alpha in GRID["params.alpha"]]
    assert sorted(tuple(t.params.values()) for t in every) == combinations
    assert found.counts == {"complete": 4, "pruned": 0, "failed": 0}
    assert found.val_map == max(t.value for t in every) == found.runs[0].summary["val_map"]
    assert [run.config["seed"] for run in found.runs] == [0, 1]
    assert found.chosen == {
        "lr": found.runs[0].config["lr"],
        "params.alpha": found.runs[0].config["params"]["alpha"],
    }
    assert len(trained) == 5  # the best has been trained with seed 0 already
    assert list(found.trials) == ["trial", "lr", "params.alpha", "val_map", "state", "error"]
    assert found.trials["val_map"].tolist() == sorted((t.value for t in every), reverse=True)
    assert found.trials.loc[0, ["lr", "params.alpha"]].to_dict() == found.chosen
    written = pd.read_csv(tmp_path / "search" / "small.trials.csv", keep_default_na=False)
    assert written["val_map"].tolist() == found.trials["val_map"].tolist()
    again = search.search(plan(), root=tmp_path)
    assert len(trained) == 5 and again.chosen == found.chosen
    assert [run.path for run in again.runs] == [run.path for run in found.runs]


def test_validation_alone_chooses(plan, tmp_path, monkeypatch):
    """No test result is read before the choice."""
    seen = []
    summary = study.Run.summary.fget

    class Watched(dict):
        def __getitem__(self, name):
            seen.append(name)
            return super().__getitem__(name)

    monkeypatch.setattr(study.Run, "summary", property(lambda run: Watched(summary(run))))
    search.search(plan(), root=tmp_path)
    assert set(seen) == {"val_map"}


def test_the_preset_trains_the_same(plan, tmp_path):
    found = search.search(plan(), root=tmp_path)
    fields = space.read_preset(found.preset)
    assert found.preset == tmp_path / "search" / "small.best.yaml"
    assert "4 trials" in found.preset.read_text() and f"{found.val_map:.2f}" in found.preset.read_text()
    assert fields["tuned_on"] == "val, clean"
    command = [
        "train",
        "--preset",
        str(found.preset),
        "--seed",
        "0",
        "--seed",
        "1",
        "--runs-dir",
        str(tmp_path),
    ]
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert all(str(run.path) in result.output for run in found.runs) and sorted(tmp_path.iterdir()) == before


def test_options_win_over_the_preset(tmp_path, fixed):
    file = tmp_path / "preset.yaml"
    space.write_preset(file, fixed | {"params": {"alpha": 0.4}, "lr": 0.5}, "made by hand")

    def explain(*options):
        result = CliRunner().invoke(main, ["train", "--preset", str(file), "--explain", *options])
        assert result.exit_code == 0, result.output
        return {
            line.split()[0]: line.split()[1] for line in result.output.splitlines() if len(line.split()) > 1
        }

    assert explain()["params.alpha"] == "0.4" and explain()["lr"] == "0.5" and explain()["method"] == '"em"'
    other = explain("-p", "alpha", "0.2", "--lr", "0.1")
    assert (other["params.alpha"], other["lr"]) == ("0.2", "0.1")
    shown = CliRunner().invoke(main, ["train", "--preset", str(file), "--explain", "--lr", "0.1"]).output
    origins = {line.split()[0]: line.split("  ")[-1].strip() for line in shown.splitlines() if "  " in line}
    assert origins["params.alpha"] == origins["method"] == f"preset {file}" and origins["lr"] == "given"
    gr = explain("--method", "gr")
    assert gr["method"] == '"gr"' and gr["lr"] == "0.5"
    file.write_text("leraning_rate: 3\n")
    wrong = CliRunner().invoke(main, ["train", "--preset", str(file)])
    assert wrong.exit_code == 2 and "leraning_rate" in wrong.output
    assert CliRunner().invoke(main, ["train", "--preset", str(tmp_path / "none.yaml")]).exit_code == 2


def test_seeds_of_a_trial_are_averaged(plan, tmp_path):
    found = search.search(plan(seeds=2, space={"lr": [1e-2]}), root=tmp_path)
    assert found.val_map == pytest.approx(sum(run.summary["val_map"] for run in found.runs) / 2, abs=1e-12)
    (trial,) = trials(tmp_path)
    history = [value for run in found.runs for value in run.history["val_map"][1:]]
    assert trial.intermediate_values == pytest.approx(dict(enumerate(history, start=1)))


def test_tpe_draws_another_value_in_each_trial(plan, tmp_path):
    ranges = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "batch_size": [8, 16]}
    wanted = plan(sampler="tpe", space=ranges, trials=5)
    search.search(wanted, root=tmp_path / "one")
    drawn = [t.params["lr"] for t in trials(tmp_path / "one")]
    assert len(set(drawn)) == 5 and all(1e-4 <= lr <= 1e-2 for lr in drawn)
    search.search(wanted, root=tmp_path / "two")
    assert [t.params for t in trials(tmp_path / "two")] == [t.params for t in trials(tmp_path / "one")]


def test_pruned(plan, tmp_path, monkeypatch):
    """The pruner sees validation mAP by epoch; what it stops is counted, not chosen, and leaves no files."""
    seen = {}

    class Pruner(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            seen[trial.number] = dict(trial.intermediate_values)
            return trial.number in (0, 2)

    monkeypatch.setattr(optuna.pruners, "MedianPruner", Pruner)
    found = search.search(plan(pruner="median"), root=tmp_path)
    assert found.counts == {"complete": 2, "pruned": 2, "failed": 0}
    assert all(list(values) == [1] for values in seen.values()) and len(seen) == 4
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("folder")]) == 3
    assert not list((tmp_path / "partial").iterdir())
    assert [t.state.name for t in trials(tmp_path)] == ["PRUNED", "COMPLETE", "PRUNED", "COMPLETE"]


def test_a_run_that_was_there_tells_the_pruner_its_history(plan, tmp_path, fixed):
    search.search(plan(), root=tmp_path)
    (tmp_path / "search" / "small.journal").unlink()
    search.search(plan(pruner="median"), root=tmp_path)
    assert all(sorted(t.intermediate_values) == [1, 2] for t in trials(tmp_path))


def test_a_failed_trial_is_counted_with_its_reason(plan, tmp_path):
    found = search.search(plan(space={"lr": [1e30, 1e-2]}), root=tmp_path)
    assert found.counts == {"complete": 1, "pruned": 0, "failed": 1} and found.chosen == {"lr": 1e-2}
    (failed,) = [t for t in trials(tmp_path) if t.state.name == "FAIL"]
    assert (
        failed.user_attrs["error"].startswith("FloatingPointError: ")
        and "1e+30" in failed.user_attrs["error"]
    )
    with pytest.raises(ValueError, match=r"none of 1 trials.*FloatingPointError"):
        search.search(plan(name="bad", space={"lr": [1e30]}), root=tmp_path)


def test_another_search_of_the_same_name_is_refused(plan, tmp_path, fixed):
    search.search(plan(trials=1), root=tmp_path)
    for change, what in (
        ({"space": GRID | {"lr": [0.5]}}, "space"),
        ({"experiment": fixed | {"epochs": 1}}, "experiment"),
        ({"seeds": 2}, "seeds"),
    ):
        with pytest.raises(ValueError, match=f"another {what}:.*delete .*small.journal;"):
            search.search(plan(**change), root=tmp_path)
    assert search.search(plan(trials=2, test_seeds=1), root=tmp_path).counts["complete"] == 2


def test_two_at_once_on_one_journal_are_refused(plan, tmp_path):
    with (
        FileLock(tmp_path / ".locks" / "search-small.lock"),
        pytest.raises(ValueError, match="another process"),
    ):
        search.search(plan(), root=tmp_path)


def test_loses_a_worker(plan, tmp_path, monkeypatch):
    """The other workers continue, and the same search repeats what was lost."""

    def lose_the_second(function, items, executor=None):
        for n, item in enumerate(items):
            yield n, OSError("a worker is gone") if n == 1 else function(item)

    with monkeypatch.context() as patch:
        patch.setattr(study, "outcomes", lose_the_second)
        with pytest.raises(RuntimeError, match=r"1 of 4 trials were lost .*a worker is gone"):
            search.search(plan(), root=tmp_path)
    assert [t.state.name for t in trials(tmp_path)].count("COMPLETE") == 3
    assert search.search(plan(), root=tmp_path).counts["complete"] == 4


# --- interrupted ---


def complete(root, name="small"):
    return sorted(json.dumps(t.params) for t in trials(root, name) if t.state.name == "COMPLETE")


@pytest.mark.parametrize("sampler, tried", [("grid", GRID), ("tpe", {"lr": {"low": 1e-3, "high": 1e-2}})])
def test_goes_on_after_an_interruption(plan, tmp_path, monkeypatch, sampler, tried):
    wanted = plan(sampler=sampler, space=tried, trials=4)
    fit = train.fit
    with monkeypatch.context() as patch:

        def stop(*args, **options):
            if len([path for path in tmp_path.iterdir() if path.name.startswith("folder")]) == 2:
                raise KeyboardInterrupt
            return fit(*args, **options)

        patch.setattr(train, "fit", stop)
        with pytest.raises(KeyboardInterrupt):
            search.search(wanted, root=tmp_path)
    interrupted = [t for t in trials(tmp_path) if t.state.name == "FAIL"]
    assert len(complete(tmp_path)) == 2 and len(interrupted) == 1
    found = search.search(wanted, root=tmp_path)
    assert found.counts == {"complete": 4, "pruned": 0, "failed": 0}
    repeated = [t for t in trials(tmp_path) if t.system_attrs.get("failed_trial") == interrupted[0].number]
    assert [t.params for t in repeated] == [interrupted[0].params]
    assert len(set(complete(tmp_path))) == 4
    search.search(wanted, root=tmp_path)
    assert len(trials(tmp_path)) == 5


def test_a_search_that_went_on_makes_the_trials_of_one_that_was_not_interrupted(plan, tmp_path, monkeypatch):
    ranges = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "batch_size": [8, 16]}
    wanted, fit, begun = plan(sampler="tpe", space=ranges, trials=5), train.fit, []
    with monkeypatch.context() as patch:

        def stop(*args, **options):
            begun.append(1)
            if len(begun) == 2:
                raise KeyboardInterrupt
            return fit(*args, **options)

        patch.setattr(train, "fit", stop)
        with pytest.raises(KeyboardInterrupt):
            search.search(wanted, root=tmp_path / "one")
    one = search.search(wanted, root=tmp_path / "one")
    two = search.search(wanted, root=tmp_path / "two")
    columns = ["lr", "batch_size", "val_map"]
    assert one.trials[columns].equals(two.trials[columns]) and len(one.trials) == 5


def test_without_a_terminal_a_line_tells_how_far_it_is(plan, tmp_path, capsys):
    search.search(plan(trials=2), root=tmp_path)
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("search small")] == [
        "search small: 1 of 2 trials",
        "search small: 2 of 2 trials",
    ]


def test_a_trial_left_running_is_repeated(plan, tmp_path):
    """The state that kill -9 leaves: started, never finished."""
    (tmp_path / "search").mkdir()
    kept = study._open(plan(), str(tmp_path / "search" / "small.journal"))
    plan().suggest(kept.ask())
    assert [t.state.name for t in kept.trials] == ["RUNNING"]
    search.search(plan(), root=tmp_path)
    assert len(set(complete(tmp_path))) == 4
    assert [t.system_attrs["failed_trial"] for t in trials(tmp_path) if "failed_trial" in t.system_attrs] == [
        0
    ]


def test_database(plan, tmp_path, trained, monkeypatch):
    url = f"sqlite:///{tmp_path}/base.db"
    found = search.search(plan(trials=2), root=tmp_path / "one", storage=url)
    assert found.counts["complete"] == 2
    before = len(trained)
    more = search.search(plan(test_seeds=1), root=tmp_path / "two", storage=url)
    assert more.counts["complete"] == 4 and len(trained) <= before + 3
    assert not list((tmp_path / "two" / "search").glob("*.journal"))


def test_machines_that_share_a_database_do_not_exceed_the_trials(plan, tmp_path, monkeypatch):
    """The other machine finishes in the meantime."""
    url = f"sqlite:///{tmp_path}/base.db"
    other = functools.partial(study._trial, space=plan(), storage=url, root=tmp_path)
    mine = study._trial

    def both(number, **options):
        mine(number, **options)
        other(number + 100)

    monkeypatch.setattr(study, "_trial", both)
    found = search.search(plan(), root=tmp_path, storage=url)
    assert found.counts == {"complete": 4, "pruned": 0, "failed": 0}


def test_a_silent_machine_is_given_up(plan, tmp_path, monkeypatch):
    """Its trial is repeated after it has been silent for a while, and not before."""
    url = f"sqlite:///{tmp_path}/base.db"
    monkeypatch.setattr(study, "HEARTBEAT", 1)
    with pytest.warns(UserWarning, match="Heartbeat"):
        kept = study._open(plan(), url)
        left = kept.ask()
        plan().suggest(left)
        kept._storage.record_heartbeat(left._trial_id)  # as `optimize` does
    monkeypatch.setattr(study, "POLL", 0.1)
    found = search.search(plan(), root=tmp_path, storage=url)
    assert found.counts["complete"] == 4


# --- the command ---


@pytest.fixture
def file(tmp_path, fixed):
    content = {"experiment": fixed, "space": GRID, "sampler": "grid", "test_seeds": 2}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "mine.yaml"


def test_command(file, tmp_path, pictures):
    options = ["--runs-dir", str(tmp_path / "runs"), "-p", "root", str(pictures), "-p", "epochs", "1"]
    options += ["--name", "short"]
    result = CliRunner().invoke(main, ["search", str(file), "--trials", "3", *options])
    assert result.exit_code == 0, result.output
    preset = f"{tmp_path}/runs/search/short.best.yaml"
    shown = (
        "short: 3 trials (3 complete",
        "short.trials.csv",
        "clean labels",
        "test mAP",
        "±",
    )
    for text in (*shown, f"spml train --preset {preset}"):
        assert text in result.output
    assert "trial lr params.alpha validation mAP" in " ".join(result.output.split())
    assert space.read_preset(tmp_path / "runs" / "search" / "short.best.yaml")["epochs"] == 1


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["nowhere"], "digits-gr"),
        (["FILE", "--name", "a b"], "name is 'a b'"),
        (["FILE", "-p", "alpha", "0.3"], "'alpha' is a parameter of em: write 'params.alpha'"),
        (["FILE", "-p", "epoch", "3"], "'epoch'.*epochs"),
        (["FILE", "-p", "epochs", "0"], "epochs"),
        (["FILE", "-p", "root", "/nowhere"], "nowhere"),
        (["FILE", "--storage", "base.db"], "URL.*'base.db'"),
        (["FILE", "--storage", "nonsense://x"], "cannot open the database"),
        (["FILE", "--storage", "no such thing://x"], "cannot open the database"),
    ],
)
def test_wrong_use_is_reported(file, tmp_path, arguments, text):
    arguments = [str(file) if word == "FILE" else word for word in arguments]
    result = CliRunner().invoke(main, ["search", *arguments, "--runs-dir", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert re.search(text, result.output, re.DOTALL)


def test_help_is_instant():
    code = (
        "import sys; from click.testing import CliRunner; from spml_core.cli import main; "
        "assert CliRunner().invoke(main, ['search', '--help']).exit_code == 0; "
        "assert not {'torch', 'optuna', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_killed_with_its_workers_goes_on(file, tmp_path):
    """After kill -9 of the search, its two workers end by themselves, and the same command finishes the grid."""
    root = tmp_path / "runs"
    command = [sys.executable, "-c", "from spml_core.cli import main; main()", "search", str(file), "--jobs", "2",
               "--runs-dir", str(root), "-p", "epochs", "30"]  # fmt: skip
    with subprocess.Popen(command) as process:
        while not list(root.glob("partial/*/checkpoints/main/epoch-*.pt")):
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert [t.state.name for t in trials(root, "mine")].count("RUNNING") in (1, 2)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "4 complete" in done.stdout
    assert len(set(complete(root, "mine"))) == 4


def test_pool_is_the_same_as_here(plan, tmp_path):
    """This holds for any executor; threads make the test fast."""
    here = search.search(plan(), root=tmp_path / "here")
    with ThreadPoolExecutor(1) as pool:
        there = search.search(plan(), pool, tmp_path / "there")
    assert there.chosen == here.chosen and there.val_map == here.val_map
