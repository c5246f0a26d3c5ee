"""Panels for JupyterLab and Voilà: controls beside a figure that follows them.

    from spml_core.explore import landscape_viewer, loss_lab, predictions, run_browser
    loss_lab()

The panels draw with the same functions as the notebooks' figures, and compute with the same code as training.
"""

from spml_core import extra

with extra("notebooks"):
    from spml_core.explore.landscape_viewer import LandscapeViewer as landscape_viewer
    from spml_core.explore.loss_lab import LossLab as loss_lab
    from spml_core.explore.panel import Panel
    from spml_core.explore.predictions import Predictions as predictions
    from spml_core.explore.run_browser import RunBrowser as run_browser
