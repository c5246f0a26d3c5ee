"""All panels on one page, for Voilà (`spml explore --app`)."""

import html
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ipywidgets as widgets

from spml_core.explore.choosing import NothingToShow
from spml_core.explore.landscape_viewer import landscape_viewer
from spml_core.explore.loss_lab import loss_lab
from spml_core.explore.panel import alert
from spml_core.explore.predictions import predictions
from spml_core.explore.run_browser import run_browser

PAGE = Path(__file__).with_name("app.ipynb")
PANELS = {  # each takes the folder of runs
    "Loss lab": lambda runs_dir: loss_lab(runs_dir=runs_dir),
    "Runs": run_browser,
    "Landscapes": lambda runs_dir: landscape_viewer(f"{runs_dir}/landscapes"),
    "Predictions": predictions,
}


def app(runs_dir: str = "runs") -> widgets.Tab:
    """Return one tab per panel, of the runs in `runs_dir`; a relative path lies in the project folder.

    The environment variable SPML_PROJECT names the project folder, for `spml explore` started elsewhere.
    """
    os.chdir(os.environ.get("SPML_PROJECT", "."))
    tabs = [Later(partial(make, runs_dir)) for make in PANELS.values()]
    page = widgets.Tab(tabs, titles=[*PANELS])
    page.observe(lambda change: tabs[change["new"] or 0].show(), "selected_index")
    tabs[0].show()
    return page


class Later(widgets.VBox):
    """A panel that is made when it is opened; where there is nothing to show yet, it says how to make some."""

    def __init__(self, make: Callable[[], widgets.Widget]):
        self.make, self.panel = make, None
        self.note = widgets.HTML("reading ...")
        self.again = widgets.Button(description="Look again")
        self.again.on_click(lambda _: self.show())
        super().__init__([self.note])

    def show(self) -> None:
        """Make the panel, unless it is there."""
        if self.panel is not None:
            return
        self.children = [self.note, self.again]  # in case of an error
        try:
            self.panel = self.make()
        except NothingToShow as reason:
            text = str(reason)
            self.note.value = f"<p>{html.escape(text[0].upper() + text[1:])}.</p>"
        except Exception as error:
            self.note.value = alert(error)
            raise
        else:
            self.children = [self.panel]
