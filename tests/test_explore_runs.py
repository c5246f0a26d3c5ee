"""Run browser, landscape viewer and predictions, driven from Python: their numbers, ends of sliders, errors."""

import base64
import dataclasses
import json
import re
import shutil
import tracemalloc
from itertools import pairwise

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from safetensors.numpy import load_file, save_file

from spml_core import analysis, figures, landscape
from spml_core.explore import app, choosing, landscape_viewer, predictions, run_browser
from spml_core.explore.choosing import NothingToShow, RunPanel
from spml_core.explore.panel import colors
from spml_core.explore.predictions import FILTERS, ORDERS
from spml_core.headless import runner
from spml_core.runs import Experiment, record, run
from spml_core.studies import examples, unobserved

SIZES = {"train": 80, "val": 40, "test": 20}
ALPHAS = np.linspace(-1, 1, 5)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with runs of an, gr, bce and em (three epochs, with other settings), and two surfaces."""
    root = tmp_path_factory.mktemp("runs")
    for method, epochs in (("an", 2), ("gr", 2), ("bce", 2), ("em", 3)):
        trained = run(Experiment(method=method, data=SIZES, epochs=epochs), root, progress=False)
        if method in ("an", "gr"):
            around = landscape.Neighbourhood(trained, root / "landscapes", num_images=16)
            around.surface(ALPHAS)
    return root


@pytest.fixture(scope="module")
def runs(root):
    """Return the runs by method."""
    return {one.config["method"]: one for one in record.finished(root)}


def readouts(panel, kind):
    """Return all readouts of a kind as text, in full where the cell shows a shorter form."""
    found = re.findall(rf"data-value='{kind}'(?: title='([^']*)')?>([^<]*)<", panel.readout.value)
    return [full or shown for full, shown in found]


def moved(panel, slider):
    """Move a slider from end to end and return the pictures seen."""
    seen = set()
    for value in np.linspace(slider.min, slider.max, 14):
        slider.value = type(slider.value)(value)
        seen.add(panel.picture.value)
    return seen


# --- the list of runs ---


class Named:
    """The parts of a run that a list shows."""

    def __init__(self, folder, method, seed, val_map, **fields):
        resolved = Experiment(method=method, seed=seed, **fields).resolved()
        self.path = folder / f"{method}-{seed}-{len(fields)}"
        self.path.mkdir()
        (self.path / "summary.json").touch()
        self.config = json.loads(json.dumps(dataclasses.asdict(resolved)))  # as a run's file gives it back
        self.summary = {"val_map": val_map, "test_map": None, "best_epoch": 1}
        self.classes = ["cat", "dog"]


class Listed(RunPanel):
    """A panel with only the list, of runs that can be compared within a data set's options."""

    def __init__(self, runs, compare=None):
        super().__init__("runs", runs, compare, figures.detached()[0], [])
        self.follow(self.class_name)

    def alike(self, run):
        return run.config["epochs"]

    def update(self):
        pass


def named(control):
    """Return the folders of the runs that a control offers."""
    return [run.path.name for _, run in control.options if run]


@pytest.fixture
def several(tmp_path):
    return [
        Named(tmp_path, "an", 0, 70.0, data={"train": 300}),
        Named(tmp_path, "gr", 1, 81.0),
        Named(tmp_path, "gr", 0, 80.0),
        Named(tmp_path, "an", 1, 75.0, epochs=3, data={"train": 300}),
        Named(tmp_path, "em", 0, 60.0),
    ]


def test_sorted_filtered_and_still_chosen(several):
    panel = Listed(several)
    assert panel.run.value is several[0]  # the first that was given
    assert named(panel.run) == ["em-0-0", "gr-0-0", "gr-1-0", "an-0-1", "an-1-2"]  # plain runs come first
    seen = []
    panel.observe(seen.append)
    panel.picture.observe(seen.append)
    panel.sort.value = "validation mAP"
    assert named(panel.run) == ["gr-1-0", "gr-0-0", "an-1-2", "an-0-1", "em-0-0"]
    panel.words.value = "GR digits"
    assert named(panel.run) == ["gr-1-0", "gr-0-0", "an-0-1"]  # the chosen one stays
    panel.words.value = "no <such> run"
    assert named(panel.run) == ["an-0-1"] and panel.run.value is several[0] and not seen
    panel.words.value = ""
    for order in choosing.ORDERS:
        panel.sort.value = order
        assert panel.run.value is several[0] and len(panel.run.options) == 5
    assert not panel.trouble.value


def test_compared_with_what_is_alike(several):
    panel = Listed(several, several[1])
    assert panel.shown == [several[0], several[1]]
    assert panel.chosen.value == "AN, seed 0: digits, train=300<br>GR, seed 1: digits"
    assert named(panel.other) == ["em-0-0", "gr-0-0", "gr-1-0"]
    panel.run.value = several[3]
    assert panel.shown == [several[3]] and named(panel.other) == []
    panel.run.value = several[2]
    panel.other.value = several[1]
    panel.run.value = several[1]
    assert panel.shown == [several[1]]
    for same_or_other in (several[0], several[3]):
        assert Listed(several, same_or_other).shown == [several[0]]


def test_settings_in_words(runs):
    settings = choosing.overview([runs["gr"], runs["bce"], runs["gr"]])["settings"]
    assert {*settings} == {"digits, train=80, val=40, test=20, epochs=2"}  # all labels are what bce asks for
    assert choosing.names_of([runs["gr"]]) == ["GR, seed 0"]


def test_nothing_to_show(tmp_path):
    with pytest.raises(NothingToShow, match="no runs yet"):
        run_browser(tmp_path)
    with pytest.raises(NothingToShow, match="no runs yet"):
        predictions(tmp_path)
    with pytest.raises(NothingToShow, match="notebook 08"):
        landscape_viewer(tmp_path)


def test_numbers_have_four_digits_and_the_rest_when_pointed_at(runs):
    wanted = re.compile(r"title='(0\.\d{8})'>(0\.\d{4})<")
    found = wanted.findall(run_browser(runs=[runs["an"]]).readout.value)
    assert len(found) >= 3
    assert all(f"{float(full):.4f}" == shown for full, shown in found)


# --- the run browser ---


def test_browser_says_what_the_package_computes(root, runs):
    panel = run_browser(root)
    panel.run.value = runs["gr"]
    panel.other.value = runs["em"]
    for epoch, threshold, name in ((0, 0.5, None), (2, 0.57, "3"), (3, 0.3, "0"), (1, 0.99, None)):
        panel.epoch.value, panel.threshold.value, panel.class_name.value = epoch, threshold, name or ""
        for n, one in enumerate((runs["gr"], runs["em"])):
            at = min(epoch, 2 if n == 0 else 3)  # a shorter run stays at its end, and says so
            assert readouts(panel, "epoch")[n] == str(at)
            column = None if name is None else one.classes.index(name)
            labels = one.labels("val", at)
            labels = labels if column is None else labels.of_class(column)
            for kind, value in unobserved.missing(labels, threshold).items():
                text = readouts(panel, kind)[n]
                if np.isnan(value):
                    assert text == "undefined (n=0)"
                else:
                    assert float(text) == pytest.approx(value, abs=1e-6)
            table = analysis.histogram(unobserved.missing_scores(labels), 25)
            steps = panel.axes[0].patches[2 * n : 2 * n + 2]
            for group, drawn in zip(reversed(unobserved.GROUPS), steps, strict=True):
                shares = table.loc[table["group"] == group, "share"]
                np.testing.assert_allclose(drawn.get_data().values, shares)
            bins = analysis.bucket_false_negatives(labels.probs, labels.observed, labels.full, 25)
            buckets = panel.axes[1].containers[2 * n : 2 * n + 2]
            dots = np.concatenate([line.get_xydata() for line, _, _ in buckets])
            wanted = np.stack([bins.mean_prob, bins.ratio], 1)[bins.missing > 0]
            np.testing.assert_allclose(dots[np.argsort(dots[:, 0])], wanted)
    assert not panel.trouble.value


def test_a_threshold_of_a_browser_is_the_one_on_the_slider(runs):
    """Scores equal to it are not above it, as the browser sends them."""
    panel = run_browser(runs=[runs["an"]])
    for step in (0, 35, 57, 69, 83, 94, 100):
        panel.threshold.value = step * 0.01  # 0.57 comes as 0.5700000000000001
        recall = unobserved.found(runs["an"].labels("val", 2), round(step * 0.01, 2)).recall
        assert float(readouts(panel, "recall")[0]) == pytest.approx(recall, abs=1e-6)


@pytest.mark.parametrize("compare", [None, "an"])
def test_browser_redraws_one_figure(runs, compare):
    panel = run_browser(runs=runs.values(), compare=compare and runs[compare])
    figure, axes = panel.fig, len(panel.fig.axes)
    assert len(moved(panel, panel.epoch)) == 3 and len(moved(panel, panel.threshold)) > 5
    tracemalloc.start()
    moved(panel, panel.epoch)
    assert tracemalloc.get_traced_memory()[0] < 2e6
    tracemalloc.stop()
    assert panel.fig is figure and len(figure.axes) == axes and len(plt.get_fignums()) == 0


def test_browser_of_a_run_without_missing_labels(runs):
    """bce observes all: nothing is missing, and the panel says so, at every end."""
    panel = run_browser(runs=[runs["bce"], *runs.values()])
    for value in (panel.epoch.min, panel.epoch.max):
        panel.epoch.value = value
        for name in ("", "0", "9"):
            panel.class_name.value = name
            assert readouts(panel, "false") == ["0"] and readouts(panel, "distance") == ["undefined (n=0)"]
    for value in (0, 1):
        panel.threshold.value = value
    assert not panel.trouble.value


def test_browser_walks_through_all_runs(root, runs):
    panel = run_browser(root)
    for one, two in pairwise([*runs.values(), runs["an"]]):
        panel.run.value = one
        for other in (None, two):
            panel.other.value = other or ""
            last = max(record.Run(r.path).history["epoch"].max() for r in panel.shown)
            assert panel.epoch.max == last and len(readouts(panel, "run")) == len(panel.shown)
    assert not panel.trouble.value


def test_browser_begins_where_it_is_told(runs):
    panel = run_browser(runs=[runs["an"], runs["gr"]], compare=runs["gr"], threshold=0.2)
    assert panel.shown == [runs["an"], runs["gr"]] and panel.threshold.value == 0.2
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        run_browser(runs=[runs["an"]], threshold=2)
    with pytest.raises(ValueError, match="not among"):
        run_browser(runs=[runs["an"]], compare=runs["gr"])


def test_colors_tell_two_runs_apart():
    assert len({*colors(["an", "gr"])}) == len({*colors(["an", "an"])}) == 2 and len(colors(["an"])) == 1


# --- the landscape viewer ---


def test_viewer_shows_stored_surfaces_on_one_scale(root):
    panel = landscape_viewer(root / "landscapes")
    assert [surface.meta["note"]["method"] for surface in panel.pair] == ["an", "gr"]
    for loss in ("own", "full_bce"):
        panel.loss.value = loss
        assert panel.axes[0].get_zlim() == panel.axes[1].get_zlim()
        assert panel.axes[0].get_zlim()[1] >= max(np.nanmax(s.rise(loss)) for s in panel.pair) * 0.99
        for direction in (0, 1):
            for at in (-1, 0.4, 1):
                panel.direction.value, panel.at.value = direction, at
                n = int(np.abs(ALPHAS - at).argmin())
                for k, surface in enumerate(panel.pair):
                    rise = surface.rise(loss)
                    cut = rise[:, n] if direction == 0 else rise[n]
                    np.testing.assert_allclose(panel._curves[k].get_ydata(), cut)
                    assert float(readouts(panel, "highest")[k]) == pytest.approx(cut.max(), abs=1e-6)
                    assert float(readouts(panel, "lowest")[k]) == pytest.approx(cut.min(), abs=1e-6)
                    assert float(readouts(panel, "at")[k]) == pytest.approx(ALPHAS[n], abs=1e-3)
                    x, y, z = panel._traces[k].get_data_3d()
                    assert z == pytest.approx(cut) and (y if direction == 0 else x) == pytest.approx(
                        ALPHAS[n]
                    )
    assert not panel.trouble.value


def test_surfaces_are_told_apart(root, runs, tmp_path):
    copied = shutil.copytree(root / "landscapes", tmp_path / "landscapes")
    landscape.Neighbourhood(runs["an"], copied, num_images=8).surface(ALPHAS)
    panel = landscape_viewer(copied)
    names = [*panel.surfaces]
    assert len(names) == 3 and [name.split(":")[0] for name in names] == ["AN", "AN", "GR"]
    assert all(runs["an"].path.name in name for name in names[:2])
    assert readouts(panel, "surface") == names[:2]
    assert {text.split(",")[-3] for text in readouts(panel, "of")} == {" 8 images", " 16 images"}


def test_viewer_turns_and_redraws_one_figure(root):
    panel = landscape_viewer(root / "landscapes")
    figure = panel.fig
    assert len(moved(panel, panel.azimuth)) == 13  # -180 and 180 degrees are the same
    assert len(moved(panel, panel.at)) == len(ALPHAS)
    for slider in (panel.azimuth, panel.elevation, panel.at):
        for end in (slider.min, slider.max):
            slider.value = end
            assert not panel.trouble.value
    assert panel.fig is figure and len(figure.axes) == 3 and len(plt.get_fignums()) == 0


def test_viewer_of_surfaces_with_a_hole(root):
    found = landscape.Landscape.load(next((root / "landscapes").glob("*an*surface*")))
    values = {name: rows.copy() for name, rows in found.values.items()}
    values["own"][0, 0] = np.nan
    holed = landscape.Landscape(found.alphas, found.betas, values, found.meta)
    panel = landscape_viewer(surfaces={"an": holed, "em": found})
    panel.at.value = -1
    assert not panel.trouble.value and [ax.get_title() for ax in panel.axes] == ["AN", "EM"]
    panel.second.value = "an"
    assert not panel.trouble.value


def test_viewer_takes_surfaces_only(root, runs):
    lines = landscape.Neighbourhood(runs["an"], root / "lines", num_images=8).line([-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="'an' holds lines"):
        landscape_viewer(surfaces={"an": lines})


# --- predictions ---


def test_predictions_are_sorted_and_filtered(runs):
    panel = predictions(runs=[runs["an"], *runs.values()])
    labels = runs["an"].labels("val")
    probs, full, observed = labels.probs, labels.full, labels.observed
    missing = (full == 1) & (observed == 0)
    panel.show.value = "missing"
    assert sorted(panel.rows) == np.flatnonzero(missing.any(1)).tolist()
    panel.order.value = "missing_high"
    assert (np.diff(np.where(missing, probs, 0).max(1)[panel.rows]) <= 0).all()
    panel.show.value, panel.order.value = "all", "missing_low"
    lowest = np.where(missing, probs, 2).min(1)[panel.rows]
    assert (np.diff(lowest) >= 0).all()  # those without a missing positive stand last
    panel.threshold.value, panel.show.value = 0.3, "wrong"
    assert sorted(panel.rows) == np.flatnonzero(((probs > 0.3) & (full == 0)).any(1)).tolist()
    panel.show.value, panel.class_name.value = "not_found", "7"
    assert sorted(panel.rows) == np.flatnonzero((missing & (probs <= 0.3))[:, 7]).tolist()


@pytest.mark.parametrize("compare", [None, "gr"])
def test_bars_are_those_of_the_table(runs, compare):
    panel = predictions(runs=runs.values(), compare=compare and runs[compare])
    panel.run.value = runs["an"]
    panel.other.value = runs[compare] if compare else ""
    panel.page.value = 3
    rows, shown = panel.page_rows, panel.shown
    assert len(shown) == (2 if compare else 1) and rows.tolist() == [6, 7, 8]
    names = choosing.names_of(shown)
    probs = {name: one.labels("val").probs[rows] for name, one in zip(names, shown, strict=True)}
    labels = runs["an"].labels("val")
    full, observed = labels.full[rows], labels.observed[rows]
    bars = examples.table(probs, full, observed, images=["a", "b", "c"], classes=runs["an"].classes)
    for n, image in enumerate("abc"):
        for m, method in enumerate(probs):
            own = bars[(bars["image"] == image) & (bars["method"] == method)]
            widths = [bar.get_width() for bar in panel._axes[n, 1 + m].patches]
            np.testing.assert_allclose(widths[: len(own)], own["prob"])
            (crosses,) = (line for line in panel._axes[n, 1 + m].lines if line.get_marker() == "x")
            assert len(crosses.get_xdata()) == (~own["right"]).sum()
    annotated = [", ".join(np.array(runs["an"].classes)[row == 1]) for row in observed]
    assert readouts(panel, "annotated") == annotated


def test_predictions_page_through_and_stop_at_the_ends(runs):
    panel = predictions(runs=[runs["an"]])
    assert panel.page.max == 14 and panel.page.min == 1  # forty images, three a page
    figure, axes = panel.fig, len(panel.fig.axes)
    assert len(moved(panel, panel.page)) == 14
    assert panel.page.value == 14 and panel.page_rows.tolist() == [39] and not panel.trouble.value
    assert panel.fig is figure and len(figure.axes) == axes and len(plt.get_fignums()) == 0


def test_every_filter_and_order(runs):
    panel = predictions(runs=[runs["gr"]])
    for show in FILTERS:
        panel.show.value = show
    for order in ORDERS:
        panel.order.value = order
    for threshold in (0, 1):
        panel.threshold.value = threshold
    assert len(panel.rows) == 0 and not panel.trouble.value  # nothing is above 1: an empty page


def test_predictions_of_the_same_images_are_compared(runs):
    panel = predictions(runs=runs.values())
    assert {run for _, run in panel.other.options} == {"", *runs.values()} - {panel.run.value}
    with pytest.raises(ValueError, match="unknown value 'AP' for 'sort images by': use one of row, "):
        predictions(runs=runs.values(), order="AP")


# --- labels whose truth is unknown ---


@pytest.fixture
def partly_known(runs, tmp_path):
    """A copy of a run; of its first ten validation images only the annotated labels are known."""
    copy = record.Run(shutil.copytree(runs["an"].path, tmp_path / runs["an"].path.name))
    arrays = load_file(copy.path / "labels.safetensors")
    known = np.ones(arrays["val/full"].shape, bool)
    known[:10] = arrays["val/observed"][:10] == 1
    arrays |= {"val/known": known, "val/full": arrays["val/full"] * known}
    save_file(arrays, copy.path / "labels.safetensors")
    return copy


def test_unknown_labels_are_in_no_group_of_the_browser(partly_known):
    panel = run_browser(runs=[partly_known])
    missing = (partly_known.labels("val").observed == 0)[10:]
    positive = partly_known.labels("val").full[10:][missing]
    counts = [f"{(positive == truth).sum()}" for truth in (1, 0)]
    assert [*readouts(panel, "false"), *readouts(panel, "true")] == counts
    panel.threshold.value = 0
    assert float(readouts(panel, "precision")[0]) == pytest.approx(positive.mean(), abs=1e-6)


def test_unknown_labels_have_no_bar_and_match_no_filter(partly_known):
    panel = predictions(runs=[partly_known])
    for n in range(3):
        assert sum(bar.get_width() > 0 for bar in panel._axes[n, 1].patches) == 1
    assert readouts(panel, "true") == readouts(panel, "annotated")
    panel.threshold.value = 0
    for show in ("missing", "found", "wrong"):
        panel.show.value = show
        assert len(panel.rows) and panel.rows.min() >= 10


# --- all of them ---


def panels(root, runs):
    return {
        "epoch": run_browser(root),
        "azimuth": landscape_viewer(root / "landscapes"),
        "page": predictions(root),
    }


def test_what_update_raises_is_shown_and_raised(root, runs):
    for name, panel in panels(root, runs).items():

        def broken():
            raise ValueError("planted <here>")

        panel.update, before = broken, panel.update
        slider = getattr(panel, name)
        with pytest.raises(ValueError, match="planted"):
            slider.value = slider.max if slider.value != slider.max else slider.min
        assert "planted &lt;here&gt;" in panel.trouble.value
        panel.update = before
        panel.redraw()
        assert not panel.trouble.value


def test_every_panel_has_a_picture_where_there_are_no_widgets(root, runs):
    for panel in panels(root, runs).values():
        bundle = panel._repr_mimebundle_()
        picture = base64.b64decode(bundle["image/png"])
        assert picture == panel.picture.value and picture.startswith(b"\x89PNG") and len(picture) > 10_000
        assert "application/vnd.jupyter.widget-view+json" in bundle


@pytest.mark.slow
def test_a_planted_error_fails_the_notebook(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    code = (
        "from spml_core.explore import run_browser\n"
        f"panel = run_browser({str(root)!r})\n"
        "def broken():\n    raise ValueError('planted in the browser')\n"
        "panel.update = broken\npanel.epoch.value = 0\npanel"
    )
    cells = [new_markdown_cell("# 01 · Planted"), new_code_cell('figures_dir: str = "figures"  # where')]
    cells[1].metadata["tags"] = ["parameters"]
    nb = new_notebook(cells=[*cells, new_code_cell(code)])
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nb, tmp_path / "notebooks" / "01-planted.ipynb")
    (result,) = runner.run_notebooks(["01-planted"])
    assert result.status == "failed" and "planted in the browser" in result.error


# --- the app ---


def test_app_without_and_with_runs(root, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    monkeypatch.setenv("SPML_PROJECT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = app.app()
    assert page.titles == ("Loss lab", "Runs", "Landscapes", "Predictions")
    for n, text in ((1, "no runs yet"), (2, "notebook 08"), (3, "no runs yet")):
        page.selected_index = n
        assert text in page.children[n].note.value and page.children[n].panel is None
    shutil.copytree(root, tmp_path / "runs")
    for tab in page.children[1:]:
        tab.again.click()
        assert tab.panel in tab.children and bytes(tab.panel.picture.value)[1:4] == b"PNG"


def test_app_shows_what_went_wrong():
    def broken():
        raise OSError("the disk is gone")

    tab = app.Later(broken)
    with pytest.raises(OSError, match="the disk is gone"):
        tab.show()
    assert "the disk is gone" in tab.note.value and tab.again in tab.children
