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
    """A tab for each panel, of the runs in `runs_dir`; a relative one lies in the project.

    The environment's SPML_PROJECT is the project's folder, where `spml explore` starts in another.
    """
    os.chdir(os.environ.get("SPML_PROJECT", "."))
    tabs = [Later(partial(make, runs_dir)) for make in PANELS.values()]
    page = widgets.Tab(tabs, titles=[*PANELS])
    page.observe(lambda change: tabs[change["new"] or 0].show(), "selected_index")
    tabs[0].show()
    return page


class Later(widgets.VBox):
    """A panel that is made when it is opened; where there is nothing to show yet, it says what makes it."""

    def __init__(self, make: Callable[[], widgets.Widget]):
        self.make, self.panel = make, None
        self.told = widgets.HTML("reading ...")
        self.again = widgets.Button(description="Look again")
        self.again.on_click(lambda _: self.show())
        super().__init__([self.told])

    def show(self) -> None:
        """Make the panel, unless it is there."""
        if self.panel is not None:
            return
        try:
            self.panel = self.make()
        except NothingToShow as reason:
            text = str(reason)
            self.told.value = f"<p>{html.escape(text[0].upper() + text[1:])}.</p>"
            self.children = [self.told, self.again]
        except Exception as error:
            self.told.value = (
                f"<p style='color: #b00020'>{html.escape(f'{type(error).__name__}: {error}')}</p>"
            )
            self.children = [self.told, self.again]
            raise
        else:
            self.children = [self.panel]
