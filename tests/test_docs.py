"""Everything the documents show is run: each command, Python snippet and file, in small, and in this process.

A new `spml` command in a document is run as it is, with the options of `SMALL`. Commands that need other words are in
`SPELLED`; those that cannot run here, and all other programs, are in `EXCEPTIONS`, with the reason.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from miniatures import picture, write_coco, write_folder, write_voc

from spml_core import data, losses, methods, models
from spml_core.cli import main
from spml_core.headless import planning, runner
from spml_core.methods import LossMethod, Step, build, register, registry
from spml_core.methods.checks import CHECKS
from spml_core.runs import Experiment, run

PROJECT = Path(__file__).parent.parent
PAGES = ["README.md", "data/README.md", *(f"docs/{file.name}" for file in (PROJECT / "docs").glob("*.md"))]
PROGRAMS = ("spml", "make", "python -m", "torchrun", "fabric run", "dask", "conda", "pip")
DIGITS = {"train": 60, "val": 30, "test": 30}
FEW_DIGITS = [word for name, number in DIGITS.items() for word in ("-d", name, str(number))]
SMALL = {  # options that keep a command to seconds
    "spml train": ["--epochs", "1"],
    "spml search": ["--trials", "1", "-p", "epochs", "1"],
    "spml predict": ["--runs-dir", "one"],
    "spml export": ["--runs-dir", "one"],
}
FOLDERS = {  # of the documents; relative ones exist in the test's folder
    "/data/voc2012": "VOC",
    "DIR": "VOC",
    "VOCdevkit": "VOC",
    "/shared/": "path/to/",
}
SPELLED = {
    "spml data labels NAME --output FILE": "spml data labels digits --output named.csv",
    "spml data labels --protocol cole2021": "spml data labels digits --protocol cole2021",
    "spml data check NAME --root FOLDER": "spml data check folder --root my_photos",
    "spml data prepare NAME --root FOLDER": "spml data prepare folder --root my_photos",
    "spml train -d size 448": "spml train --dataset folder --root my_photos -d size 448 --explain",
    "spml search FILE.yaml": "spml search my_search.yaml",
    "spml COMMAND --help": "spml train --help",
    "spml methods check MODULE:FUNCTION": "spml methods check spml_core.losses:an",
    "spml methods check mine": "spml methods check an",
}
A_NAME = "a name in a sentence"
EXCEPTIONS = {
    **dict.fromkeys(
        [
            "spml",
            "spml train",
            "spml predict",
            "spml export",
            "spml search",
            "spml data check",
            "spml train --preset",
        ],
        A_NAME,
    ),
    **dict.fromkeys(["torchrun", "fabric run", "dask scheduler"], A_NAME),
    "spml search gr": "the papers' grid on VOC takes a GPU; tests/test_search.py reads it",
    "spml figures --summary": "needs executed notebooks; tests/test_summary.py has what they leave",
    "postgresql": "needs a server; tests/test_search.py has an SQLite file",
    "spml train --manifest voc-published.csv": "trains a ResNet-50; tests/test_observe.py trains from a manifest",
    "spml train --method gr -o observe": "needs the manifest of another command; tests/test_label_draws.py reads one",
    **dict.fromkeys(
        ["spml data suggest", "--merge suggestions.csv", "--manifest more.csv"],
        "needs a run and its answers: tests/test_suggestions.py",
    ),
    "torchrun --nproc": "several processes: tests/test_ddp.py",
    "dask ": "several processes: tests/test_executors.py",
    "pip install": "changes the environment: tests/test_setup.py",
    "conda ": "changes the environment: tests/test_setup.py",
    "make": "starts this test; its targets are compared with the Makefile below",
    "python -m": "minutes; that the modules are there and take the options is tested below",
}
ONLY_TORCH = """
import sys
allowed = {"torch", "numpy", "spml_core"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        caller = sys._getframe(1)
        while caller and "importlib" in caller.f_code.co_filename:
            caller = caller.f_back
        top = name.partition(".")[0]
        asking = "" if caller is None else caller.f_globals.get("__name__", "").partition(".")[0]
        ours = asking in ("spml_core", "__main__")
        if ours and top not in allowed and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Refuse())
"""


def blocks(page: str, language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (PROJECT / page).read_text(), re.M | re.S)
    return [text for kind, text in found if kind == language]


def commands_of(page: str) -> list[str]:
    """Return everything that begins with a program's name, in blocks or between backticks, without comments."""
    prose = re.sub(r"^```.*?^```$", "", (PROJECT / page).read_text(), flags=re.M | re.S)
    lines = re.sub(r" *\\\n *", " ", "\n".join(blocks(page))).splitlines()
    lines = [re.split(r"\s+# |\s{3,}(?=\S)", line.strip())[0] for line in lines]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    parts = [part.strip().replace(".venv/bin/", "") for each in lines + spans for part in each.split(" && ")]
    return [part for part in parts if re.match(rf"({'|'.join(PROGRAMS)})( |$)", part)]


COMMANDS = sorted({command for page in PAGES for command in commands_of(page)})


def exception(command: str) -> str | None:
    """Return the entry of `EXCEPTIONS` that matches a command: its name, its whole text, its start, or a word in it."""
    for key in EXCEPTIONS:
        whole = EXCEPTIONS[key] == A_NAME
        if command == key or (not whole and (command.startswith(key) or f" {key}" in command)):
            return key
    return None


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a reader's folder: the project's notebooks and searches, and small data sets where the documents have
    them, and a run in `one`."""
    home = tmp_path_factory.mktemp("reader")
    for name in ("notebooks", "benchmarks"):
        (home / name).symlink_to(PROJECT / name)
    write_folder(home / "my_photos", 64)
    picture(
        home / "my_photos" / "images" / "rare.jpg", 1
    )  # without a label if `min_images` leaves out its class
    with (home / "my_photos" / "labels.csv").open("a") as file:
        file.write("images/rare.jpg,train,rare\n")
    (home / "path" / "to").mkdir(parents=True)
    for name in ("corel5k", "voc_subset"):
        (home / "path" / "to" / name).symlink_to(home / "my_photos")
    rows = {f"2008_{n:06d}": {"cat": 1, "dog": (-1) ** n} for n in range(40)}
    train = dict(list(rows.items())[:30])
    write_voc(home / "VOC", {"train": train, "val": {k: v for k, v in rows.items() if k not in train}})
    np.save(home / "formatted_train_images.npy", np.array([*train]))
    observed = np.zeros((len(train), 20))
    observed[:, 7] = 1  # cat
    np.save(home / "formatted_train_labels_obs.npy", observed)
    write_coco(home / "coco", {"train": {n: ["cat"] for n in range(1, 21)}, "val": {99: ["dog"]}})
    options = {"root": str(home / "my_photos"), "data": {"size": 32}, "epochs": 1}
    run(Experiment(dataset="folder", mode="end_to_end", backbone="digits_cnn", **options), home / "one")
    (yaml,) = blocks("docs/search.md", "yaml")
    (home / "my_search.yaml").write_text(yaml)
    return home


@pytest.fixture
def small(reader, monkeypatch):
    """Make everything in the reader's folder fast: few digits, and no notebook or server is started."""
    monkeypatch.chdir(reader)
    monkeypatch.setattr(runner, "_execute", lambda runs, jobs: [planning.Result(run, "done") for run in runs])
    monkeypatch.setattr(os, "execve", lambda program, words, environment: None)
    monkeypatch.setattr("spml_core.methods.checks.SLOWEST", 1000)  # other tests run at the same time
    return reader


def typed(command: str) -> list[str]:
    command = SPELLED.get(command, command).replace("...", "")
    words = shlex.split(re.sub(r"--jobs \d+", "--jobs 1", command))
    for documented, here in FOLDERS.items():
        if documented.endswith("/"):
            words = [w.replace(documented, here) for w in words]
        words = [here if w == documented else w for w in words]
    if "--help" in words or "--explain" in words:
        return words
    words += SMALL.get(" ".join(words[:2]), [])
    if words[1] == "train" and "--dataset" not in words:
        words += FEW_DIGITS
    if words[1] == "search":
        options = DIGITS if "digits-gr" in words else {"min_images": 20}
        words += [w for name, number in options.items() for w in ("-p", f"data.{name}", str(number))]
    return words


@pytest.mark.parametrize("command", [each for each in COMMANDS if not exception(each)])
def test_a_command_of_the_documents_runs(command, small):
    words = typed(command)
    assert words[0] == "spml", f"{command!r} is no command of spml: say in EXCEPTIONS why it is not run"
    for number, word in enumerate(words):
        if words[number - 1] == "--output":
            (small / word).unlink(missing_ok=True)
            (small / word).parent.mkdir(parents=True, exist_ok=True)
    result = CliRunner().invoke(main, words[1:])
    # 1 of `data check`: the miniature is not fit for training, and the report says so.
    accepted = (0, 1) if words[1:3] == ["data", "check"] else (0,)
    assert result.exit_code in accepted and isinstance(result.exception, SystemExit | None), (
        f"{shlex.join(words)}\n{result.output}\n{result.exception!r}"
    )


def test_no_exception_outlives_its_command():
    assert {exception(command) for command in COMMANDS} >= EXCEPTIONS.keys()
    assert SPELLED.keys() <= set(COMMANDS)


def test_the_targets_of_make_exist():
    targets = re.findall(r"^(\w+):.*##", (PROJECT / "Makefile").read_text(), re.M)
    for command in (each for each in COMMANDS if each.startswith("make")):
        assert shlex.split(command)[1:2] in [[], *([target] for target in targets)], command


def test_the_benchmarks_exist_and_take_the_options(small):
    from benchmarks import photographs

    for command in (each for each in COMMANDS if each.startswith("python -m benchmarks")):
        _, _, module, *options = shlex.split(command)
        assert (PROJECT / f"{module.replace('.', '/')}.py").is_file(), command
        if module == "benchmarks.photographs":
            photographs.main.make_context(module, options)


def test_the_reference_of_the_command_line_is_that_of_the_program():
    """Case 60."""
    from benchmarks import commands

    renew = "renew it: python -m benchmarks.commands > docs/commands.md"
    assert (PROJECT / "docs/commands.md").read_text() == commands.page(), renew


def python_of(page: str) -> str:
    return "\n".join(blocks(page, "python"))


def execute(code: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_training_loop_of_ones_own_needs_torch_and_numpy_only(tmp_path):
    printed = execute(ONLY_TORCH + python_of("docs/training-loop.md"), tmp_path)
    losses = [float(line.split()[-1]) for line in printed.splitlines()]
    assert len(losses) == 10 and losses[-1] < losses[0]


@pytest.mark.parametrize("room", ["runs", "explore"])
def test_a_missing_extra_is_named_by_the_import_that_needs_it(room, tmp_path):
    code = ONLY_TORCH + (
        f"try:\n    import spml_core.{room}\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    assert "pip install --constraint constraints.txt '.[notebooks]'" in execute(code, tmp_path)


SNIPPETS = {  # page: what is replaced, so that it is small and on this machine
    "README.md": {"seed=0)": f"seed=0, epochs=1, data={DIGITS})"},
    "docs/notebooks.md": {
        "seeds=[0, 1, 2])": f"seeds=[0, 1, 2], epochs=1, data={DIGITS})",
        "seed=0)": f"seed=0, epochs=1, data={DIGITS})",
    },
    "docs/label-draws.md": {
        'truth("digits")': f'truth("digits", **{DIGITS})',
        "data=options)": f"data=options | {DIGITS}, epochs=1)",
        "observe=easiest)": f"observe=easiest, epochs=1, data={DIGITS})",
    },
    "docs/suggestions.md": {"seed=0)": f"seed=0, epochs=1, data={DIGITS})", "folds=5": "folds=2"},
    "docs/predictions.md": {'find("folder-gr")': 'find("folder-gr", "one")'},
    "docs/selection.md": {"epochs=3)": f"epochs=1, data={DIGITS})"},
    "docs/clusters.md": {
        "seed=seed)": f"seed=seed, epochs=1, data={DIGITS})",
        "range(3)": "range(1)",
        "processes(2)": "processes(1)",
        'Client("tcp://MACHINE:8786")': "Client(processes=False, dashboard_address=None)",
        'AutoExecutor(folder="runs/jobs")': 'AutoExecutor(folder="runs/jobs", cluster="debug")',
    },
}
ELSEWHERE = {"docs/training-loop.md", "docs/losses.md"}  # the tests above and below


@pytest.mark.parametrize("page", sorted({page for page in PAGES if blocks(page, "python")} - ELSEWHERE))
def test_the_python_of_a_page_runs(page, small, capsys):
    code = python_of(page)
    for documented, here in SNIPPETS[page].items():
        assert documented in code, f"{page} has no longer {documented!r}"
        code = code.replace(documented, here)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})


def test_a_loss_of_ones_own_is_added_as_the_page_says(monkeypatch):
    function, groups, method = blocks("docs/losses.md", "python")
    scope = {"losses": losses, "register": register, "LossMethod": LossMethod}
    exec(function, scope)
    monkeypatch.setattr(losses, "mine", scope["mine"], raising=False)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    exec(method, scope)
    value = build("mine", 4)(torch.zeros(2, 4), torch.eye(2, 4), Step(1, 1))
    expected = (2 * np.log(2) + 6 * 0.1 * 0.25) / 8
    assert value.item() == pytest.approx(expected, rel=1e-6)
    scope |= {"z": torch.zeros(2, 4), "y": torch.eye(2, 4)}
    exec(groups, scope)
    assert scope["entry"].mean().item() == pytest.approx(
        np.log(2), rel=1e-6
    )  # the mean over the observed positives


def table_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first line begins with `heading`."""
    _, _, rest = (PROJECT / page).read_text().partition(f"| {heading} |")
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_on_losses_has_every_method_check_and_head():
    rows = {name for row in table_of("docs/losses.md", "name") for name in re.findall(r"`(\w+)`", row[0])}
    assert rows == set(methods.names()), "the table of docs/losses.md needs one entry for each method"
    assert [name for row in table_of("docs/losses.md", "check") for name in row[0].split(", ")] == [*CHECKS]
    assert {row[0].strip("`") for row in table_of("docs/losses.md", "head")} == set(models.HEADS)


@pytest.mark.parametrize("name", methods.names())
def test_the_page_on_losses_names_the_deviations_of(name):
    cells = [row[3] for row in table_of("docs/losses.md", "name") if f"`{name}`" in row[0]]
    assert len(cells) == 1, f"the table of docs/losses.md needs one row for {name}"
    (cell,) = cells
    if "¹" in cell:
        assert methods.defaults(name)["log_floor"] == 0, "`log_floor=1e-5` is promised"
    said = CliRunner().invoke(main, ["methods", name])
    assert said.exit_code == 0
    deviates = [
        text for text in re.findall(r"(?i)\bdeviations?: ([^.]*)", said.output) if not text.startswith("none")
    ]
    if cell in ("none", "none found"):
        assert not deviates


def test_the_defaults_are_those_published_for_voc_except_as_the_page_says():
    sentence = re.search(
        r"published for VOC,\nexcept those of (.*?)\. ", (PROJECT / "docs/losses.md").read_text()
    )
    different = set()
    for name in methods.names():
        presets = methods.get(name).presets
        published = presets.params["voc2012"] if presets else {}
        keys = {key for key, value in published.items() if methods.defaults(name).get(key) != value}
        different |= keys & {"expected_positives"} or ({name} if keys else set())
    assert set(re.findall(r"`(\w+)`", sentence[1])) == different


def test_a_training_loop_knows_which_methods_keep_something_for_each_example():
    listed = re.search(
        r"each training example \((.*?)\)", (PROJECT / "docs/training-loop.md").read_text(), re.S
    )
    keeping = set()
    for name in methods.names():
        try:
            build(name, 4, **dict.fromkeys(methods.get(name).requires, 1.5))
        except ValueError as error:
            assert "give num_examples" in str(error)
            keeping.add(name)
    assert set(re.findall(r"`(\w+)`", listed[1])) == keeping


def test_the_label_files_of_the_page_are_read(tmp_path):
    """Case 59: without options, as a reader would do it."""
    files = [text for text in blocks("data/README.md") if text.startswith("image,split")]
    assert len(files) == 2
    for n, text in enumerate(files):
        for name in re.findall(r"^images/\S+?\.jpg", text, re.M):
            picture(tmp_path / str(n) / name)
        (tmp_path / str(n) / "labels.csv").write_text(text)
        listing = data.read("folder", root=tmp_path / str(n))
        assert not listing.problems and set(listing.classes) == {"sky", "sea", "tiger"}
    (lines,) = (text for text in blocks("data/README.md") if "file_name" in text)
    for n in (1, 2):
        picture(tmp_path / "lists" / f"{n}.jpg")
    (tmp_path / "lists" / "metadata.jsonl").write_text(lines)
    listing = data.read("folder", root=tmp_path / "lists")
    assert not listing.problems and set(listing.classes) == {"sky", "sea", "tiger"}
