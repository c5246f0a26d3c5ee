"""Figures and tables that go into a paper as they are: venue sizes, captions, files with reproducible bytes.

In a notebook:

    figures.use("icml")                                        once per notebook; without it, IJCAI
    fig, ax = figures.subplots()
    ax.plot(x, y, **figures.style("gr"))
    save_figure(fig, "07a-wasserstein", frame, figures_dir, caption="...", context=context(runs), source="GR Fig 3a")
    save_table(frame, "03a-benchmark", figures_dir, caption="...", context=context(runs), source="GR Table 2")
    save_headline("07-distinguishability", numbers, figures_dir, claims=[Claim(...)])
"""

import re
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib import font_manager
from matplotlib.figure import Figure
from tueplots import axes, figsizes, fontsizes

from spml_core.figures.tables import write_data
from spml_core.words import check_name, count

# Ships with matplotlib and looks like Times: nothing to install, the same file everywhere.
FONT = "STIXGeneral"
# Venues that tueplots lacks: column and text width in inches, from their style files, and whose font sizes they use.
OWN_VENUES = {"ijcai2024": (3.375, 7.0, "aaai2024"), "ieee": (3.5, 7.16, "icml2024")}
_chosen = {"venue": "ijcai2024", "formats": (), "font": FONT, "font_asked": FONT}


def venues() -> list[str]:
    """Return the names that `use` and `subplots` know. A name without its year means the latest year."""
    sized = {re.sub("_(half|full)$", "", name) for name in dir(figsizes)}
    dated = {name for name in sized if re.fullmatch(r"[a-z]+\d{4}", name)}
    return sorted(dated & set(dir(fontsizes)) | {*OWN_VENUES})


def use(venue: str = "ijcai2024", formats: Collection[str] = (), font: str = FONT) -> None:
    """Set venue, file formats and font of all following figures of this session.

    Args:
        venue: "ijcai2024", "icml", "neurips", "cvpr", "ieee", ...: see `venues`.
        formats: file formats besides PDF and PNG; "svg" is the only one.
        font: family of all text. One that is not installed is replaced by STIX, with a warning, and both names are
            written beside each figure.

    Raises:
        ValueError: unknown venue or format.
    """
    if unknown := sorted({*formats} - {"svg"}):
        raise ValueError(f"unknown format {unknown[0]!r}: besides pdf and png, only svg can be written")
    installed = font in font_manager.get_font_names()
    if not installed:
        warnings.warn(
            f"font {font!r} is not installed: figures use {FONT}, which looks like Times", stacklevel=2
        )
    used = font if installed else FONT
    _chosen.update(venue=find_venue(venue), formats=tuple(formats), font=used, font_asked=font)


def find_venue(name: str) -> str:
    """Return the full name of a venue, "icml2024" for "icml".

    Raises:
        ValueError: unknown venue.
    """
    matches = [known for known in venues() if name in (known, known.rstrip("0123456789"))]
    if not matches:
        raise ValueError(f"unknown venue {name!r}: use one of {', '.join(venues())}")
    return matches[-1]


def _sizes(venue: str) -> tuple[dict[str, float], dict]:
    """Return widths in inches, and font sizes."""
    if venue in OWN_VENUES:
        column, text, fonts = OWN_VENUES[venue]
        return {"column": column, "text": text}, getattr(fontsizes, fonts)()
    width = lambda name: getattr(figsizes, name)()["figure.figsize"][0]  # noqa: E731
    if hasattr(figsizes, venue):  # a single-column page: 0.6 of its width leaves room for a legend
        found = {"column": 0.6 * width(venue), "text": width(venue)}
    else:
        found = {"column": width(f"{venue}_half"), "text": width(f"{venue}_full")}
    return found, getattr(fontsizes, venue)()


def subplots(
    nrows: int = 1,
    ncols: int = 1,
    *,
    width: str = "column",
    height_to_width: float = 0.68,
    figure: Callable[[], Figure] = plt.figure,
    **options,
):
    """Return figure and axes, as `plt.subplots` does, as wide as a venue's column or text.

    Sets matplotlib's defaults for the rest of the session, since text and lines read them when they are drawn.

    Args:
        width: "column" or "text", 3.375 and 7 inches at IJCAI; on a page with one column, "column" is 0.6 of it. The
            venue is the one that `use` has set.
        height_to_width: of each of the axes in the grid.
        figure: function that makes the figure, see `detached`.
        options: of `Figure.subplots`, e.g. sharey=True.

    Raises:
        ValueError: unknown width.
    """
    widths, texts = _sizes(_chosen["venue"])
    check_name("width", width, widths)
    own = {
        "figure.figsize": (widths[width], widths[width] / ncols * height_to_width * nrows),
        "figure.dpi": 150,
        "font.family": _chosen["font"],
        "mathtext.fontset": "stix",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    mpl.rcParams.update(figsizes.aaai2024_half() | texts | axes.lines(base_width=0.6) | own)
    fig = figure()
    return fig, fig.subplots(nrows, ncols, **options)


def panels(number: int, columns: int = 3, **options) -> tuple[Figure, list]:
    """Return a figure with `number` axes in rows of at most `columns`, and the list of the axes.

    It is as wide as the text, or as a column if there is one panel. Axes above an empty cell show their tick labels.

    Args:
        options: of `subplots`.
    """
    columns = min(columns, number)
    width = "text" if number > 1 else "column"
    fig, grid = subplots(-(-number // columns), columns, width=width, squeeze=False, **options)
    for empty in grid.flat[number:]:
        empty.set_axis_off()
    for last in grid.flat[max(number - columns, 0) : number]:
        last.tick_params(labelbottom=True)
    return fig, list(grid.flat[:number])


def detached(nrows: int = 1, ncols: int = 1, *, width: str = "text", **options):
    """Return `subplots` of a figure that pyplot does not manage: only its owner shows it, and it is freed with it."""
    return subplots(nrows, ncols, width=width, figure=Figure, **options)


def dataset_name(dataset: str, root: str | Path | None) -> str:
    """Return the name of a data set; for one of the kind "folder", the name of its folder."""
    return Path(root).name if dataset == "folder" and root else dataset


def context(runs: Iterable, epoch: str = "best") -> str:
    """Return the conditions of the runs that a figure shows: data, backbone, seeds, choice of epoch, exact or not.

    Args:
        runs: `spml_core.runs.Run`s.
        epoch: "best", or a description of the epochs shown instead, e.g. "last epoch", "every epoch".

    Returns:
        e.g. "digits (4,000 training images), digits_cnn, 3 seeds, best epoch on clean validation labels, exact losses"
    """
    noted = [(run.config, run.summary) for run in runs]
    if not noted:
        raise ValueError("context() needs the runs that the figure shows; there are none")

    def each(texts) -> str:
        return " / ".join(dict.fromkeys(texts))

    configs, summaries = zip(*noted, strict=True)
    seeds = len({config["seed"] for config in configs})
    sizes = [f"{summary['data']['sizes']['train']:,} training images" for summary in summaries]
    names = [dataset_name(config["dataset"], config.get("root")) for config in configs]
    floors = {config["method"]: config["params"].get("log_floor", 0) for config in configs}
    floored = ", ".join(f"{method} {floor:g}" for method, floor in floors.items() if floor)
    rules = [summary.get("select", "map") for summary in summaries]
    chosen = each(
        f"best epoch on {summary['val_labels']} validation labels" + f" by {rule}" * (rule != "map")
        for summary, rule in zip(summaries, rules, strict=True)
    )
    parts = [
        each(f"{name} ({size})" for name, size in zip(names, sizes, strict=True)),
        each(config["backbone"] + " (frozen)" * (config["mode"] == "linear") for config in configs),
        count(seeds, "seed"),
        chosen if epoch == "best" else epoch,
        f"losses as published (log floor: {floored})" if floored else "exact losses",
    ]
    return ", ".join(parts)


def save_figure(
    fig: Figure,
    name: str,
    data: pd.DataFrame,
    directory: str | Path = "figures",
    caption: str = "",
    context: str = "",
    *,
    source: str = "",
) -> None:
    """Write NAME.pdf, NAME.png (300 dpi), NAME.csv, the numbers behind the figure, and NAME.caption.json.

    Fonts are embedded as Type 42, which conferences accept; no file holds a date or a random id, so the same data
    gives the same bytes. A relative `directory` is relative to the project folder, wherever the notebook runs.

    Args:
        name: stem of the files, beginning with the notebook's number, e.g. "06b-after-training".
        caption: one or two sentences; also title of the PDF, and what a screen reader says in the gallery.
        context: the conditions, see the function `context`.
        source: the figure of a paper that this redraws, e.g. "GR Fig 3a"; several are joined by "; ".

    Raises:
        ValueError: the name is not a file name but leads into another folder.
    """
    about = {"kind": "figure", "caption": caption, "context": context, "source": source}
    about |= {"font": _chosen["font"], "font_asked": _chosen["font_asked"]}
    stem = write_data(name, directory, data, about)
    title = {"Title": caption or name}
    silent = dict.fromkeys(("CreationDate", "Producer", "Creator"))
    fixed = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": name}
    with mpl.rc_context(fixed):
        fig.savefig(f"{stem}.pdf", metadata=title | {"Subject": context or None} | silent)
        fig.savefig(f"{stem}.png", dpi=300, metadata={"Software": None})
        if "svg" in _chosen["formats"]:
            fig.savefig(f"{stem}.svg", metadata=title | {"Date": None, "Creator": None})
