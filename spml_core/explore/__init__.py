"""Panels for JupyterLab and Voilà: controls beside a figure that follows them.

    from spml_core.explore import loss_lab
    loss_lab()

They draw with the functions that draw the notebooks' figures, and compute with those that train.
"""

from spml_core.explore.loss_lab import LossLab, loss_lab
from spml_core.explore.panel import Panel

__all__ = ["LossLab", "Panel", "loss_lab"]
