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
