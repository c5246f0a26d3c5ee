"""Sphinx builds the site from the files where they are: README.md, docs/, the notebooks, and docstrings (`make docs`).

Nothing is executed. The page of a notebook shows its executed copy: that of `spml figures`, else that of the profile
smoke.
"""

import re
import shutil
import sys
from pathlib import Path

import nbformat
from docutils import nodes
from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from spml_core.headless import gallery, planning  # noqa: E402

project = "SPML notebooks"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.apidoc"]
root_doc = "README"
include_patterns = ["README.md", "data/README.md", "docs/*.md", "docs/api/*", "notebooks/*.ipynb"]
exclude_patterns = [".*", "build", "runs", "figures", "tests", "data/[!R]*"]  # large ones are not searched

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # a page has no kernel, so there are no widgets either

apidoc_modules = [{"path": "../spml_core", "destination": "docs/api", "automodule_options": {"members"}}]
apidoc_module_first = True
autodoc_default_options = {"ignore-module-all": True}  # each name once, where it is defined
napoleon_use_ivar = True
smartquotes = False
highlight_language = "none"  # of blocks that name no language: commands, mostly

html_theme = "furo"
html_title = project
html_math_renderer = "mathml"  # browsers draw it by themselves; MathJax would come from the network
html_copy_source = html_show_sourcelink = False
html_show_search_summary = False  # fetching pages is not allowed from disk

CONTENTS = """
## All pages

{gallery}

```{{toctree}}
:caption: Guide
:glob:
docs/installation
docs/notebooks
data/README
docs/*
```

```{{toctree}}
:caption: Notebooks
:glob:
notebooks/*
```

```{{toctree}}
:caption: Python
:maxdepth: 1
docs/api/modules
```
"""
GOOGLE = re.compile(r"(Args|Attributes|Returns|Raises|Yields):$")  # sections of a docstring, for napoleon


def executed(profile: str) -> dict[str, planning.Planned]:
    """Return by name the notebooks that have an executed copy of a profile."""
    return {
        one.name: one
        for one in planning.plan(profile=profile)
        if one.output.is_file() and one.stamp.is_file()
    }


PROFILE = "quick" if (COPIES := executed("quick")) else "smoke"
COPIES = COPIES or executed("smoke")


def read(app, page: str, source: list[str]) -> None:
    """Give README.md its table of contents, and a notebook the outputs of its executed copy."""
    folder, _, name = page.rpartition("/")
    if page == root_doc:
        link = '<a href="gallery/index.html">All figures and tables, with the claims of the papers</a>'
        source[0] += CONTENTS.format(gallery=link if COPIES else "")
    elif folder == "notebooks":
        source[0] = with_outputs(name, source[0])


def with_outputs(name: str, text: str) -> str:
    """Return a notebook's JSON with its outputs, and after its title what they were computed with."""
    if name not in COPIES:
        note = "Not executed yet: `spml figures`, then `make docs` again, shows its figures here."
    else:
        one = COPIES[name]
        text = one.output.read_text(encoding="utf-8")
        note = f"Executed with the profile *{PROFILE}* ({one.state}); the cell *Parameters* below has the values."
        if PROFILE == "smoke":
            note += " This profile only checks that everything runs: **the numbers mean nothing.**"
        note += (
            f' <a href="../gallery/notebooks/{name}.ipynb">Executed notebook</a>, '
            '<a href="../gallery/index.html">figures as PDF and data</a>.'
        )
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(filter(None, map(still, cell.outputs)))
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(note))
    return nbformat.writes(notebook)


def still(output):
    """Return an output without its widget: its picture if it has one, else None."""
    data = output.get("data", {})
    live = data.pop("application/vnd.jupyter.widget-view+json", None)
    return output if live is None or "image/png" in data else None


def markdown(app, what, name, obj, options, lines: list[str]) -> None:
    """Turn a docstring's Markdown (`code`, indented blocks, bare | and *) into reStructuredText."""
    section, converted = False, []
    for n, line in enumerate(lines):
        section = bool(GOOGLE.match(line)) or (section and (not line or line[0] == " "))
        indented = line.startswith("    ") and not section
        if indented and not lines[n - 1]:
            converted += ["::", ""]
        converted.append(line if indented else re.sub(r"`([^`]+)`(\w?)|([|*])|(_)(?!\w)", escaped, line))
    lines[:] = converted


def escaped(match: re.Match) -> str:
    code, glued, sign, underscore = match.groups()
    return f"``{code}``" + (f"\\ {glued}" if glued else "") if code else "\\" + (sign or underscore)


def formula(display: str):
    def write(translator, node):
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return write, None


def finish(app, failed) -> None:
    """Write index.html, and the gallery with its figures and the executed notebooks."""
    (app.outdir / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={root_doc}.html">')
    if failed or not COPIES:
        return
    folder = app.outdir / "gallery"
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for one in COPIES.values():
        notebook = nbformat.read(one.output, as_version=4)
        notebook.metadata.pop("papermill", None)  # paths of this machine
        nbformat.write(notebook, folder / "notebooks" / one.output.name)
    for file in one.folder.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    gallery.write(folder)


def setup(app) -> None:
    app.add_html_math_renderer("mathml", formula("inline"), formula("block"))
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", markdown, priority=400)  # before napoleon
    app.connect("build-finished", finish)
