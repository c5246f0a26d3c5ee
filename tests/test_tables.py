"""Tables for a paper."""

import hashlib
import json

import pandas as pd
import pytest

from spml_core import figures
from spml_core.figures import tables

TABLE = pd.DataFrame(
    {
        "method": ["GR", "EM_APL", "k̂ & v"],
        "mAP": ["96.3 ± 0.7", "95.4", "--"],
        "β": [1.0, float("nan"), 1 / 3],
    }
)


def test_a_table_is_csv_and_latex(tmp_path, capsys):
    told = {"caption": "Test mAP, 5 % of α", "context": "digits, 3 seeds", "source": "GR Table 2"}
    figures.save_table(TABLE, "99a-test", tmp_path, **told, bold=TABLE == "96.3 ± 0.7")
    assert (tmp_path / "99a-test.csv").read_text().splitlines() == [
        "method,mAP,β", "GR,96.3 ± 0.7,1", "EM_APL,95.4,", "k̂ & v,--,0.333333"
    ]  # fmt: skip
    latex = (tmp_path / "99a-test.tex").read_text()
    assert latex.startswith("\\begin{table}[t]\n\\centering\n\\small\n\\caption{")
    for part in (
        r"\begin{tabular}{lrr}", r"\toprule", r"\bottomrule", r"\label{tab:99a-test}",
        r"\caption{Test mAP, 5 \% of \ensuremath{\alpha} (digits, 3 seeds)}",
        r"method & mAP & \ensuremath{\beta} \\", r"GR & \textbf{96.3 \ensuremath{\pm} 0.7} & 1.00 \\",
        r"EM\_APL & 95.4 & -- \\", r"\ensuremath{\hat k} \& v & -- & 0.33 \\",
    ):  # fmt: skip
        assert part in latex
    assert json.loads((tmp_path / "99a-test.caption.json").read_text()) == {"kind": "table"} | told
    shown = capsys.readouterr().out
    assert "0.33" in shown and "<table" not in shown


def test_again_gives_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        figures.save_table(TABLE, "99a-test", tmp_path / folder)
    one, two = (
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (tmp_path / folder).iterdir()}
        for folder in ("one", "two")
    )
    assert one == two and len(one) == 3


def test_bold_of_another_shape_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 3\)"):
        figures.save_table(TABLE, "99a-test", tmp_path, bold=TABLE.notna().head(2))
    assert not list(tmp_path.iterdir())


def test_signs_with_a_meaning_in_latex():
    assert tables.tex(r"a_b 50% & {x} ~ ^ \ #1 $2") == (
        r"a\_b 50\% \& \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \#1 \$2"
    )
    assert tables.tex("ω ≥ 0 → p̂") == (
        r"\ensuremath{\omega} \ensuremath{\geq} 0 \textrightarrow{} \ensuremath{\hat p}"
    )
    assert tables.tex("∅, 漢") == r"\ensuremath{\emptyset}, 漢"
