"""`make docs`: no warning, no broken link, nothing from the network, and figures on the notebooks' pages."""

import base64
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output
from test_setup import make

from benchmarks import browser as driver

pytest.importorskip("myst_nb", reason="the extra docs is not installed")
PROJECT = Path(__file__).parents[1]
EXECUTED = "06-k-hat-assumptions"  # has formulas
FIGURE = PROJECT / "figures" / "gallery" / "06b-after-training.png"
WIDGET = "application/vnd.jupyter.widget-view+json"


class Page(HTMLParser):
    """Collects the links and the targets of a page."""

    def __init__(self, file: Path):
        super().__init__()
        self.links, self.targets, self.loads = [], set(), []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.targets.add(attrs.get("id"))
        found = [attrs[name] for name in ("href", "src") if attrs.get(name)]
        self.links += found
        self.loads += found if tag != "a" else []


def project(folder: Path, python: str) -> Path:
    """Return a copy of the project whose .venv has `python` and, for `spml`, a script that notes how it was called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "data/README.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, folder / name)
    for name in ("docs", "notebooks", "spml_core", "figures/gallery"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("api", "__pycache__"))
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, line in {"python": python, "spml": 'echo "$@" > called'}.items():
        script = folder / ".venv" / "bin" / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)
    (folder / ".venv" / ".installed-for").write_text(f"{folder}\n")
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the whole site, with one executed notebook: a figure, a panel with its picture, and a bare panel."""
    folder = project(tmp_path_factory.mktemp("site"), f'exec {sys.executable} "$@"')
    notebook = nbformat.read(PROJECT / "notebooks" / f"{EXECUTED}.ipynb", as_version=4)
    shown = {"image/png": base64.b64encode(FIGURE.read_bytes()).decode()}
    live = {WIDGET: {"model_id": "1", "version_major": 2, "version_minor": 0}, "text/plain": "a live panel"}
    outputs = [new_output("display_data", data) for data in (shown, live | shown, live)]
    notebook.cells.append(new_code_cell("epochs = 7", outputs=outputs))
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    executed = folder / "runs" / "notebooks" / f"{EXECUTED}.ipynb"
    executed.parent.mkdir(parents=True)
    nbformat.write(notebook, executed)
    executed.with_suffix(".json").write_text("{}")
    shutil.copy(FIGURE, folder / "figures")
    made = make(folder, "docs")
    assert made.returncode == 0, made.stdout + made.stderr
    assert not (folder / "called").exists()  # there are executed notebooks
    return folder / "build" / "site"


@pytest.mark.slow
def test_every_internal_link_leads_somewhere(site):
    pages = {file: Page(file) for file in site.rglob("*.html")}
    broken, checked = [], 0
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            exists = target.is_file()
            if exists and parts.fragment and target in pages:
                exists = unquote(parts.fragment) in pages[target].targets
            checked += 1
            broken += [] if exists else [(str(file.relative_to(site)), link)]
    assert checked > 1000 and not broken


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {link for file in site.rglob("*.html") for link in Page(file).loads}
    assert loaded and not [link for link in loaded if urlsplit(link).netloc]


@pytest.mark.slow
def test_every_document_notebook_and_room_has_a_page(site):
    documents = [
        "README.md",
        "data/README.md",
        *(f"docs/{file.name}" for file in (PROJECT / "docs").glob("*.md")),
    ]
    notebooks = [f"notebooks/{file.name}" for file in (PROJECT / "notebooks").glob("*.ipynb")]
    for name in (*documents, *notebooks):
        assert (site / name).with_suffix(".html").is_file()
    rooms = [file.parent.name for file in (PROJECT / "spml_core").glob("*/__init__.py")]
    for room in rooms:
        assert (site / "docs" / "api" / f"spml_core.{room}.html").is_file()
    losses = (site / "docs/api/spml_core.losses.html").read_text()
    assert 'id="spml_core.losses.robust.gr"' in losses


@pytest.mark.slow
def test_a_page_has_the_outputs_of_its_notebook_but_no_widget(site):
    text = (site / "notebooks" / f"{EXECUTED}.html").read_text()
    assert "profile <em>quick</em>" in text and "a live panel" not in text and "widget" not in text
    other = (site / "notebooks" / "01-losses-and-gradients.html").read_text()
    assert "Not executed yet" in other
    copy = nbformat.read(site / "gallery" / "notebooks" / f"{EXECUTED}.ipynb", as_version=4)
    assert copy.cells[-1].source == "epochs = 7"


@pytest.mark.slow
@pytest.mark.skipif(bool(driver.missing()), reason=f"no test in a browser: {driver.missing()}")
def test_in_a_browser_from_disk(site):
    with (
        driver.browser() as chromium,
        driver.page(chromium, (site / "index.html").as_uri()) as (page, errors),
    ):
        page.get_by_role("link", name=re.compile("^06 ")).first.click()
        page.wait_for_load_state()
        pictures = page.locator("article img")
        assert pictures.count() == 2
        assert pictures.evaluate_all("all => all.every(one => one.naturalWidth > 300)")
        assert page.locator("article math").first.bounding_box()["width"] > 5
        assert page.get_by_text("seeds: list[int]").first.is_visible()
        assert page.locator("article button:visible").count() == 0  # none would do anything without a kernel
        page.get_by_role("link", name="figures as PDF and data").click()
        assert page.locator('[id="06b-after-training"] img').evaluate("one => one.naturalWidth > 300")
        page.goto((site / "search.html").as_uri() + "?q=wasserstein")
        page.locator("#search-results li a").first.wait_for(timeout=20_000)
        driver.ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=driver.ARTEFACTS / "site-search.png")
        assert not errors


def test_without_executed_notebooks_the_smoke_profile_is_run_first(tmp_path):
    folder = project(tmp_path, "true")
    assert make(folder, "docs").returncode == 0
    assert (folder / "called").read_text() == "figures --profile smoke --jobs 2\n"


@pytest.mark.slow
def test_a_broken_link_stops_the_build(tmp_path):
    folder = project(
        tmp_path,
        f'exec {sys.executable} "$@" -D apidoc_modules= -D include_patterns=README.md,docs/glossary.md',
    )
    (folder / "docs" / "glossary.md").write_text("# Glossary\n\n[missing](not-there.md)\n")
    made = make(folder, "docs")
    assert made.returncode != 0 and "not-there.md" in made.stderr
