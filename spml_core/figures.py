"""Figures that go into a paper as they are: venue sizes, colours by method, files that do not change without reason."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from tueplots import figsizes

from spml_core.paths import locate

# Column and text width in inches. IJCAI's style file sets 3.375 and 7.0; tueplots has no IJCAI entry.
WIDTHS = {"column": 3.375, "text": 7.0}

# A method has the same colour in every figure; safe for colour-blind readers.
_PALETTE = sns.color_palette("colorblind", 10).as_hex()
METHOD_COLORS = {
    "gr": _PALETTE[0],
    "an": _PALETTE[3],
    "em": _PALETTE[2],
    "hill": _PALETTE[1],
    "wan": _PALETTE[4],
    "bce": "#000000",
}
METHOD_LABELS = {"gr": "GR", "an": "AN", "em": "EM", "hill": "Hill", "wan": "WAN", "bce": "BCE (full labels)"}
POSITIVE, NEGATIVE = _PALETTE[0], _PALETTE[1]


@contextmanager
def style(width: str = "column", nrows: int = 1, ncols: int = 1, height_to_width: float = 0.68):
    """Matplotlib settings for a figure of IJCAI width, in a `with` block around plt.subplots.

    Args:
        width: "column" (3.375 in) or "text" (7 in).
        nrows, ncols: of the grid of axes; each has the same ratio of height to width.

    Fonts are STIX, which ship with matplotlib and look like Times: nothing to install, the same file everywhere.
    """
    size = (
        figsizes.aaai2024_full if width == "text" else figsizes.aaai2024_half
    )  # for its margins and layout engine
    settings = size(nrows=nrows, ncols=ncols, height_to_width_ratio=height_to_width)
    own_height = WIDTHS[width] / ncols * height_to_width * nrows
    settings["figure.figsize"] = (WIDTHS[width], own_height)
    settings |= {
        "font.family": "STIXGeneral",
        "mathtext.fontset": "stix",
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.labelsize": 9,
        "legend.fontsize": 7.5,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.2,
        "legend.frameon": False,
        "figure.dpi": 150,
    }
    with mpl.rc_context(settings):
        yield


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
    """Write and print a notebook's headline numbers, NAME.json; the first entry is the headline."""
    folder = locate(directory)
    folder.mkdir(parents=True, exist_ok=True)
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in numbers.items()}
    text = json.dumps(rounded, indent=1, allow_nan=False)
    (folder / f"{name}.json").write_text(text + "\n")
    print(text)
