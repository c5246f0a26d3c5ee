"""The panels of finished runs in a real browser: the app without runs, with runs, and what moves."""

import shutil

import numpy as np
import pytest

from benchmarks import browser as driver
from spml_core import analysis, landscape
from spml_core.runs import Experiment, Run, run
from spml_core.studies import unobserved

REASON = driver.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=f"no test in a browser: {REASON}"),
]
SECONDS = 1000  # Playwright counts milliseconds
SIZES = {"train": 80, "val": 40, "test": 20}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs of an and gr, and a surface of each."""
    root = tmp_path_factory.mktemp("trained")
    for method in ("an", "gr"):
        trained = run(Experiment(method=method, data=SIZES, epochs=3), root, progress=False)
        around = landscape.Neighbourhood(trained, root / "landscapes", num_images=16)
        around.surface(np.linspace(-1, 1, 9))
    return root


@pytest.fixture(scope="module")
def opened(root, tmp_path_factory):
    """The app of a project without a run, the errors of its console, and the project's folder."""
    project = tmp_path_factory.mktemp("app") / "project"
    with (
        driver.browser() as running,
        driver.server(project, "--app") as (url, _),
        driver.page(running, url) as (page, errors),
    ):
        page.locator(".spml-panel").wait_for(state="attached", timeout=240 * SECONDS)
        yield page, errors, project


def tab(page, name):
    """Open a tab and return its content."""
    page.get_by_role("tab", name=name).click()
    return page.locator(".widget-tab-contents > :not(.lm-mod-hidden)")


def readouts(shown, kind):
    """Return the tooltips of all cells of a kind, or their text where there is none."""
    return shown.locator(f"td[data-value='{kind}']").evaluate_all(
        "cells => cells.map(c => c.title || c.innerText)"
    )


def test_without_runs_then_with(opened, root):
    page, errors, project = opened
    for name, text in (
        ("Runs", "There are no runs yet"),
        ("Landscapes", "There are no loss surfaces"),
        ("Predictions", "no runs yet"),
    ):
        tab(page, name).get_by_text(text).wait_for()
    shutil.copytree(root, project / "runs")
    for name in ("Runs", "Landscapes", "Predictions"):
        shown = tab(page, name)
        shown.get_by_role("button", name="Reload").click()
        shown.locator(".spml-panel img").first.wait_for(timeout=60 * SECONDS)
    assert not errors, errors


def test_the_epoch_moves_all_four_pictures(opened, root):
    page, errors, _ = opened
    shown = tab(page, "Runs")
    shown.get_by_label("compare with").select_option(index=1)
    page.wait_for_function("() => document.querySelectorAll(\"td[data-value='distance']\").length == 2")
    before = driver.picture(shown)
    driver.move(shown, "epoch", -2)
    assert driver.picture(shown) != before
    page.wait_for_function("() => document.querySelector(\"td[data-value='epoch']\").innerText == '1'")
    known = {one.name.split("-")[1]: Run(one) for one in root.glob("digits-*")}
    for n, name in enumerate(readouts(shown, "run")):
        rates = unobserved.missing(known[name.split(",")[0].lower()].labels("val", 1), 0.5)
        text = analysis.or_undefined(rates["distance"], 0, ".8f")
        assert readouts(shown, "distance")[n] == text
    shown.get_by_label("compare with").select_option(index=0)
    shown.locator(".spml-runs input[type=text]").fill("AN")
    shown.locator(".spml-runs select[size] option").nth(1).wait_for(state="detached")
    driver.ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=driver.ARTEFACTS / "explore-app-runs.png")
    assert not errors, errors


@pytest.mark.parametrize(
    "name, slider, steps", [("Landscapes", "azimuth", 5), ("Landscapes", "position of", 2), ("Predictions", "page", 2)]
)  # fmt: skip
def test_a_key_changes_the_picture(opened, name, slider, steps):
    page, errors, _ = opened
    shown = tab(page, name)
    before = driver.picture(shown)
    driver.move(shown, slider, steps)
    assert driver.picture(shown) != before
    driver.ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=driver.ARTEFACTS / f"explore-app-{name.lower()}.png")
    assert not errors, errors
