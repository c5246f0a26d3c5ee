"""Tables that go into a paper as they are: CSV, LaTeX with booktabs, and what stands under them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

from spml_core.paths import locate


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
        table: as it shall look, without its index; a cell may be text such as "96.3 ± 0.7" (`mean_sd`).
        name, caption, context, source: as in `save_figure`; in LaTeX the label is tab:NAME.
        bold: booleans in the shape of `table`: cells set in bold, in LaTeX.
        float_format: of floats on screen and in LaTeX; the CSV keeps 6 digits. A missing number is "--".

    Raises:
        ValueError: `bold` has another shape.
    """
    if bold is not None and bold.shape != table.shape:
        raise ValueError(f"bold has the shape {bold.shape}, the table {table.shape}: they must be the same")

    def text(cell) -> str:
        if isinstance(cell, float | np.floating):
            return "--" if math.isnan(cell) else float_format % cell
        return "--" if cell is None else str(cell)

    folder = locate(directory)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(table, folder / f"{name}.csv")
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
    (folder / f"{name}.tex").write_text("\n".join([head, r"\centering", r"\small", body]), encoding="utf-8")
    write_caption(folder / f"{name}.caption.json", "table", caption, context, source)
    _show(shown)


def _show(table: pd.DataFrame) -> None:
    from IPython import get_ipython
    from IPython.display import display

    plain = table.to_string(index=False)
    if get_ipython() is None:
        print(plain)
    else:
        display({"text/html": table.to_html(index=False), "text/plain": plain}, raw=True)


_GREEK = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    None, "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "varphi", "chi", "psi", "omega",
]  # fmt: skip
_TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{chr(0x3B1 + n): rf"$\{name}$" for n, name in enumerate(_GREEK) if name},
    **{
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "−": "$-$",
    },
    **{
        "±": r"$\pm$",
        "×": r"$\times$",
        "→": r"$\to$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "<": "$<$",
        ">": "$>$",
    },
    **{"Δ": r"$\Delta$", "∅": r"$\emptyset$"},
}


def tex(text: str) -> str:
    """Plain text as LaTeX: signs that mean something there are escaped, Greek letters and ± are set as mathematics."""
    text = re.sub("(\\w)\u0302", "\0\\1\1", str(text))  # k̂ is two characters
    text = text.translate(str.maketrans(_TEX))
    return text.replace("\0", r"$\hat ").replace("\1", "$")


def write_csv(data: pd.DataFrame, path: Path) -> None:
    """The numbers behind a figure or table: 6 digits, the same bytes on every system."""
    data.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def write_caption(path: Path, kind: str, caption: str, context: str, source: str, **more) -> None:
    """What stands under a figure or table, for the gallery and for whoever puts it into a paper."""
    content = {"kind": kind, "caption": caption, "context": context, "source": source} | more
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
