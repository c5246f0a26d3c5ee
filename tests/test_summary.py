"""What the notebooks found, as Markdown: the README's table, made by a command from JSON files."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import readme
from spml_core.cli import main
from spml_core.headless import summary
from spml_core.headless.contract import find

PROJECT = Path(__file__).parents[1]


def claim(text, verdict, evidence=""):
    return {"claim": text, "verdict": verdict, "evidence": evidence, "source": "", "seeds": 3}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the figures of two notebooks on photographs."""
    monkeypatch.chdir(PROJECT)
    numbers = {"test mAP, gr": 61.4321, "methods": 25}
    claims = [
        claim("GR is above EM", "undecided", "gr − em -0.5 [-1.9, 0.9]"),
        claim("GR is above AN", "holds", "gr − an +8.7 [4.1, 13.3]"),
    ]
    (tmp_path / "03-benchmark.json").write_text(json.dumps(numbers | {"claims": claims}))
    parameters = {"dataset": "folder", "root": "/somewhere/corel5k"}
    (tmp_path / "03-benchmark.parameters.json").write_text(json.dumps(parameters))
    (tmp_path / "06-k-hat-assumptions.json").write_text(json.dumps({"Spearman": 0.91234}))
    return tmp_path


def spml(*arguments):
    return CliRunner().invoke(main, ["figures", *map(str, arguments)])


def test_the_command_prints_a_row_for_each_notebook(folder):
    result = spml("--summary", folder)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "| notebook | question | on corel5k | paper |"
    assert lines[2].startswith(
        "| [03-benchmark](notebooks/03-benchmark.ipynb) | Which loss is best, and by how much? |"
    )
    assert "| 1 holds, 1 undecided; test mAP, gr: 61 | GR Table 2; EM Table 1" in lines[2]
    assert "| Spearman: 0.91 | GR Fig 5a-d |" in lines[3]
    assert "On corel5k, 1 of 2 claims are decided. Verdicts: 1 holds, 1 undecided." in lines
    assert lines[-1] == "| corel5k |  | 61.4 |  |  |  | -0.5 [-1.9, 0.9] |  | +8.7 [4.1, 13.3] |"
    assert "somewhere" not in result.output


def test_several_folders_are_columns(folder):
    result = spml("--summary", folder, "--summary", folder)
    assert result.output.startswith("| notebook | question | on corel5k | on corel5k | paper |")


def test_without_a_folder_it_is_that_of_the_figures(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(summary, "read", lambda name: asked.append(name) or {"notebooks": {}})
    monkeypatch.setattr(summary, "markdown", lambda found: "")
    assert spml("--summary").exit_code == 0 and asked == ["figures"]


def test_an_empty_folder_says_what_fills_it(folder, tmp_path):
    result = spml("--summary", tmp_path / "none")
    assert (
        result.exit_code == 2 and "has no numbers of a notebook: `spml figures` writes them" in result.output
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(96.31, "96"), (0.6234, "0.62"), (625.4, "625"), (14, "14"), ("GR", "GR"), (-0.0456, "-0.046")],
)
def test_headline_numbers_have_the_digits_that_seeds_leave_alone(value, shown):
    assert summary.rounded(value) == shown


# --- the README ---


def test_the_pages_are_what_the_command_makes_of_the_tracked_numbers(monkeypatch):
    monkeypatch.chdir(PROJECT)
    for name, texts in readme.parts().items():
        page = (PROJECT / name).read_text(encoding="utf-8")
        for part, text in texts.items():
            assert readme.update(page, part, text) == page, (
                f"{name}: python -m benchmarks.readme writes {part}"
            )
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    found = json.loads((PROJECT / readme.KEPT).read_text(encoding="utf-8"))
    assert set(found[0]["notebooks"]) == {notebook.name for notebook in find()}
    assert len(re.findall(r"^\| \[\d\d-", page, re.M)) == len(found[0]["notebooks"])


def test_the_pages_are_written_from_folders(folder, tmp_path, monkeypatch):
    project, result = tmp_path / "project", {"setting": "published", "lr": 1e-3, "classes": 3}
    for name in ("data", "docs"):
        (project / name).mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    (project / "notebooks").symlink_to(PROJECT / "notebooks")
    result |= {"dataset": "pets", "train": 9, "val": 5, "test": 5}
    maps = {"an": (70.0, 71.0, 72.0), "gr": (73.0, 74.0, 76.0)}
    rows = [
        result | {"method": method, "seed": seed, "test_map": value}
        for method, values in maps.items()
        for seed, value in enumerate(values)
    ]
    pd.DataFrame(rows).to_csv(project / "data" / "results-photographs.csv", index=False)
    begin, end = "<!-- {}, by `python -m benchmarks.readme` -->\n", "<!-- end of {} -->"
    pages = {"README.md": ("summary", "photographs"), "docs/photographs.md": ("linear", "finetuned")}
    for name, parts in pages.items():
        empty = [f"{begin.format(part)}old\n{end.format(part)}\n" for part in parts]
        (project / name).write_text("\n".join(["before", *empty, "after\n"]))
    monkeypatch.chdir(project)
    finetuned = project / "finetuned"
    finetuned.mkdir()
    shutil.copy(folder / "03-benchmark.json", finetuned)
    readme.main([str(folder), str(finetuned)])
    written = {name: (project / name).read_text(encoding="utf-8") for name in pages}
    readme_page = written["README.md"]
    assert readme_page.startswith(f"before\n{begin.format('summary')}{spml('--summary', folder).output}")
    assert "| method | pets, published |" in readme_page and readme_page.endswith("\nafter\n")
    assert "| GR − AN | +3.3 [1.9, 4.8] |" in readme_page and "GR − EM |" not in readme_page.split("pets")[1]
    assert "| AN | 71.0 ± 2.5 |" in readme_page and "| AN | 71.0 ± 2.5 |" in written["docs/photographs.md"]
    assert "| 03 | GR is above AN | holds | gr − an +8.7 [4.1, 13.3] |" in written["docs/photographs.md"]
    readme.main([str(folder), str(finetuned)])
    assert {name: (project / name).read_text(encoding="utf-8") for name in pages} == written
    (project / "README.md").write_text("no marks")
    with pytest.raises(ValueError, match="there is no <!-- summary"):
        readme.main([str(folder)])


def test_without_numbers_of_a_notebook_the_pages_stay(tmp_path):
    with pytest.raises(SystemExit, match="has no numbers of a notebook"):
        readme.main([str(tmp_path)])
