"""What the commands share: tables on screen, values from the command line, warnings as a reader wants them."""

import os
import warnings
from contextlib import suppress

ROOT = "Folder of the data set; a relative one starts at the project folder."
DROP = (
    "Share of an image's positives to take away, 0 to 1: of n, floor(n (1 - RATIO)) + 1 stay, at most n. Of 5 "
    "positives, 0 leaves 5, 0.5 leaves 3, 0.8 leaves 2, 1 leaves 1. Hill/SPLC published 0.5, 0.8 and 1."
)
PREPARED = ("size",)  # options of `data.load` that say nothing of labels and files


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in cells)


def warned(runs) -> str:
    """A line for each sign that a training learned nothing."""
    return "\n".join(
        f"warning: {run.path.name}: {text}" for run in runs for text in run.summary.get("warnings", [])
    )


def values(pairs: tuple[tuple[str, str], ...]) -> dict:
    """Command-line text as JSON where it is JSON ("[0, 1]", "1e-4", "false", "null"), else as text."""
    import json

    values = {}
    for name, text in pairs:
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values


def plain_warnings(context) -> None:
    """While a command runs, a warning is one line of text, not a line of code."""
    before = warnings.formatwarning
    context.call_on_close(lambda: setattr(warnings, "formatwarning", before))
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"Warning: {message}\n"


def label_options(pairs: tuple[tuple[str, str], ...]) -> dict:
    """`values` of `-d` where only label files are read, so that what is given to `spml train` may be given here."""
    return {name: value for name, value in values(pairs).items() if name not in PREPARED}


def bars_without_a_width() -> None:
    """A terminal that does not know its width, as in some containers, gets bars of 80 columns: else it gets none."""
    with suppress(OSError):
        if os.get_terminal_size(2).columns == 0:
            os.environ.setdefault("TQDM_NCOLS", "80")
            os.environ.setdefault("TQDM_NROWS", "24")
