"""`spml figures`, on tiny notebooks in a project of their own.

Starting a kernel takes seconds, so there are few starts, with many checks of each.
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from spml_core import __version__, paths
from spml_core.cli import main
from spml_core.headless import contract, planning, runner
from spml_core.headless.contract import Notebook, NotebookError, find

PARAMETERS = """
runs_dir: str = "runs"
figures_dir: str = "figures"
lr: float = 1e-3  # learning rate ε
seeds: list[int] = [0, 1]
"""
# Writes and shows a figure of its own name, without the price of drawing one.
SAVE = """
from pathlib import Path
from IPython.display import display

def save_figure(fig, name, show=True, suffixes=(".pdf", ".png")):
    Path(figures_dir).mkdir(exist_ok=True)
    for suffix in suffixes:
        (Path(figures_dir) / (name + suffix)).write_bytes(name.encode())
    if show:
        display({"image/png": "iVBORw0KGgo="}, raw=True)

def save_table(table, name, show=True):
    save_figure(None, name, False, (".csv", ".tex"))
    if show:
        display({"text/html": "<table></table>"}, raw=True)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return an empty project, which is the working directory."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project, name, *code, declare=PARAMETERS, kernel="py39_new"):
    cells = [
        new_markdown_cell(f"# {name} · Is it so?"),
        new_code_cell(declare, metadata={"tags": ["parameters"]}),
    ]
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}}
    path = project / "notebooks" / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells + [new_code_cell(c) for c in code], metadata=metadata), path)
    return path


def spml(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert not isinstance(result.exception, Exception), result.exception  # SystemExit is the only one wanted
    return result


def declared(project, line):
    return Notebook(write(project, "01-one", declare=line)).parameters


# --- parameters ---


@pytest.mark.parametrize(
    "kind, value, expected",
    [
        ("bool = True", "false", False),
        ("bool = True", np.bool_(False), False),
        ("int = 1", "007", 7),
        ("int = 1", "-3", -3),
        ("int = 1", np.int64(7), 7),
        ('str = "a"', "007", "007"),
        ('str = "a"', "none", "none"),
        ('str = "a"', "[0, 1]", "[0, 1]"),
        ('str = "a"', Path("runs") / "x", "runs/x"),
        ("float = 1.0", "1e-4", 1e-4),
        ("float = 1.0", np.float32(0.5), 0.5),
        ("list[int] = []", "[0,1]", [0, 1]),
        ("list[str] = []", "[an, gr]", ["an", "gr"]),
        ("list[str] = []", "['an', 'gr']", ["an", "gr"]),
        ("dict = {}", "{gr: {q2: 1e-3, w: [0, 2]}}", {"gr": {"q2": 1e-3, "w": [0, 2]}}),
        ("dict = {}", "{'w': None, 'b': (0, True)}", {"w": None, "b": [0, True]}),
        ("list[int] = []", (0, np.int64(1)), [0, 1]),
        ("list[float] = []", np.array([0.5, 1.0]), [0.5, 1.0]),
        ("tuple[float, float] = (0, 1)", "[0, 2]", [0.0, 2.0]),
        ("int | None = 3", "none", None),
        ("int | None = 3", "NULL", None),
        ("int | None = None", "4", 4),
        ("Optional[list[str]] = None", '["a"]', ["a"]),
        ('Literal["paper", "code"] = "code"', "paper", "paper"),
        ("dict[str, float] = {}", '{"w": 2}', {"w": 2.0}),
    ],
)
def test_a_value_becomes_the_declared_type(project, kind, value, expected):
    result = declared(project, f"x: {kind}")["x"].coerce(value)
    assert result == expected and type(result) is type(expected)
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    "kind, value",
    [
        ("int = 1", "1.5"),
        ("int = 1", 2.0),
        ("int = 1", True),
        ("int = 1", "none"),
        ("float = 1.0", "true"),
        ("float = 1.0", "nan"),
        ("float = 1.0", float("inf")),
        ("bool = True", "maybe"),
        ("bool = True", 2),
        ('str = "a"', 7),
        ("list[int] = []", "0,1"),
        ("list[int] = []", '["0"]'),
        ("list[int] = []", "[0.5]"),
        ("Literal['paper', 'code'] = 'code'", "papre"),
        ("int = 1", object()),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_it(project, kind, value):
    write(project, "01-one", declare=f"x: {kind}")
    with pytest.raises(NotebookError) as caught:
        runner.run_notebooks(["01"], {"x": value})
    for part in ("'x'", "01-one", repr(value), kind.split(" =")[0]):
        assert part in str(caught.value)
    assert sorted(os.listdir(project)) == ["notebooks"]


def test_parameters_carry_type_default_and_help(project):
    found = Notebook(write(project, "01-one")).parameters
    assert list(found) == ["runs_dir", "figures_dir", "lr", "seeds"]
    assert (found["lr"].type, found["lr"].default, found["lr"].help) == ("float", 1e-3, "learning rate ε")
    assert found["seeds"].default == [0, 1] and found["seeds"].help == ""


@pytest.mark.parametrize(
    "line", ["x = 1", "x: int", "x: int = len('a')", "x: Path = 1", "x: int = 1.5", "import os", "x: int = ("]
)
def test_anything_but_annotated_literals_is_refused(project, line):
    with pytest.raises(NotebookError, match=r"01-one.*parameters cell"):
        declared(project, line)


@pytest.mark.parametrize("tags", [[], ["parameters", "parameters"]])
def test_exactly_one_parameters_cell(project, tags):
    path = project / "notebooks" / "01-one.ipynb"
    nbformat.write(
        new_notebook(cells=[new_code_cell("x: int = 1", metadata={"tags": [t]}) for t in tags]), path
    )
    with pytest.raises(NotebookError, match=f'"parameters", not {len(tags)}'):
        assert Notebook(path).parameters


def test_an_unknown_parameter_stops_everything_before_any_work(project):
    write(project, "01-one", "raise SystemExit")
    result = spml("figures", "01", "-p", "learning_rate", "0.3")
    assert result.exit_code == 2
    assert "'learning_rate' is not declared by 01-one; did you mean 'lr'?" in result.output
    assert "declared: figures_dir, lr, runs_dir, seeds" in result.output
    assert "did you mean 'seeds'" in spml("figures", "-p", "seed", "3").output
    assert spml("figures", "-p", "lr", "1", "-p", "lr", "2").exit_code == 2
    assert sorted(os.listdir(project)) == ["notebooks"]


# --- notebooks and their promises ---


def test_promises_are_the_literal_names(project):
    path = write(
        project,
        "01-one",
        'def draw(k):\n    save_figure(fig, "01a-x", data=d)\nsave_figure(fig, f"01-{k}")',
        'save_table(t, "01-t")\nfigures.save_figure(fig, name="01b-y", source="GR Fig 1; GR Fig 2a/2b")',
        'save_figure(fig, "01a-x")\nsave("01c-z")',
    )
    notebook = Notebook(path)
    assert notebook.promised("figure") == ("01a-x", "01b-y") and notebook.promised("table") == ("01-t",)
    assert [promise.cell for promise in notebook.promises] == [2, 3, 3]
    assert notebook.promises[1].source == ("GR Fig 1", "GR Fig 2a/2b") and notebook.promises[0].source == ()


def paths_of(notebooks):
    return [notebook.path for notebook in notebooks]


def test_notebooks_go_by_number_name_and_path(project):
    one, two = write(project, "01-one"), write(project, "06-k-hat-assumptions")
    assert paths_of(find()) == [one, two]
    for name in (
        "06",
        "06-k-hat-assumptions",
        "06-k-hat-assumptions.ipynb",
        "notebooks/06-k-hat-assumptions.ipynb",
    ):
        assert paths_of(find([name, name])) == [two]
    for name in ("06-k-hat-asumptions", "assumptions", "7"):
        with pytest.raises(NotebookError, match=rf"'{name}' is not a notebook; .*06-k-hat-assumptions"):
            find([name])
    write(project, "06-other")
    with pytest.raises(NotebookError, match=r"several notebooks.*06-k-hat-assumptions, 06-other"):
        find(["06"])
    for path in (one, two, project / "notebooks" / "06-other.ipynb"):
        path.unlink()
    with pytest.raises(NotebookError, match="no notebooks in"):
        find()


def test_list_shows_titles_and_parameters(project):
    write(project, "01-one")
    result = spml("figures", "--list")
    assert result.exit_code == 0
    assert "01-one  01-one · Is it so?" in result.output
    assert "  lr           float      0.001      learning rate ε" in result.output


def test_a_path_is_taken_from_the_project_root(project, monkeypatch):
    (project / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    (project / "notebooks" / "pyproject.toml").write_text("not [ toml")
    monkeypatch.chdir(project / "notebooks")
    assert paths.project_root() == project and paths.locate("runs/x") == project / "runs" / "x"
    assert paths.locate(project / "y") == project / "y"


def test_a_printed_command_is_the_one_that_a_shell_finds(project, monkeypatch):
    folder = project / ".venv" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "")
    assert paths.command() == "spml"  # no other is known
    (folder / "spml").write_text("#!/bin/sh\n")
    (folder / "spml").chmod(0o755)
    assert paths.command() == os.path.join(".venv", "bin", "spml")
    monkeypatch.chdir(project / "notebooks")
    assert paths.command() == str(folder / "spml")
    monkeypatch.setenv("PATH", str(folder))
    assert paths.command() == "spml"


# --- the command ---


def test_help_is_instant_and_the_version_is_shown():
    code = (
        "import sys; from spml_core.cli import main; main(['figures', '--help'], standalone_mode=False);"
        "print(sorted({'torch', 'papermill', 'matplotlib'} & set(sys.modules)))"
    )
    lines = run_python(code).communicate()[0].splitlines()
    assert lines[-1] == "[]"
    assert any("spml figures 06 07 --jobs 2" in line for line in lines)
    assert spml("--version").output == f"spml, version {__version__}\n"


def run_python(code, **options):
    environment = os.environ | {"PYTHONPATH": str(Path(contract.__file__).parents[2]), "COLUMNS": "100"}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, **options
    )


def test_a_run_leaves_figures_parameters_and_a_stamp(project, monkeypatch):
    write(
        project,
        "01-one",
        SAVE,
        """
import os, subprocess, sys
import matplotlib.pyplot as plt
CLAIM = '{"claim": "k %s", "verdict": "%s", "evidence": "0.99"}'
CLAIMS = f'{CLAIM % ("rises", "holds")}, {CLAIM % ("falls", "does not hold")}'
HEADLINE = f'{{"slope": 0.123456, "n": 3, "claims": [{CLAIMS}]}}'
child = [sys.executable, "-c", "import os, matplotlib.pyplot; print(os.environ.get('MPLBACKEND'))"]
assert subprocess.run(child, capture_output=True, text=True, check=True).stdout == "None\\n"
assert os.path.samefile(os.getcwd(), ROOT) and sys.executable == PYTHON
assert (lr, seeds) == (1e-4, [2, 3])
from tqdm import tqdm
for step in tqdm(range(50), mininterval=0):
    pass
plt.plot([1, 2]);
""".replace("ROOT", repr(str(project))).replace("PYTHON", repr(sys.executable)),
        'save_figure(None, "01a-x")\nsave_table(None, "01b-y")',
        'Path(figures_dir, "01-one.json").write_text(HEADLINE)',
    )
    monkeypatch.setenv("MPLBACKEND", "module://not_there")
    command = ("figures", "-p", "lr", "1e-4", "-p", "seeds", "[2, 3]")
    result = spml(*command)
    assert result.exit_code == 0, result.output
    assert 'started, runs_dir="runs" figures_dir="figures" lr=0.0001 seeds=[2, 3]' in result.output
    _, rows, claims, decided, _ = (part.splitlines() for part in result.output.split("\n\n"))
    row = rows[-1].split()
    assert row[0] == "01-one" and row[2:4] == ["1", "1"]
    assert rows[-1].endswith("1 holds, 1 does not hold  slope 0.1235     done")
    assert decided == ["2 of 2 claims are decided. Verdicts: 1 holds, 1 does not hold."]
    assert [line.split(maxsplit=2) for line in claims[1:]] == [
        ["holds", "01", "k rises: 0.99"], ["does", "not", "hold  01  k falls: 0.99"]
    ]  # fmt: skip
    assert result.output.endswith(f"gallery: {project / 'figures' / 'index.html'}\n")
    assert 'href="../runs/notebooks/01-one.ipynb"' in (project / "figures" / "index.html").read_text()
    expected = {"runs_dir": "runs", "figures_dir": "figures", "lr": 1e-4, "seeds": [2, 3]}
    parameters = project / "figures" / "01-one.parameters.json"
    assert parameters.read_text() == json.dumps(expected, indent=2) + "\n"
    executed = nbformat.read(project / "runs" / "notebooks" / "01-one.ipynb", 4)
    assert executed.metadata.kernelspec.name == "python3"
    drawn = [o for o in executed.cells[4].outputs if "image/png" in o.get("data", {})]
    assert len(drawn) == 1  # matplotlib's inline backend is still the one in use
    assert sum(output.output_type == "stream" for output in executed.cells[4].outputs) == 1  # the whole bar

    # From here on nothing executes: "done" says that it would have been.
    monkeypatch.setattr(runner, "_execute", lambda runs, jobs: [planning.Result(run, "done") for run in runs])
    again = {"lr": np.float64(1e-4), "seeds": (2, 3)}
    fresh = lambda given=again, **options: runner.run_notebooks(parameters=given, **options)[0].status  # noqa: E731
    assert fresh() == "up to date" and "up to date" in spml(*command).output
    assert fresh(force=True) == "done"
    assert fresh({}) == "done"
    figure = project / "figures" / "01a-x.pdf"
    for content in (b"changed", None):
        figure.write_bytes(content) if content else figure.unlink()
        assert fresh() == "done"
    figure.write_bytes(b"01a-x")
    assert fresh() == "up to date"
    monkeypatch.setattr(planning, "PACKAGE", project)  # other code than at the time
    assert fresh() == "done"


def test_failures_are_told_and_the_rest_goes_on(project):
    figures = project / "figures"
    figures.mkdir()
    for suffix in (".pdf", ".png"):
        (figures / f"05a-stale{suffix}").write_text("from an earlier run")
    write(project, "01-good", SAVE, 'save_figure(None, "01a-x")')
    write(project, "02-error", "x = 1\n\n" + "y = 1\n" * 9, "x = 1\nraise ValueError('bad slope')", "x = 2")
    # The next call clears what the widget showed: only the kernel's message tells.
    widget = """
import ipywidgets
def draw(x):
    if x == 1:
        raise ValueError("bad slider")
panel = ipywidgets.interactive(draw, x=ipywidgets.IntSlider(1))
panel.children[0].value = 2
"""
    write(project, "03-widget", widget)
    write(project, "04-killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    write(project, "05-stale", SAVE, 'if lr < 0:\n    save_figure(None, "05a-stale")')
    write(
        project,
        "06-unseen",
        SAVE,
        'save_figure(None, "06a-seen")',
        'save_figure(None, "06b-unseen", show=False)',
    )
    write(
        project,
        "07-log",
        "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('lost')",
    )

    write(project, "08-unseen-table", SAVE, 'save_table(None, "08a-unseen", show=False)')

    result = spml("figures", "--jobs", "2")
    assert result.exit_code == 1
    status = {
        line.split()[0]: line.split()[-1]
        for line in result.output.splitlines()
        if line.endswith(("done", "ed"))
    }
    names = ["01-good", "02-error", "03-widget", "04-killed", "05-stale", "06-unseen", "07-log"]
    names.append("08-unseen-table")
    assert [status[name] for name in names] == ["done"] + ["failed"] * 7
    for expected in (
        "02-error, cell 4: ValueError: bad slope\n  | x = 1\n  | raise ValueError('bad slope')\n",
        "03-widget, cell 3: ValueError: bad slider\n",
        "04-killed, cell 3: DeadKernelError: the kernel was killed by SIGKILL (out of memory?)",
        f"05-stale, promised figure or table not written by this run: {figures / '05a-stale.pdf'}, ",
        "08-unseen-table, table saved but not shown in the notebook's output: 08a-unseen\n",
        "06-unseen, figure saved but not shown in the notebook's output: 06b-unseen\n",
        "07-log, cell 3: traceback on stderr: ZeroDivisionError: division by zero\n",
        "7 of 8 failed",
    ):
        assert expected in result.output
    assert "\x1b" not in result.output and "06a-seen" not in result.output.split("06-unseen, ")[1]
    output = project / "runs" / "notebooks"
    assert sorted(file.name for file in output.iterdir()) == ["01-good.ipynb", "01-good.json"] + [
        f"{name}.ipynb" for name in names[1:]
    ]
    assert not (figures / "02-error.parameters.json").exists()


def test_executed_twice_only_times_and_the_id_of_the_injected_cell_differ(project):
    write(project, "01-one", SAVE, 'save_figure(None, "01a-x")\nprint(lr)')
    pages = []
    for _ in range(2):
        assert runner.run_notebooks(force=True)[0].status == "done"
        nb = nbformat.read(project / "runs" / "notebooks" / "01-one.ipynb", 4)
        for part in (nb, *nb.cells):
            part.metadata.pop("papermill", None)
            part.metadata.pop("execution", None)
        del next(cell for cell in nb.cells if "injected-parameters" in cell.metadata.tags)["id"]
        pages.append(nb)
    assert pages[0] == pages[1]


def test_state_says_what_has_changed(project):
    path = write(project, "01-one", SAVE, 'save_figure(None, "01a-x")')

    def state(**given):
        return planning.plan(parameters=given)[0].state

    assert state() == "never run"
    runner.run_notebooks()
    assert state() == "up to date" and planning.plan()[0].last_seconds > 0
    assert state(lr=1) == "stale: changed parameters"
    (project / "figures" / "01a-x.csv").write_text("x\n")
    assert state() == "stale: changed figures"
    write(project, "01-one", SAVE, 'save_figure(None, "01a-x")  # why')
    assert state(lr=1) == "stale: changed notebook, parameters, figures"
    assert "state: stale: changed notebook, figures, last run" in spml("figures", "--list").output
    write(project, "01-one", "raise ValueError")
    runner.run_notebooks()
    assert state() == "failed or interrupted" and path.is_file()


@pytest.mark.slow
def test_many_kernels_at_once_all_start(project):
    for number in range(10):
        write(project, f"{number:02d}-one", "1 + 1")
    assert [result.error for result in runner.run_notebooks(jobs=5)] == [""] * 10


def test_ctrl_c_ends_the_kernels(project):
    os.mkfifo(project / "pid")
    reader = os.open(project / "pid", os.O_RDONLY | os.O_NONBLOCK)
    write(project, "01-long", 'import os\nopen("pid", "w").write(str(os.getpid()))\nwhile True: pass')
    write(project, "02-next", "1")
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "from spml_core.cli import main; main(['figures'])"
    )
    process = run_python(code, cwd=project, stderr=subprocess.STDOUT)
    assert select.select([reader], [], [], 120)[0], "the notebook never started"
    kernel = int(os.read(reader, 100))
    os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert "run the same command again to resume" in output and "02-next" not in output
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


def test_a_line_a_minute_says_where_a_notebook_is(project, monkeypatch):
    monkeypatch.setattr(runner, "SILENT_SECONDS", 0)
    train = """
import time
from pathlib import Path
for number in range(2):
    folder = Path(runs_dir, f"run-{number}")
    folder.mkdir(parents=True)
    (folder / "summary.json").touch()
time.sleep(2.5)
"""
    write(project, "01-one", train)
    (project / "runs" / "before").mkdir(parents=True)
    (project / "runs" / "before" / "summary.json").touch()
    os.utime(project / "runs" / "before" / "summary.json", (0, 0))
    lines = [line for line in spml("figures").output.splitlines() if line.startswith("01-one: 0 min, ")]
    assert "01-one: 0 min, cell 3 of 3, '01-one · Is it so?', runs trained since the start: 2" in lines
