"""Write the README's table of what the notebooks find, from the folders of their figures.

    python -m benchmarks.readme                           from figures
    python -m benchmarks.readme figures figures/corel5k   a column for each

The table is that of `spml figures --summary`. Its data are kept in data/summary.json, which is tracked.
"""

import json
import sys

from spml_core.headless import summary
from spml_core.paths import locate, write_whole

README, KEPT = "README.md", "data/summary.json"
BEGIN, END = "<!-- summary, by `python -m benchmarks.readme` -->\n", "<!-- end of summary -->"


def update(page: str, text: str) -> str:
    """Return a page with `text` between the marks of the summary."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{README} has no {BEGIN.strip()} ... {END} to write the summary between")
    return f"{before}{BEGIN}{text}\n{END}{after}"


def main(folders: list[str]) -> None:
    """Write data/summary.json, and the README's part between the marks."""
    found = [summary.read(folder) for folder in folders or ["figures"]]
    write_whole(locate(KEPT), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = locate(README)
    write_whole(page, update(page.read_text(encoding="utf-8"), summary.markdown(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
