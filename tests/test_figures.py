"""Figures are acceptable to a conference, and change only when their data does."""

import hashlib
import json
import os
import re
import subprocess
import sys
import zlib

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_core import figures

TABLE = pd.DataFrame({"p": [0.0, 0.1, 1 / 3], "loss": [1.0, 2.5, 1e-9], "name": ["a", "b,c", "ü"]})
DRAW = """
import matplotlib
matplotlib.use("agg")
import pandas as pd
from spml_core import figures

figures.use(formats=["svg"])

def draw(folder):
    fig, axes = figures.subplots(1, 2, width="text")
    axes[0].plot([0, 1], [0, 1], label=r"$\\hat k$ = $\\sigma(wp + b)$")
    axes[0].legend()
    axes[1].imshow([[0, 1], [1, 0]])
    axes[1].set(xlabel="probability", title="AN, distance 0.53")
    axes[1].fill_between([0, 1], [0, 1], alpha=0.2)
    told = {"caption": "Distance β of AN", "context": "digits, 3 seeds", "source": "GR Fig 3a"}
    figures.save_figure(fig, "99-test", pd.DataFrame({"x": [1, 1 / 3]}), folder, **told)
"""


@pytest.fixture(autouse=True)
def clean():
    """Close the figures of a test and restore its settings."""
    with mpl.rc_context():
        yield
        plt.close("all")
    figures.use()


@pytest.fixture
def drawing():
    scope = {}
    exec(DRAW, scope)
    return scope["draw"]


@pytest.fixture
def saved(drawing, tmp_path):
    drawing(tmp_path)
    return tmp_path / "99-test.pdf"


def digests(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def inflated(pdf):
    """Return the content of a PDF with its compressed streams inflated."""
    content = pdf.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL)
    opened = []
    for stream in streams:
        try:
            opened.append(zlib.decompress(stream.rstrip(b"\r\n")))
        except zlib.error:
            opened.append(stream)
    return content + b"".join(opened)


# --- the same data, the same bytes ---


def test_two_processes_write_the_same_bytes(drawing, tmp_path):
    """The other process has another time, hash seed, time zone and locale, and draws another figure first."""
    drawing(tmp_path / "one")
    other = tmp_path / "two"
    code = f"""{DRAW}
import time
real = time.time
time.time = lambda: real() + 1e6
figures.subplots()[1].plot([3, 4])
draw({str(other)!r})
"""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "SOURCE_DATE_EPOCH": "1000000000",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(digests(other)) == {
        "99-test.pdf",
        "99-test.png",
        "99-test.csv",
        "99-test.svg",
        "99-test.caption.json",
    }
    assert digests(other) == digests(tmp_path / "one")


def test_saving_twice_changes_nothing(drawing, tmp_path):
    drawing(tmp_path)
    before = digests(tmp_path)
    drawing(tmp_path)
    assert digests(tmp_path) == before


def test_other_data_other_bytes(tmp_path):
    for folder, height in (("one", 1), ("two", 2)):
        fig, ax = figures.subplots()
        ax.plot([0, height])
        figures.save_figure(fig, "99-test", pd.DataFrame({"x": [height]}), tmp_path / folder)
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert {name for name in one if one[name] == two[name]} == {"99-test.caption.json"}


def test_no_date_and_no_program_name(saved):
    content = inflated(saved)
    for word in (b"CreationDate", b"ModDate", b"/Producer", b"/Creator"):
        assert word not in content
    assert not Image.open(saved.with_suffix(".png")).text


def test_a_vector_graphic_for_the_web_has_no_date_and_no_font_files(saved):
    text = saved.with_suffix(".svg").read_text()
    assert "<dc:date>" not in text and "Matplotlib" not in text
    assert "Distance β of AN" in text and "<text" not in text


def test_captions_lie_beside_the_figure_and_in_the_pdf(saved):
    found = json.loads(saved.with_name("99-test.caption.json").read_text())
    assert found == {
        "kind": "figure",
        "caption": "Distance β of AN",
        "context": "digits, 3 seeds",
        "source": "GR Fig 3a",
        "font": "STIXGeneral",
        "font_asked": "STIXGeneral",
    }
    assert (
        b"Distance" in saved.read_bytes().replace(b"\x00", b"") and b"digits, 3 seeds" in saved.read_bytes()
    )


# --- what a conference asks for ---


def test_fonts_are_embedded_truetype(saved):
    content = inflated(saved)
    assert b"/Type3" not in content and b"/Type1" not in content
    fonts = set(re.findall(rb"/BaseFont /(\S+)", content))
    assert fonts and all(b"STIX" in font for font in fonts)
    descriptors = re.findall(rb"/Type /FontDescriptor.*?>>", content, re.DOTALL)
    files = re.findall(rb"/FontFile2 \d+ 0 R", content)
    assert len(fonts) == len(descriptors) == len(files)
    assert b"/CIDFontType2" in content or b"/Subtype /TrueType" in content


def test_users_type_3_setting_does_not_get_through(drawing, tmp_path):
    mpl.rcParams["pdf.fonttype"] = 3
    drawing(tmp_path)
    assert b"/Type3" not in inflated(tmp_path / "99-test.pdf")
    assert mpl.rcParams["pdf.fonttype"] == 3


def test_no_font_is_replaced(tmp_path, caplog):
    fig, ax = figures.subplots()
    ax.set(xlabel=r"$\partial L/\partial z$, $\hat k$", title="naïve × β – 6 %", xticks=[-1, 1])
    figures.save_figure(fig, "99-test", TABLE, tmp_path)
    assert not [record for record in caplog.records if "font" in record.name]


@pytest.mark.parametrize("name", ["../99-test", "a/b", "a\\b", "/99-test", "C:99", "", ".", "..", "a\n"])
def test_a_name_stays_in_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="is not a file name"):
        figures.save_figure(figures.subplots()[0], name, TABLE, tmp_path / "figures")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width, inches", [("column", 3.375), ("text", 7.0)])
def test_width_on_paper(tmp_path, width, inches):
    fig, _ = figures.subplots(width=width)
    figures.save_figure(fig, "99-test", TABLE, tmp_path)
    box = re.search(rb"/MediaBox \[ ?([\d. ]+?) ?\]", (tmp_path / "99-test.pdf").read_bytes())
    left, _, right, _ = map(float, box[1].split())
    assert (right - left) / 72 == pytest.approx(inches, abs=0.01)
    assert Image.open(tmp_path / "99-test.png").width == pytest.approx(300 * inches, abs=2)


@pytest.mark.parametrize(
    "venue, column, text",
    [
        ("icml", 3.25, 6.75),
        ("cvpr2024", 3.25, 6.875),
        ("neurips", 3.3, 5.5),
        ("ieee", 3.5, 7.16),
        ("ijcai", 3.375, 7),
    ],
)
def test_width_at_a_venue(venue, column, text):
    figures.use(venue)
    assert figures.subplots()[0].get_figwidth() == pytest.approx(column)
    assert figures.subplots(width="text")[0].get_figwidth() == pytest.approx(text)
    assert mpl.rcParams["legend.fontsize"] >= 6


@pytest.mark.parametrize(
    ("number", "shape"), [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (7, (3, 3)), (25, (9, 3))]
)
def test_panels_in_rows(number, shape):
    fig, axes = figures.panels(number, height_to_width=0.5, sharex=True, sharey=True)
    grid = axes[0].get_gridspec()
    assert len(axes) == number and (grid.nrows, grid.ncols) == shape
    assert [ax.axison for ax in fig.axes] == [True] * number + [False] * (len(fig.axes) - number)
    lowest = axes[-shape[1] :]  # nothing is drawn below these, so they show their ticks
    assert all(ax.xaxis.get_tick_params()["labelbottom"] for ax in lowest)
    plt.close(fig)


@pytest.mark.parametrize("venue", figures.venues())
def test_every_venue_draws(venue):
    figures.use(venue)
    assert 2 < figures.subplots()[0].get_figwidth() < 8


def test_unknown_venue_and_format_name_what_there_is():
    with pytest.raises(ValueError, match=r"unknown venue 'iccvv'.*icml2024.*ijcai2024"):
        figures.use("iccvv")
    with pytest.raises(ValueError, match=r"unknown format 'bmp': .*svg"):
        figures.use(formats=["bmp"])


def test_a_font_that_is_not_there_is_replaced_aloud(drawing, tmp_path):
    with pytest.warns(UserWarning, match="'Times of Nowhere' is not installed: figures use STIXGeneral"):
        figures.use(font="Times of Nowhere")
    drawing(tmp_path)
    found = json.loads((tmp_path / "99-test.caption.json").read_text())
    assert (found["font"], found["font_asked"]) == ("STIXGeneral", "Times of Nowhere")
    figures.use(font="DejaVu Sans")
    drawing(tmp_path)
    fonts = re.findall(rb"/BaseFont /(\S+)", inflated(tmp_path / "99-test.pdf"))
    assert any(font.endswith(b"DejaVuSans") for font in fonts)


def test_formats_of_a_whole_notebook(tmp_path):
    figures.use("icml", ["svg"])
    figures.save_figure(figures.subplots()[0], "99-test", TABLE, tmp_path)
    assert (tmp_path / "99-test.svg").is_file()


class StoredRun:
    """The parts of a `runs.Run` that `context` reads."""

    def __init__(self, method="gr", seed=0, floor=0.0, **config):
        own = {"method": method, "seed": seed, "params": {"log_floor": floor}, "mode": "end_to_end"}
        self.config = {"dataset": "digits", "backbone": "digits_cnn"} | own | config
        self.summary = {"val_labels": "clean", "data": {"sizes": {"train": 4000}}}


def test_context_says_what_a_reader_must_know():
    assert figures.context(StoredRun(seed=seed) for seed in (0, 1, 2)) == (
        "digits (4,000 training images), digits_cnn, 3 seeds, best epoch on clean validation labels, exact losses"
    )
    mixed = [StoredRun(), StoredRun("em", floor=1e-5, mode="linear", backbone="resnet50")]
    assert figures.context(mixed, "last epoch") == (
        "digits (4,000 training images), digits_cnn / resnet50 (frozen), 1 seed, last epoch, "
        "losses as published (log floor: em 1e-05)"
    )
    with pytest.raises(ValueError, match="there are none"):
        figures.context([])


def test_a_folder_goes_by_its_own_name():
    assert figures.dataset_name("folder", "photos/my_cats") == "my_cats"
    assert (
        figures.dataset_name("voc2012", "data/VOC") == "voc2012"
        and figures.dataset_name("digits", None) == "digits"
    )


def test_text_is_legible_on_paper(saved):
    sizes = [float(size) for size in re.findall(rb"/F\d+ ([\d.]+) Tf", inflated(saved))]
    assert sizes and 5 <= max(sizes) <= 12


def test_unknown_width():
    with pytest.raises(ValueError, match=r"unknown width 'page'.*column, text"):
        figures.subplots(width="page")


# --- files ---


def test_numbers_behind_a_figure(tmp_path):
    figures.save_figure(figures.subplots()[0], "99-test", TABLE, tmp_path)
    text = (tmp_path / "99-test.csv").read_bytes().decode()
    assert text.splitlines() == ["p,loss,name", "0,1,a", '0.1,2.5,"b,c"', "0.333333,1e-09,ü"]
    assert "\r" not in text


def test_relative_folder_is_in_the_project_whatever_the_cwd(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    (tmp_path / "notebooks" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notebooks" / "deep")
    figures.save_figure(figures.subplots()[0], "99-test", TABLE)
    figures.save_headline("99-a-test", {"x": 1})
    figures.save_headline("99-a-test", {"x": 1}, "paper/figures")
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        "99-test.pdf", "99-test.png", "99-test.csv", "99-test.caption.json", "99-a-test.json"
    }  # fmt: skip
    assert (tmp_path / "paper" / "figures" / "99-a-test.json").is_file()
    assert not list((tmp_path / "notebooks").rglob("*.*"))


def test_headline_is_rounded_ordered_json(tmp_path, capsys):
    numbers = {"z": 0.123456, "a": 123456.0, "tiny": 1.23456e-12, "n": 3, "name": "x", "list": [1, 2]}
    figures.save_headline("99-a-test", numbers, tmp_path)
    text = (tmp_path / "99-a-test.json").read_text()
    found = json.loads(text)
    assert list(found.items()) == [
        ("z", 0.1235), ("a", 123500.0), ("tiny", 1.235e-12), ("n", 3), ("name", "x"), ("list", [1, 2])
    ]  # fmt: skip
    assert capsys.readouterr().out == text


def test_headline_takes_numpy_scalars(tmp_path):
    numbers = {"a": np.float32(1 / 3), "b": np.int64(3), "c": np.float64(1 / 3)}
    figures.save_headline("99-a-test", numbers, tmp_path)
    assert json.loads((tmp_path / "99-a-test.json").read_text()) == {"a": 0.3333, "b": 3, "c": 0.3333}


@pytest.mark.parametrize("value", [float("nan"), np.float64("nan"), np.float32("inf"), -float("inf")])
def test_headline_that_is_no_number_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="gap"):
        figures.save_headline("99-a-test", {"seeds": 3, "gap": value}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_import_and_saving_leave_settings_alone():
    code = """
import matplotlib as mpl
before = dict(mpl.rcParams)
from spml_core import figures
assert {k for k in before if before[k] != mpl.rcParams[k]} == set()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
