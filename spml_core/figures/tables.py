"""Tables that go into a paper as they are: CSV, LaTeX with booktabs, and captions."""

import json
import re
from pathlib import Path, PureWindowsPath

import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.display import display
from pylatexenc import latexencode

from spml_core.paths import locate, write_whole

OWN = [
    (re.compile("(\\w)\u0302"), r"\\ensuremath{\\hat \1}"),  # k̂ is two characters
    (re.compile("∅"), r"\\ensuremath{\\emptyset}"),  # the default rule needs amssymb
]
ENCODER = latexencode.UnicodeToLatexEncoder(
    conversion_rules=[latexencode.UnicodeToLatexConversionRule(latexencode.RULE_REGEX, OWN), "defaults"],
    replacement_latex_protection="braces-after-macro",
    unknown_char_policy="keep",
    unknown_char_warning=False,
)


def save_table(
    table: pd.DataFrame,
    name: str,
    directory: str | Path = "figures",
    caption: str = "",
    context: str = "",
    *,
    source: str = "",
    bold: pd.DataFrame | None = None,
    float_format: str = "%.2f",
) -> None:
    """Show a table and write NAME.csv, NAME.tex (LaTeX with booktabs) and NAME.caption.json.

    Args:
        table: as it should look, without its index; a cell may be text such as "96.3 ± 0.7" (`mean_sd`).
        name, caption, context, source: as in `save_figure`; in LaTeX the label is tab:NAME.
        bold: booleans in the shape of `table`: cells set in bold, in LaTeX.
        float_format: format of floats on screen and in LaTeX; the CSV keeps 6 digits. A missing number is "--".

    Raises:
        ValueError: `bold` has another shape, or the name is not a file name.
    """
    if bold is not None and bold.shape != table.shape:
        raise ValueError(f"bold has the shape {bold.shape}, the table {table.shape}: they must be the same")

    def text(cell) -> str:
        if pd.isna(cell):
            return "--"
        return float_format % cell if isinstance(cell, float | np.floating) else str(cell)

    about = {"kind": "table", "caption": caption, "context": context, "source": source}
    stem = write_data(name, directory, table, about)
    shown = table.astype(object).map(text)
    cells = shown.map(tex)
    if bold is not None:
        cells = cells.where(~bold.astype(bool).to_numpy(), cells.map(lambda cell: rf"\textbf{{{cell}}}"))
    numeric = [shown.iloc[:, n].str.match(r"[-+−]?\d|--|$").all() for n in range(shown.shape[1])]
    latex = cells.rename(columns=tex).to_latex(
        index=False,
        escape=False,
        position="t",
        column_format="".join("r" if number else "l" for number in numeric),
        caption=tex(" ".join(filter(None, [caption, context and f"({context})"]))) or None,
        label=f"tab:{name}",
    )
    head, body = latex.split("\n", 1)
    stem.with_name(f"{name}.tex").write_text(f"{head}\n\\centering\n\\small\n{body}", encoding="utf-8")
    plain = shown.to_string(index=False)
    if get_ipython() is None:
        print(plain)
    else:
        display({"text/html": shown.to_html(index=False), "text/plain": plain}, raw=True)


def tex(text: str) -> str:
    """Return plain text as LaTeX: special characters are escaped, Greek letters and ± become commands."""
    return ENCODER.unicode_to_latex(str(text))


def write_data(name: str, directory: str | Path, data: pd.DataFrame, about: dict) -> Path:
    """Write what figures and tables share, NAME.csv and NAME.caption.json, and return the path without a suffix.

    The numbers have 6 digits and the same bytes on every system; the caption, `about` as JSON, is for the gallery and
    for whoever puts the figure into a paper.

    Raises:
        ValueError: the name is not a file name but leads into another folder.
    """
    if PureWindowsPath(name).name != name or name in ("", ".", "..") or not name.isprintable():
        raise ValueError(
            f"{name!r} is not a file name: use one without / and \\, such as 'loss-lab'; the folder is {directory}"
        )
    folder = locate(directory)
    text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / f"{name}.caption.json", text)
    data.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    return folder / name
