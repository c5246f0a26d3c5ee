"""index.html of a folder of figures: every figure and table with its caption, data and notebook, in one static page.

The page opens from disk: no server, no network, nothing but links to the files beside it. This module collects its
content; page.html.jinja and gallery.html.jinja define its layout.
"""

import csv
import json
import os
import re
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from pylatexenc.latex2text import LatexNodes2Text

from spml_core.figures.claims import MIN_SEEDS, NOT_JUDGED, decided, tally
from spml_core.headless.contract import Notebook, Promise, executed_dir, find, findings, read_json
from spml_core.paths import command, locate, write_whole
from spml_core.words import count

MAX_ROWS = 100  # of a table's preview, which scrolls
WHERE = ("runs_dir", "figures_dir", "root")  # parameters that say where things lie on one machine
FORMATS = ("pdf", "svg", "png", "tex", "csv")


def write(folder: str | Path) -> Path:
    """Write FOLDER/index.html from the files that notebooks have left there, and return its path.

    A notebook without figures in the folder is left out. The page holds no date, so the same figures give the same
    bytes.

    Raises:
        NotebookError: there are no notebooks, or one cannot be read.
    """
    folder = locate(folder)
    sections = list(filter(None, (_section(notebook, folder) for notebook in find())))
    page = render(
        "gallery",
        sections=sections,
        decided=decided(claim for section in sections for claim in section["claims"]),
        command=command(),
        MAX_ROWS=MAX_ROWS,
        MIN_SEEDS=MIN_SEEDS,
        NOT_JUDGED=NOT_JUDGED,
    )
    write_whole(folder / "index.html", page)
    return folder / "index.html"


def render(template: str, **content) -> str:
    """Return the page of a template of this folder, `<template>.html.jinja`, with this content."""
    options = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    looks = Environment(loader=PackageLoader("spml_core", "headless"), **options)
    looks.filters["count"] = count
    looks.filters["text"] = lambda value: value if isinstance(value, str) else json.dumps(value)
    return looks.get_template(f"{template}.html.jinja").render(content)


def _section(notebook: Notebook, folder: Path) -> dict | None:
    """Return a notebook's section, its findings and a card for each figure and table; None if it has none of these."""
    cards = list(filter(None, (_card(promise, folder) for promise in notebook.promises)))
    if not cards:
        return None
    numbers, claims = findings(folder, notebook.name)
    values = read_json(folder / f"{notebook.name}.parameters.json")
    copy = executed_dir(folder) / f"{notebook.name}.ipynb"
    return {
        "title": plain(notebook.title) or notebook.name,
        "executed": _link(os.path.relpath(copy, folder)) if copy.is_file() else "",
        "claims": claims,
        "tally": tally(claims),
        "numbers": numbers,
        "parameters": {key: value for key, value in values.items() if key not in WHERE},
        "helps": {name: parameter.help for name, parameter in notebook.parameters.items()},
        "cards": cards,
    }


def _card(promise: Promise, folder: Path) -> dict | None:
    """Return a figure or table with its preview, None if it does not exist."""
    name = promise.name
    formats = [suffix for suffix in FORMATS if (folder / f"{name}.{suffix}").is_file()]
    if ("png" if promise.kind == "figure" else "csv") not in formats:
        return None
    card = read_json(folder / f"{name}.caption.json")
    card |= {"name": name, "link": _link(name), "formats": formats, "kind": promise.kind}
    if promise.kind == "table":
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            card["rows"] = list(csv.reader(file))
    return card


def plain(text: str) -> str:
    """Return a notebook's Markdown and TeX as plain text: "the weight $\\hat k$" becomes "the weight k̂"."""
    text = re.sub(r"\$(.+?)\$", lambda formula: LatexNodes2Text().latex_to_text(formula[1]), text)
    return re.sub(r"`|\*\*", "", text)


def _link(path: str) -> str:
    return quote(Path(path).as_posix())
