"""Write the tables of results into README.md and pages of docs/.

    python -m benchmarks.readme                           of the notebooks, from figures
    python -m benchmarks.readme figures figures/corel5k   with the tables of another data set in docs/

The README's first table is that of `spml figures --summary`, for the first folder. docs/ also has tables of notebooks
(`TABLES`), for every folder, and the verdicts of a folder called "finetuned". Pictures in figures/gallery are renewed:
NAME.png from the first folder, NAME-FOLDER.png from the others. The data of the tables are kept in data/summary.json,
which is tracked. The tables of photographs and suggestions come from the CSV files that `python -m
benchmarks.photographs` and `python -m benchmarks.suggestions` write to data/.
"""

import json
import shutil
import sys
from pathlib import Path

import pandas as pd

from benchmarks import photographs, suggestions
from spml_core.headless import summary
from spml_core.headless.contract import NotebookError
from spml_core.paths import locate, write_whole

KEPT = "data/summary.json"
FINETUNED = "finetuned"  # name of the folder whose verdicts docs/photographs.md shows
TABLES = {"docs/selection.md": ["13g-goals"], "docs/label-draws.md": ["14b-map", "14d-order"]}


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


def tables(folder: str) -> dict[str, dict]:
    """Return the tables of notebooks in a folder of figures that docs/ shows: their context, columns and rows."""
    found = {}
    for name in (name for names in TABLES.values() for name in names):
        file = locate(folder) / f"{name}.csv"
        if file.is_file():
            table = pd.read_csv(file, dtype=str).fillna("")
            context = json.loads(file.with_suffix(".caption.json").read_text(encoding="utf-8"))["context"]
            found[name] = {"context": context, "columns": [*table], "rows": table.to_numpy().tolist()}
    return found


def parts() -> dict[str, dict[str, str]]:
    """Return the text of each part of each page, from the tracked files."""
    found = json.loads(locate(KEPT).read_text(encoding="utf-8"))
    results = {mode: locate(photographs.RESULTS[mode]) for mode in photographs.METHODS}
    results = {mode: pd.read_csv(file) for mode, file in results.items() if file.is_file()}
    texts = {page: {name: by_dataset(found, name) for name in names} for page, names in TABLES.items()}
    texts = {page: {name: text for name, text in own.items() if text} for page, own in texts.items()}
    texts = {page: own for page, own in texts.items() if own}
    if (file := locate(suggestions.RESULTS)).is_file():
        texts["docs/suggestions.md"] = {"suggestions": suggestions.report(pd.read_csv(file))}
    reports = {mode: photographs.report(rows, mode) for mode, rows in results.items()}
    reports |= {one["folder"]: verdicts(one) for one in found if one["folder"] == FINETUNED}
    return texts | {
        "README.md": {"summary": summary.markdown(found[:1]), "photographs": photographs.overview(results)},
        "docs/photographs.md": reports,
    }


def verdicts(found: dict) -> str:
    """Return the verdict on each claim in a folder as Markdown, with the evidence."""
    rows = [
        {"notebook": name[:2]} | claim for name, own in found["notebooks"].items() for claim in own["claims"]
    ]
    return photographs.markdown(pd.DataFrame(rows, columns=["notebook", "claim", "verdict", "evidence"]))


def by_dataset(found: list[dict], name: str) -> str:
    """Return a table of a notebook as Markdown, once for each folder that has it."""
    shown = [one["tables"][name] for one in found if name in one["tables"]]
    texts = [photographs.markdown(pd.DataFrame(each["rows"], columns=each["columns"])) for each in shown]
    return "\n\n".join(f"{each['context']}:\n\n{text}" for each, text in zip(shown, texts, strict=True))


def main(folders: list[str]) -> None:
    """Write data/summary.json and every part of the pages, and renew the pictures of figures/gallery."""
    folders = folders or ["figures"]
    try:
        found = [
            summary.read(folder) | {"folder": Path(folder).name, "tables": tables(folder)}
            for folder in folders
        ]
    except NotebookError as error:
        sys.exit(f"Error: {error}")
    for folder, end in zip(folders, ["", *(f"-{one['folder']}" for one in found[1:])], strict=True):
        for picture in locate("figures/gallery").glob(f"[0-9]*{end}.png"):
            made = locate(folder) / f"{picture.stem.removesuffix(end)}.png"
            if made.is_file():
                shutil.copy(made, picture)
    write_whole(locate(KEPT), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for name, texts in parts().items():
        page = locate(name).read_text(encoding="utf-8")
        for part, text in texts.items():
            page = update(page, part, text)
        write_whole(locate(name), page)


if __name__ == "__main__":
    main(sys.argv[1:])
