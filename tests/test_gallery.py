"""The page of all figures is complete, static and accessible."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import nbformat
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

from spml_core.cli import main
from spml_core.figures import VERDICTS
from spml_core.headless import gallery


class Page(HTMLParser):
    """Collects the elements in order, and checks that they are closed where they must be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("notebooks", "figures", "runs/notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    cells = [
        new_markdown_cell("# 01 · What does $\\hat k$ do?"),
        new_code_cell(
            'figures_dir: str = "figures"\nseeds: list[int] = [0]  # one run each',
            metadata={"tags": ["parameters"]},
        ),
        new_markdown_cell("Prose.\n\n## The weight $v_\\mu$ & **more**\n\nProse."),
        new_code_cell('save_figure(fig, "01a-first", data, source="GR Fig 1a")'),
        new_code_cell('save_figure(fig, "01b-second", data)\nsave_figure(fig, "01c-not-there", data)'),
        new_code_cell('save_table(table, "01d-table")'),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "notebooks" / "01-one.ipynb")
    nbformat.write(new_notebook(cells=cells[:1]), tmp_path / "notebooks" / "02-nothing.ipynb")
    (tmp_path / "runs/notebooks/01-one.ipynb").touch()
    figures = tmp_path / "figures"
    for name, size in (("01a-first", (40, 30)), ("01b-second", (80, 30))):
        Image.new("RGB", size).save(figures / f"{name}.png")
        for suffix in ("pdf", "csv"):
            (figures / f"{name}.{suffix}").touch()
    (figures / "01a-first.svg").touch()
    told = {
        "kind": "figure",
        "caption": 'A "loss" < 1 & k̂',
        "context": "digits, 3 seeds",
        "source": "GR Fig 1a",
    }
    (figures / "01a-first.caption.json").write_text(json.dumps(told))
    (figures / "01d-table.csv").write_text("method,mAP\n" + "".join(f"m{n}<,{n}\n" for n in range(118)))
    (figures / "01d-table.tex").touch()
    claim = {
        "claim": "GR > AN",
        "verdict": "does not hold",
        "evidence": "1 < 2",
        "source": "GR 4",
        "seeds": 3,
    }
    open_ = claim | {"claim": "EM > AN", "verdict": "undecided"}
    few = claim | {"claim": "GR > EM", "verdict": "not judged", "seeds": 2}
    (figures / "01-one.json").write_text(json.dumps({"slope": 1.5, "claims": [claim, open_, few]}))
    settings = {"seeds": [0, 1], "runs_dir": "/somewhere", "figures_dir": "figures"}
    (figures / "01-one.parameters.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.fixture
def text(project):
    return gallery.write("figures").read_text(encoding="utf-8")


def test_a_card_for_each_figure_that_is_there(text):
    page = Page(text)
    assert page.open == []
    assert [attrs["id"] for attrs in page.all("figure")] == ["01a-first", "01b-second", "01d-table"]
    links = [attrs["href"] for attrs in page.all("a")]
    assert links == [
        "../runs/notebooks/01-one.ipynb",
        "01a-first.png", "01a-first.pdf", "01a-first.svg", "01a-first.png", "01a-first.csv",
        "01b-second.png", "01b-second.pdf", "01b-second.png", "01b-second.csv",
        "01d-table.tex", "01d-table.csv",
    ]  # fmt: skip


def test_every_link_leads_to_a_file_and_nothing_to_the_network(project, text):
    page = Page(text)
    for attrs in (*page.all("a"), *page.all("img")):
        assert (project / "figures" / attrs.get("href", attrs.get("src"))).exists()
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    assert not page.all("link") and not [attrs for attrs in page.all("script") if attrs]


def test_captions_conditions_claims_and_parameters(text):
    for part in (
        "<h2>01 · What does k̂ do?</h2>",
        'A "loss" < 1 & k̂ (GR Fig 1a)',
        "digits, 3 seeds",
        '<b class="does-not-hold">does not hold</b> GR > AN (GR 4): 1 < 2 (3 seeds)',
        '<b class="undecided">undecided</b> EM > AN (GR 4): 1 < 2 (3 seeds)',
        '<b class="not-judged">not judged</b> GR > EM (GR 4): 1 < 2 (2 seeds; 3 are needed)',
        "1 of 3 claims are decided. Verdicts: 1 does not hold, 1 undecided, 1 not judged. "
        "With fewer than 3 seeds, a claim is not judged.",
        "<p>Claims of the papers: 1 does not hold, 1 undecided, 1 not judged</p>",
        "<dt>slope</dt><dd>1.5</dd>",
        '<dt>seeds</dt><dd>[0, 1] <span class="context">one run each</span></dd>',
        "<td>m99<</td>",
        "18 rows more in the CSV",
    ):
        assert part in unescape(text)
    assert 'A "loss" <' not in text  # escaped
    assert "/somewhere" not in text and "m100&lt;" not in text and "02-nothing" not in text


def test_each_verdict_has_a_colour_and_a_mark_of_its_own(text):
    rules = [re.findall(rf"^\.{v.replace(' ', '-')}(?:::before)? {{(.*)}}$", text, re.M) for v in VERDICTS]
    assert all(len(rule) == 2 for rule in rules)
    assert len({color for color, _ in rules}) == len({mark for _, mark in rules}) == len(VERDICTS)


def test_for_phones_screen_readers_and_the_night(text):
    page = Page(text)
    assert all(attrs["alt"] for attrs in page.all("img")) and len(page.all("img")) == 2
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("label")[0]["for"] == page.all("input")[0]["id"]
    assert "color-scheme: light dark" in text


def test_again_gives_the_same_bytes(project):
    page = gallery.write("figures")
    before = page.read_bytes()
    assert gallery.write(project / "figures").read_bytes() == before
    assert not list((project / "figures").glob(".*"))


def test_an_empty_folder_says_how_to_fill_it(project):
    assert "spml figures" in gallery.write(project / "new").read_text()


def test_the_command_writes_it_without_executing(project):
    (project / "notebooks" / "02-nothing.ipynb").unlink()
    result = CliRunner().invoke(main, ["figures", "--gallery"])
    assert result.exit_code == 0 and result.output == f"{project / 'figures' / 'index.html'}\n"
