"""All panels on one page, for Voilà (`spml explore --app`)."""

import html
import os
from collections.abc import Callable
from pathlib import Path

import ipywidgets as widgets

from spml_core.explore.choosing import NothingToShow
from spml_core.explore.landscape_viewer import LandscapeViewer
from spml_core.explore.loss_lab import LossLab
from spml_core.explore.panel import alert
from spml_core.explore.predictions import Predictions
from spml_core.explore.run_browser import RunBrowser

PAGE = Path(__file__).with_name("app.ipynb")


def app(runs_dir: str = "runs") -> widgets.Tab:
    """Return one tab per panel, of the runs in `runs_dir`; a relative path lies in the project folder.

    The environment variable SPML_PROJECT names the project folder, for `spml explore` started elsewhere.
    """
    os.chdir(os.environ.get("SPML_PROJECT", "."))
    tabs = {
        "Loss lab": LossLab(runs_dir=runs_dir),
        "Runs": Later(lambda: RunBrowser(runs_dir)),
        "Landscapes": Later(lambda: LandscapeViewer(f"{runs_dir}/landscapes")),
        "Predictions": Later(lambda: Predictions(runs_dir)),
    }
    page = widgets.Tab([*tabs.values()], titles=[*tabs])

    def opened(change):
        tab = page.children[change["new"] or 0]
        if isinstance(tab, Later) and tab.panel is None:
            tab.show()

    page.observe(opened, "selected_index")
    return page


class Later(widgets.VBox):
    """A panel created when its tab is opened or "Reload" is pressed; with nothing to show, it says what to do."""

    def __init__(self, make: Callable[[], widgets.Widget]):
        self.make, self.panel = make, None
        self.again = widgets.Button(description="Reload", tooltip="look for runs and surfaces again")
        self.again.on_click(lambda _: self.show())
        self.note = widgets.HTML("reading ...")
        super().__init__([self.again, self.note])

    def show(self) -> None:
        """Create the panel again."""
        self.children = [self.again, self.note]
        try:
            self.panel = self.make()
            self.children = [self.again, self.panel]
        except NothingToShow as reason:
            text = str(reason)
            self.note.value = f"<p>{html.escape(text[0].upper() + text[1:])}.</p>"
        except Exception as error:
            self.note.value = alert(error)
            raise
