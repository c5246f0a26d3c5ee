"""Figures that go into a paper as they are: venue sizes, colours by method, files that do not change without reason."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from tueplots import axes, figsizes, fontsizes

from spml_core.paths import locate

# Column and text width in inches, as IJCAI's style file sets them; tueplots, which gives the rest, has no IJCAI entry.
WIDTHS = {"column": 3.375, "text": 7.0}

# A method has the same colour in every figure; safe for colour-blind readers.
_PALETTE = sns.color_palette("colorblind", 10).as_hex()
METHOD_COLORS = {
    "gr": _PALETTE[0],
    "an": _PALETTE[3],
    "em": _PALETTE[2],
    "hill": _PALETTE[1],
    "wan": _PALETTE[4],
    "focal": _PALETTE[7],
    "mse": _PALETTE[6],
    "fm_splc": _PALETTE[5],
    "asl": _PALETTE[9],
    "bce": "#000000",
}
METHOD_LABELS = {
    "gr": "GR",
    "an": "AN",
    "em": "EM",
    "hill": "Hill",
    "wan": "WAN",
    "focal": "Focal",
    "mse": "MSE",
    "fm_splc": "FM+SPLC",
    "asl": "ASL",
    "bce": "BCE (full labels)",
}
POSITIVE, NEGATIVE = _PALETTE[0], _PALETTE[1]


def subplots(
    nrows: int = 1, ncols: int = 1, *, width: str = "column", height_to_width: float = 0.68, **options
):
    """`plt.subplots` for a figure of IJCAI width.

    Sets matplotlib's defaults for the rest of the session, since text and lines take theirs when they are drawn.
    Fonts are STIX, which ship with matplotlib and look like Times: nothing to install, the same file everywhere.

    Args:
        width: "column" (3.375 in) or "text" (7 in).
        height_to_width: of each of the axes in the grid.
        options: of `plt.subplots`, e.g. sharey=True.

    Raises:
        ValueError: unknown width.
    """
    if width not in WIDTHS:
        raise ValueError(f"unknown width {width!r}: use one of {', '.join(WIDTHS)}")
    size = figsizes.aaai2024_full if width == "text" else figsizes.aaai2024_half
    mpl.rcParams.update(size(nrows=nrows, ncols=ncols) | fontsizes.aaai2024() | axes.lines(base_width=0.6))
    mpl.rcParams.update(
        {
            "figure.figsize": (WIDTHS[width], WIDTHS[width] / ncols * height_to_width * nrows),
            "figure.dpi": 150,
            "font.family": "STIXGeneral",
            "mathtext.fontset": "stix",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
        }
    )
    return plt.subplots(nrows, ncols, **options)


def save_figure(fig: Figure, name: str, data: pd.DataFrame, directory: str | Path = "figures") -> None:
    """Write NAME.pdf, NAME.png (300 dpi) and NAME.csv, the numbers behind the figure.

    Fonts are embedded as Type 42, which conferences accept; no file holds a date or a random id, so the same data
    gives the same bytes. A relative `directory` is taken from the project folder, wherever the notebook runs.

    Args:
        name: stem of the files, beginning with the notebook's number, e.g. "06b-after-training".
    """
    folder = locate(directory)
    folder.mkdir(parents=True, exist_ok=True)
    data.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        fig.savefig(
            folder / f"{name}.pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None}
        )
        fig.savefig(folder / f"{name}.png", dpi=300, metadata={"Software": None})


def save_headline(name: str, numbers: dict, directory: str | Path = "figures") -> None:
    """Write and print a notebook's headline numbers, NAME.json: the first is the headline, floats keep 4 digits.

    Raises:
        ValueError: a number is NaN or infinite; names it, and nothing is written.
    """
    rounded = {}
    for key, value in numbers.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"headline number {key!r} is {value}: look at what it is computed from")
            value = float(f"{value:.4g}")
        rounded[key] = value
    text = json.dumps(rounded, indent=1, allow_nan=False)
    folder = locate(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(text + "\n")
    print(text)
