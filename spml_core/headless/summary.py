"""What the notebooks found, as Markdown: one row per notebook, from the JSON files that they left in a folder."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from spml_core import figures
from spml_core.figures.claims import decided, tally
from spml_core.headless.contract import Notebook, NotebookError, find, findings, read_json
from spml_core.headless.gallery import plain
from spml_core.paths import locate

BENCHMARK = "03-benchmark"
MAPS = ("bce", "gr", "em", "wan", "an")  # the methods whose mean test mAP there is shown
# Columns, and the claims there whose evidence is shown below them.
DIFFERENCES = {f"GR − {other}": f"GR is above {other}" for other in ("EM", "WAN", "AN")}
COMPARED = (
    "Test mAP (mean over the seeds), and paired differences in points with 95 % intervals (notebook 03):"
)


def read(folder: str | Path) -> dict:
    """Return what the notebooks wrote to a folder of figures, in plain JSON types.

    This is the data set, each notebook's headline number and verdicts on its claims, the test mAP of a few methods,
    and GR's paired differences.

    Raises:
        NotebookError: no notebook has left its numbers there.
    """
    folder = locate(folder)
    datasets, notebooks, maps, differences = [], {}, {}, {}
    for notebook in find():
        numbers, claims = findings(folder, notebook.name)
        if not numbers:
            continue
        if notebook.name == BENCHMARK:
            maps = {method: numbers[key] for method in MAPS if (key := f"test mAP, {method}") in numbers}
            # "GR - EM +0.8 [0.1, 1.5]" without the names
            evidence = {claim["claim"]: re.sub(r"^.*?(?=[+-]\d)", "", claim["evidence"]) for claim in claims}
            differences = {name: evidence[text] for name, text in DIFFERENCES.items() if text in evidence}
        notebooks[notebook.name] = {
            "headline": list(next(iter(numbers.items()), ())),
            "claims": [{key: claim[key] for key in ("claim", "verdict", "evidence")} for claim in claims],
        }
        values = read_json(folder / f"{notebook.name}.parameters.json")
        datasets.append(figures.dataset_name(values.get("dataset", ""), values.get("root")))
    if not notebooks:
        raise NotebookError(f"{folder} has no numbers of a notebook: `spml figures` writes them")
    dataset = next(filter(None, datasets), "digits")
    return {"dataset": dataset, "notebooks": notebooks, "maps": maps, "differences": differences}


def markdown(found: Sequence[dict]) -> str:
    """Return a table of the notebooks with a column per data set, how many claims are decided, and GR's differences.

    A cell has the verdicts on the papers' claims, and the notebook's headline number.

    Args:
        found: one `read` per data set.
    """
    rows = [("notebook", "question", *(f"on {one['dataset']}" for one in found), "paper")]
    for notebook in find():
        if any(notebook.name in one["notebooks"] for one in found):
            answers = [_answer(one["notebooks"].get(notebook.name)) for one in found]
            link = f"[{notebook.name}](notebooks/{notebook.name}.ipynb)"
            rows.append((link, plain(notebook.title).split(" · ")[-1], *answers, papers(notebook)))
    parts = [_table(rows)]
    for one in found:
        claims = [claim for notebook in one["notebooks"].values() for claim in notebook["claims"]]
        parts += [f"On {one['dataset']}, {decided(claims)}"] if claims else []
    compared = [one for one in found if one["differences"]]
    if compared:
        rows = [("data set", *(figures.label(method) for method in MAPS), *DIFFERENCES)]
        for one in compared:
            maps = (f"{one['maps'][method]:.1f}" if method in one["maps"] else "" for method in MAPS)
            rows += [(one["dataset"], *maps, *(one["differences"].get(name, "") for name in DIFFERENCES))]
        parts += [COMPARED, _table(rows)]
    return "\n\n".join(parts)


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rest))


def _answer(found: dict | None) -> str:
    if found is None:
        return ""
    headline = f"{found['headline'][0]}: {rounded(found['headline'][1])}" if found["headline"] else ""
    return "; ".join(filter(None, (tally(found["claims"]), headline)))


def rounded(value) -> str:
    """Return a headline number rounded to two digits, since more depend on the seeds; counts and texts as they are."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def papers(notebook: Notebook) -> str:
    """Return the papers' figures and tables that a notebook redraws, "GR Fig 1, Table 1; Hill Fig 3, Fig 4"."""
    places: dict[str, list[str]] = {}
    for source in dict.fromkeys(source for promise in notebook.promises for source in promise.source):
        paper, _, place = source.partition(" ")
        places.setdefault(paper, []).append(place)
    return "; ".join(f"{paper} {', '.join(each)}" for paper, each in places.items())
