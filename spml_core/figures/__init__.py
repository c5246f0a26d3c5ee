"""Figures and tables in the sizes and fonts of a venue, and the claims they support: all that a notebook needs."""

from spml_core import extra

with extra("notebooks"):
    from spml_core.figures.claims import VERDICTS, Claim, Interval, mean_sd, save_headline
    from spml_core.figures.figure import (
        FONT,
        context,
        dataset_name,
        detached,
        find_venue,
        panels,
        save_figure,
        subplots,
        use,
        venues,
    )
    from spml_core.figures.palette import NEGATIVE, POSITIVE, color, label, style
    from spml_core.figures.tables import save_table

__all__ = [
    "FONT", "NEGATIVE", "POSITIVE", "VERDICTS", "Claim", "Interval", "color", "context",
    "dataset_name", "detached", "find_venue", "label", "mean_sd", "panels", "save_figure", "save_headline",
    "save_table", "style", "subplots", "use", "venues",
]  # fmt: skip
