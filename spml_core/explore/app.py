"""All panels on one page, for Voilà (`spml explore --app`)."""

import os
from pathlib import Path

import ipywidgets as widgets

from spml_core.explore.loss_lab import loss_lab

PAGE = Path(__file__).with_name("app.ipynb")


def app() -> widgets.Tab:
    """A tab for each panel. The environment's SPML_PROJECT is the folder whose runs they show."""
    os.chdir(os.environ.get("SPML_PROJECT", "."))
    panels = {"Loss lab": loss_lab()}
    return widgets.Tab([*panels.values()], titles=[*panels])
