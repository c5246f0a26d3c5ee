"""Write the tables of results into README.md and docs/photographs.md.

    python -m benchmarks.readme                           of the notebooks, from figures
    python -m benchmarks.readme figures figures/corel5k   with a column for each

The first table is that of `spml figures --summary`; its data are kept in data/summary.json, which is tracked. The
tables of photographs come from the CSV files that `python -m benchmarks.photographs` writes to data/.
"""

import json
import sys

import pandas as pd

from benchmarks import photographs
from spml_core.headless import summary
from spml_core.paths import locate, write_whole

KEPT = "data/summary.json"


def update(page: str, part: str, text: str) -> str:
    """Return a page with `text` between the marks of a part.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- {part}, by `python -m benchmarks.readme` -->\n", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"there is no {begin.strip()} ... {end} to write {part} between")
    return f"{before}{begin}{text}\n{end}{after}"


def parts() -> dict[str, dict[str, str]]:
    """Return the text of each part of each page, from the tracked files."""
    found = json.loads(locate(KEPT).read_text(encoding="utf-8"))
    results = {mode: locate(photographs.RESULTS[mode]) for mode in photographs.METHODS}
    results = {mode: pd.read_csv(file) for mode, file in results.items() if file.is_file()}
    tables = {mode: photographs.report(rows, mode) for mode, rows in results.items()}
    return {
        "README.md": {"summary": summary.markdown(found), "photographs": photographs.overview(results)},
        "docs/photographs.md": tables,
    }


def main(folders: list[str]) -> None:
    """Write data/summary.json, and every part of the pages."""
    found = [summary.read(folder) for folder in folders or ["figures"]]
    write_whole(locate(KEPT), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for name, texts in parts().items():
        page = locate(name).read_text(encoding="utf-8")
        for part, text in texts.items():
            page = update(page, part, text)
        write_whole(locate(name), page)


if __name__ == "__main__":
    main(sys.argv[1:])
