"""index.html of a folder of figures: every figure and table with its caption, data and notebook, in one static page.

Opens from disk: no server, no network, nothing but links to the files beside it.
"""

import csv
import json
import os
import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from spml_core.figures.claims import MIN_SEEDS, NOT_JUDGED
from spml_core.headless import contract as notebooks
from spml_core.paths import locate
from spml_core.words import count

MAX_ROWS = 100  # of a table's preview, which scrolls
WIDE, WIDE_TABLE = 1.9, 7  # width by height of a picture, columns of a table, that get the room of two cards
WHERE = ("runs_dir", "figures_dir", "root")  # parameters that say where things lie on one machine


def write(
    folder: str | Path, executed: str | Path | None = None, notebooks_dir: str | Path | None = None
) -> Path:
    """Write FOLDER/index.html from the files that notebooks have left there, and return its path.

    A notebook without figures in the folder is left out. The page holds no date: the same figures, the same bytes.

    Args:
        executed: folder of the executed copies, default `notebooks.executed_dir(folder)`.

    Raises:
        NotebookError: there are no notebooks, or one cannot be read.
    """
    folder = locate(folder)
    executed = notebooks.executed_dir(folder) if executed is None else locate(executed)
    sections = [_section(path, folder, executed) for path in notebooks.find((), notebooks_dir)]
    body = (
        "\n".join(filter(None, sections))
        or "<p>No figures here yet: <code>spml figures</code> draws them.</p>"
    )
    folder.mkdir(parents=True, exist_ok=True)
    page, draft = folder / "index.html", folder / f".index.html.{os.getpid()}"
    draft.write_text(PAGE.replace("BODY", body), encoding="utf-8")
    draft.replace(page)
    return page


def _section(path: Path, folder: Path, executed: Path) -> str:
    """One notebook: what it found, and a card for each figure and table; "" when there is none."""
    nb, name = notebooks.read(path), path.stem
    cards = [
        card(figure, folder, plain(notebooks.heading_above(nb, index)))
        for function, card, suffix in (("save_figure", _figure, ".png"), ("save_table", _table, ".csv"))
        for figure, index in notebooks.promises(nb, name, function).items()
        if (folder / f"{figure}{suffix}").is_file()
    ]
    if not cards:
        return ""
    numbers = _read(folder / f"{name}.json")
    claims = numbers.pop("claims", [])
    settings = {k: v for k, v in _read(folder / f"{name}.parameters.json").items() if k not in WHERE}
    parts = [f"<h2>{escape(plain(notebooks.title(path)) or name)}</h2>"]
    if (copy := executed / f"{name}.ipynb").is_file():
        parts.append(f'<p><a href="{_link(os.path.relpath(copy, folder))}">executed notebook</a></p>')
    if claims:
        rows = "".join(
            f'<li><b class="{escape(claim["verdict"].replace(" ", "-"))}">{escape(claim["verdict"])}</b> '
            f"{escape(claim['claim'])}{_in_brackets(claim.get('source'))}: {escape(claim['evidence'])}"
            f"{_seeds(claim)}</li>"
            for claim in claims
        )
        parts.append(f'<ul class="claims">{rows}</ul>')
    means = {key: parameter.help for key, parameter in notebooks.declared(nb, name).items()}
    parts += [_details("Numbers", numbers), _details("Parameters", settings, means)]
    return f'<section>{"".join(parts)}\n<div class="cards">\n{"".join(cards)}</div></section>'


def _figure(name: str, folder: Path, heading: str) -> str:
    told = _told(name, folder, heading)
    alt = told["caption"] or name
    try:
        with Image.open(folder / f"{name}.png") as picture:
            wide = picture.width > WIDE * picture.height
    except OSError:  # cut short: a browser shows that, too
        wide = False
    image = f'<img src="{_link(name)}.png" alt="{escape(alt)}" loading="lazy">'
    return _card(name, folder, told, f'<a href="{_link(name)}.png">{image}</a>', wide)


def _table(name: str, folder: Path, heading: str) -> str:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    shown = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MAX_ROWS]]
    more = f"<p>{len(rows) - MAX_ROWS} rows more in the CSV</p>" if len(rows) > MAX_ROWS else ""
    first = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = f"<tr>{first}</tr>{''.join(shown)}"
    preview = f'<div class="table" tabindex="0"><table>{body}</table></div>{more}'
    return _card(name, folder, _told(name, folder, heading), preview, len(head) >= WIDE_TABLE)


def _told(name: str, folder: Path, heading: str) -> dict:
    """What is written beside a figure; the heading above it in the notebook stands in for a caption."""
    told = _read(folder / f"{name}.caption.json")
    return told | {"caption": told.get("caption") or heading}


def _card(name: str, folder: Path, told: dict, preview: str, wide: bool) -> str:
    kinds = [kind for kind in ("pdf", "svg", "png", "tex", "csv") if (folder / f"{name}.{kind}").is_file()]
    links = " ".join(
        f'<a href="{_link(name)}.{kind}" aria-label="{escape(name)}, {kind}">{kind}</a>' for kind in kinds
    )
    texts = [
        f"<p>{escape(told['caption'])}{_in_brackets(told.get('source'))}</p>" if told["caption"] else "",
        f'<p class="context">{escape(told["context"])}</p>' if told.get("context") else "",
    ]
    below = f"<h3>{escape(name)}</h3>{''.join(texts)}<p>{links}</p>"
    size = ' class="wide"' if wide else ""
    return f'<figure id="{escape(name)}"{size}>{preview}<figcaption>{below}</figcaption></figure>\n'


def _details(title: str, values: dict, means: dict[str, str] | None = None) -> str:
    if not values:
        return ""
    rows = ""
    for key, value in values.items():
        shown = escape(value if isinstance(value, str) else json.dumps(value))
        mean = f' <span class="context">{escape(text)}</span>' if (text := (means or {}).get(key)) else ""
        rows += f"<dt>{escape(key)}</dt><dd>{shown}{mean}</dd>"
    return f"<details><summary>{title}</summary><dl>{rows}</dl></details>"


def plain(text: str) -> str:
    """A notebook's Markdown and TeX as plain text: "the weight $\\hat k$" becomes "the weight k̂"."""
    text = re.sub(r"\\hat\s*\{?(\w)\}?", "\\1\u0302", text)
    text = re.sub(
        r"\\([A-Za-z]+)", lambda name: unescape(f"&{name[1]};"), text
    )  # HTML has the same Greek names
    return re.sub(r"[$`{}\\]|\*\*", "", text)


def _in_brackets(text: str | None) -> str:
    return f" ({escape(text)})" if text else ""


def _seeds(claim: dict) -> str:
    if (number := claim.get("seeds")) is None:
        return ""
    too_few = f"; {MIN_SEEDS} are needed" if claim["verdict"] == NOT_JUDGED else ""
    return f" ({count(number, 'seed')}{too_few})"


def _link(path: str) -> str:
    return quote(Path(path).as_posix())


def _read(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Figures</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 1rem/1.45 system-ui, sans-serif; margin: 0 auto; padding: 0 1rem 3rem; max-width: 90rem; }
header { position: sticky; top: 0; z-index: 1; background: Canvas; padding: .6rem 0; }
header { border-bottom: 1px solid var(--line); }
h1 { font-size: 1.2rem; margin: 0 0 .4rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
h3 { font-size: .9rem; margin: 0; overflow-wrap: anywhere; }
input { font: inherit; width: min(100%, 26rem); box-sizing: border-box; padding: .4rem .6rem; }
.cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: .5rem; overflow: hidden; background: var(--soft); }
@media (min-width: 44rem) { .wide { grid-column: span 2; } }
img { display: block; width: 100%; height: 16rem; object-fit: contain; background: #fff; }
figcaption { padding: .6rem .8rem; }
figcaption p, section > p { margin: .3rem 0; }
figcaption a { margin-right: .5rem; }
.context { opacity: .75; font-size: .85rem; }
.table { overflow: auto; max-height: 16rem; font-size: .8rem; }
table { border-collapse: collapse; }
td, th { padding: .15rem .6rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
.claims { padding-left: 1.2rem; }
.holds::before { content: "\\2713 "; }
.does-not-hold::before { content: "\\2717 "; }
dl { display: grid; grid-template-columns: minmax(6rem, auto) 1fr; gap: .1rem .8rem; font-size: .85rem; }
dd { margin: 0; overflow-wrap: anywhere; }
[hidden] { display: none !important; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin: 0 0 .3rem 1rem; } }
</style>
</head>
<body>
<header>
<h1>Figures</h1>
<label for="filter">Show what contains</label>
<input id="filter" type="search" placeholder="e.g. GR digits 3 seeds" autocomplete="off">
<output id="count" for="filter"></output>
</header>
<main>
BODY
</main>
<script>
const filter = document.getElementById("filter"), count = document.getElementById("count");
// "GR Figure 5", "GR Fig. 5" and "gr fig 5" are one: words, of which those asked for are beginnings.
function wordsOf(text) {
  const plain = text.toLowerCase().replaceAll(/fig(ure)?s?\\b\\.?/g, "fig").replaceAll(/k-?hat/g, "k\u0302");
  return plain.split(/[^\\p{L}\\p{M}\\p{N}.]+/u).filter(Boolean);
}
function show() {
  const words = wordsOf(filter.value);
  let shown = 0, all = 0;
  for (const section of document.querySelectorAll("section")) {
    const cards = [...section.querySelectorAll("figure")], title = section.querySelector("h2").textContent;
    for (const card of cards) {
      const known = wordsOf(title + " " + card.textContent);
      card.hidden = !words.every(word => known.some(own => own.startsWith(word)));
      all += 1; shown += !card.hidden;
    }
    section.hidden = cards.every(card => card.hidden);
  }
  count.textContent = shown + " of " + all;
}
filter.addEventListener("input", show);
show();
</script>
</body>
</html>
"""
