"""Values of parameters: from profiles and commands, checked before a kernel starts."""

import os
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from miniatures import write_folder
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from benchmarks import photographs
from spml_core import data
from spml_core.cli import main
from spml_core.headless import planning, profiles, runner
from spml_core.headless.contract import Notebook, NotebookError

ROOT = Path(__file__).parents[1]
TRAINS = """
dataset: str = "digits"
root: str | None = None
data: dict = {}
methods: list[str] = ["an", "gr"]
params: dict[str, dict] = {}
seeds: list[int] = [0, 1, 2]
epochs: int = 10
training: dict = {}
venue: str = "ijcai2024"
figures_dir: str = "figures"
"""
SHARED = {  # name: how it is annotated; what it is
    "dataset": ("str",),  # a name of `spml_core.data`
    "root": ("str | None",),  # folder of the data set; None for digits
    "data": ("dict",),  # further options of the data set's loader, e.g. {"train": 300, "val": 100} for digits
    "method": ("str",),  # a registered name
    "methods": ("list[str]",),  # several; the baseline first; none = all, where a notebook takes all
    "params": ("dict", "dict[str, dict]"),  # hyperparameters that are not the default: of `method`; by method
    "seeds": ("list[int]",),  # one run each
    "epochs": ("int",),  # length of training
    "backbone": ("str | None",),  # None = the data set's own
    "training": ("dict",),  # further fields of `Experiment`: mode, batch_size, lr, val_labels, ...
    "venue": ("str",),  # `figures.use`: sizes and fonts
    "formats": ("list[str]",),  # `figures.use`: written besides PDF and PNG
    "runs_dir": ("str",),  # where runs are kept, relative to the project
    "figures_dir": ("str",),  # where figures go
}
CURVES = 'lr: float = 1e-3\nvenue: str = "ijcai2024"\nfigures_dir: str = "figures"'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project of two notebooks that must not be executed."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, declare in (("01-curves", CURVES), ("07-trains", TRAINS)):
        cells = [new_markdown_cell(f"# {name}"), new_code_cell(declare, metadata={"tags": ["parameters"]})]
        nbformat.write(new_notebook(cells=cells), tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.setattr(runner, "_execute", lambda runs, jobs: [planning.Result(run, "done") for run in runs])
    return tmp_path


def write(project, text, name="fast"):
    (project / "notebooks" / f"{name}.yaml").write_text(text)


def values(name="fast", **given):
    return {run.name: run.values for run in planning.plan(parameters=given, profile=name)}


def test_a_profile_reaches_what_declares_its_parameters_and_p_goes_before_it(project):
    write(project, "all: {epochs: 1, seeds: [0], lr: 1e-4}\n07-trains: {epochs: 2, training: {lr: 3e-3}}")
    found = values()
    assert found["01-curves"] == {"lr": 1e-4, "venue": "ijcai2024", "figures_dir": "figures/fast"}
    trains = found["07-trains"]
    assert (trains["epochs"], trains["seeds"], trains["training"]) == (2, [0], {"lr": 3e-3})
    assert values(epochs="3")["07-trains"]["epochs"] == 3
    assert values("quick")["07-trains"]["epochs"] == 10


def test_profiles_do_not_overwrite_each_other(project):
    write(project, "all: {epochs: 1}")
    fast, quick = planning.plan(profile="fast"), planning.plan()
    assert {run.folder for run in quick} == {project / "figures"}
    assert {run.output.parent for run in quick} == {project / "runs" / "notebooks"}
    assert {run.folder for run in fast} == {project / "figures" / "fast"}
    assert {run.output.parent for run in fast} == {project / "figures" / "fast" / "notebooks"}
    (mine,) = planning.plan(["01"], {"figures_dir": str(project / "mine")})
    assert mine.output == project / "mine" / "notebooks" / "01-curves.ipynb"


@pytest.mark.parametrize(
    "text, message",
    [
        ("all: {epoch: 1}", r"fast.yaml: parameter 'epoch' is not declared by any notebook; .* 'epochs'"),
        ("07-trains: {lr: 1}", r"parameter 'lr' is not declared by 07-trains"),
        ("07-train: {epochs: 1}", r"'07-train' is not a notebook; .*07-trains"),
        ("all: {epochs: many}", r"parameter 'epochs' of 07-trains must be int .*'many'"),
        ("all: {epochs: 1.5}", r"parameter 'epochs' of 07-trains must be int"),
        ("- epochs", r"must map `all` and names of notebooks"),
        ("all: 3", r"must map `all` and names of notebooks"),
        ("all: {", r"fast.yaml is not YAML"),
    ],
)
def test_a_wrong_profile_stops_everything(project, text, message):
    write(project, text)
    with pytest.raises(ValueError, match=message):
        runner.run_notebooks(profile="fast")
    assert sorted(os.listdir(project)) == ["notebooks"]


def test_an_unknown_profile_names_those_there_are(project):
    write(project, "")
    with pytest.raises(NotebookError, match=r"'papre' is not a profile; known are: fast, quick"):
        profiles.load("papre")
    assert values() == {n: v | {"figures_dir": "figures/fast"} for n, v in values("quick").items()}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"methods": ["an", "grr"]}, r"07-trains: unknown method 'grr': did you mean 'gr'"),
        ({"dataset": "digit"}, r"unknown data set 'digit': did you mean 'digits'"),
        ({"dataset": "folder"}, r"data set 'folder' needs root .*-p root PATH"),
        ({"dataset": "folder", "root": "nowhere"}, r"'root': there is no folder .*nowhere"),
        ({"data": {"trian": 300}}, r"data set 'digits' has no option trian\. It has: .*train"),
        (
            {"data": {"train": -3}},
            r"option train of data set 'digits' is -3: Input should be greater than 0",
        ),
        ({"params": {"em": {"alpha": 1}}}, r"'params' is for 'em', which is not among the methods"),
        ({"params": {"gr": {"q9": 1}}}, r"q9"),
        ({"training": {"batchsize": 3}}, r"batchsize"),
        ({"training": {"lr": -1}}, r"lr"),
        ({"venue": "icmll"}, r"unknown venue 'icmll'"),
    ],
)
def test_what_does_not_exist_is_said_before_a_kernel_starts(project, given, message):
    with pytest.raises(NotebookError, match=message):
        runner.run_notebooks(["07"], given)
    assert sorted(os.listdir(project)) == ["notebooks"]


def test_every_notebook_that_trains_asserts_that_there_is_a_seed():
    planned = [run for run in planning.plan(parameters={"seeds": []}) if "seeds" in run.values]
    assert len(planned) > 10
    for run in planned:
        with pytest.raises(NotebookError, match=r"needs `.*seeds.*`.*, but .*seeds = \[\]"):
            profiles.check(run.notebook, run.values)


def test_what_exists_passes(project):
    given = {
        "methods": ["an", "em"],
        "params": {"em": {"alpha": 0.1}},
        "data": {"train": 30},
        "venue": "icml",
    }
    assert runner.run_notebooks(["07"], given)[0].status == "done"


def test_no_methods_are_all_methods(project):
    given = {"methods": [], "params": {"em": {"alpha": 0.1}}}
    assert runner.run_notebooks(["07"], given)[0].status == "done"
    with pytest.raises(NotebookError, match="no hyperparameter alpa"):
        runner.run_notebooks(["07"], {"methods": [], "params": {"em": {"alpa": 0.1}}})


def test_other_methods_go_without_the_params_that_a_profile_has_for_those_left_out(project):
    write(project, "07-trains: {params: {an: {}, gr: {q3: 1.5}}}")
    assert values()["07-trains"]["params"].keys() == {"an", "gr"}
    assert values(methods=["gr"])["07-trains"]["params"] == {"gr": {"q3": 1.5}}
    asked = {"methods": ["gr"], "params": {"em": {"alpha": 1}}}  # stays, to be refused
    assert values(**asked)["07-trains"]["params"] == {"em": {"alpha": 1}}


@pytest.mark.parametrize("profile", ["quick", "smoke", "paper"])
def test_a_folder_of_ones_own_goes_through_all_notebooks_in_every_profile(profile, tmp_path):
    given = {"dataset": "folder", "root": str(write_folder(tmp_path / "my_photos"))}
    for run in planning.plan(parameters=given, profile=profile):
        profiles.check(run.notebook, run.values)  # all that is asked before a kernel starts
        for key in ("data", "training"):
            assert not run.values.get(key)
    backbones = {run.name: run.values["backbones"] for run in planning.plan(["11"], given, profile=profile)}
    own = ["resnet34", "resnet50", "resnet101"] if profile == "paper" else ["tf_efficientnet_lite0"]
    assert backbones == {"11-backbones": own}


def test_what_a_command_says_of_its_data_set_counts(project):
    write(project, "all: {data: {train: 300}, training: {lr: 0.1}}")
    folder = {"dataset": "folder", "root": "."}
    assert values(**folder)["07-trains"]["data"] == {}
    found = values(**folder, data={"min_images": 2}, training={"lr": 0.2})["07-trains"]
    assert found["data"] == {"min_images": 2} and found["training"] == {"lr": 0.2}
    assert values(dataset="digits")["07-trains"]["data"] == {"train": 300}
    write(project, "all: {dataset: voc2012, training: {lr: 0.1}}")  # made for photographs, so for others too
    assert values(dataset="coco2014")["07-trains"]["training"] == {"lr": 0.1}


@pytest.mark.parametrize("names", [(), ("01", "07")])
def test_each_notebook_takes_the_parameters_that_it_declares(project, names):
    found = {run.name: run.values for run in planning.plan(names, {"epochs": 3, "lr": "1e-4"})}
    assert found["07-trains"]["epochs"] == 3 and "lr" not in found["07-trains"]
    assert found["01-curves"]["lr"] == 1e-4 and "epochs" not in found["01-curves"]
    message = r"'epoch' is not declared by 01-curves, 07-trains; did you mean 'epochs'\?\ndeclared: .*, lr, "
    with pytest.raises(NotebookError, match=message):
        planning.plan(names, {"epoch": 3})
    with pytest.raises(NotebookError, match=r"'epochs' is not declared by 01-curves\n"):
        planning.plan(["01"], {"epochs": 3})


@pytest.mark.parametrize(
    "given, message",
    [
        (
            {"steps": 24},
            r"08-asserts needs `steps >= 3 and steps % 2 == 1` \(the middle is .*\), but steps = 24",
        ),
        ({"span": "0"}, r"08-asserts needs `0 < span <= 10`, but span = 0\.0"),
        ({"methods": []}, r"needs `methods and set\(shown\) <= set\(methods\)`, but methods = \[\], shown"),
        ({"shown": ["em"]}, r"but methods = \['an', 'gr'\], shown = \['em'\]"),
        ({"data": {}}, r"needs `data\['train'\] > 0` \(KeyError: 'train'\), but data = \{\}"),
    ],
)
def test_what_a_notebook_asserts_of_its_parameters_is_checked_first(project, given, message):
    declare = """
steps: int = 25  # points on a line
span: float = 1.0  # how far to go
methods: list[str] = ["an", "gr"]  # trained
shown: list[str] = ["gr"]  # drawn
data: dict = {"train": 300}
assert steps >= 3 and steps % 2 == 1, "the middle is the trained network"
assert 0 < span <= 10
assert methods and set(shown) <= set(methods)
assert data["train"] > 0
"""
    cells = [new_code_cell(declare, metadata={"tags": ["parameters"]})]
    nbformat.write(new_notebook(cells=cells), project / "notebooks" / "08-asserts.ipynb")
    with pytest.raises(NotebookError, match=message):
        runner.run_notebooks((), given)
    assert sorted(os.listdir(project)) == ["notebooks"]
    assert runner.run_notebooks(["08"], {"steps": 27})[0].status == "done"


def test_list_shows_the_values_of_a_profile_and_states(project):
    write(project, "all: {epochs: 1}")
    result = CliRunner().invoke(main, ["figures", "07", "--list", "--profile", "fast"])
    assert result.exit_code == 0, result.output
    assert "  state: never run" in result.output
    assert "  epochs       int              1" in result.output


# --- what ships with the project ---


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_shipped_profiles_fit_the_notebooks(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    for run in planning.plan(profile=name):
        assert run.folder == ROOT / "figures" / name
        if "epochs" in run.values:
            # 04 has methods with two stages, an epoch each
            assert run.values["epochs"] in {"smoke": (1, 2), "paper": (8,)}[name]
            assert run.values["seeds"] == {"smoke": [0], "paper": [0, 1, 2]}[name]


def test_the_papers_profile_asks_for_the_folder(monkeypatch):
    if "voc2012" not in data.DATASETS:
        pytest.skip("there is no data set voc2012")
    monkeypatch.chdir(ROOT)
    with pytest.raises(NotebookError, match=r"'voc2012' needs root"):
        runner.run_notebooks(profile="paper")


@pytest.mark.parametrize("own", [{}, {"training": {"mode": "end_to_end", "pretrained": True, "lr": 1e-4}}])
def test_the_profile_of_photographs_needs_a_folder_and_no_more(own, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    with pytest.raises(NotebookError, match=r"'folder' needs root"):
        runner.run_notebooks(profile="photographs")
    for run in planning.plan(parameters={"root": str(tmp_path)} | own, profile="photographs"):
        profiles.check(run.notebook, run.values)
        assert run.folder == ROOT / "figures" / "photographs"
        if "dataset" in run.values:
            assert run.values["data"] == {"min_images": 100, "unlabeled": "drop"}
            assert run.values.get("training", own.get("training", {})) == own.get("training", {})
            assert run.values.get("backbones", ["tf_efficientnet_lite0"]) == ["tf_efficientnet_lite0"]


def test_the_profile_of_fine_tuned_runs_trains_as_the_benchmark_does(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    for run in planning.plan(["06", "07", "08", "10"], {"root": str(tmp_path)}, profile="finetuned"):
        profiles.check(run.notebook, run.values)
        assert run.folder == ROOT / "figures" / "finetuned"
        training = run.values["training"] | {name: run.values[name] for name in ("epochs", "data")}
        assert training.pop("lr") in photographs.RATES and training == photographs.FINETUNING


@pytest.mark.parametrize("path", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_shared_parameters_are_called_and_typed_alike(path):
    notebook = Notebook(path)
    declared = notebook.parameters
    notebook.check({name: parameter.default for name, parameter in declared.items()})
    assert {"venue", "formats", "figures_dir"} <= declared.keys()
    for name in declared.keys() & SHARED.keys():
        assert declared[name].type in SHARED[name]
    if "epochs" in declared:
        assert {"dataset", "root", "data", "seeds", "backbone", "training", "runs_dir"} <= declared.keys()


@pytest.mark.slow
def test_every_notebook_runs_in_the_smoke_profile(monkeypatch, tmp_path):
    """It takes minutes, and its numbers mean nothing, so no claim is checked."""
    monkeypatch.chdir(ROOT)
    where = {"figures_dir": str(tmp_path / "figures"), "runs_dir": str(tmp_path / "runs")}
    results = runner.run_notebooks((), where, jobs=2, profile="smoke")
    assert not [result.error for result in results if result.error]
    assert not [c for r in results for c in r.claims if c["seeds"] and c["verdict"] != "not judged"]
    assert (tmp_path / "figures" / "notebooks" / "07-distinguishability.ipynb").is_file()
    page = (tmp_path / "figures" / "index.html").read_text()
    for promise in (promise for result in results for promise in result.planned.notebook.promises):
        assert f'<figure id="{promise.name}"' in page
