"""The panels in a real browser, in the app and in JupyterLab: Playwright drives Chromium as a user would.

Screenshots are kept in artefacts/.
"""

import re

import numpy as np
import psutil
import pytest

from benchmarks import browser as driver
from spml_core.explore import curves

REASON = driver.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=f"no test in a browser: {REASON}"),
]
SECONDS = 1000  # Playwright counts milliseconds
B = "offset b of k̂, end"
CHANGED = "old => [...document.querySelectorAll('.spml-panel td')].every(cell => cell.innerText != old)"


@pytest.fixture
def chromium():
    with driver.browser() as running:
        yield running


@pytest.fixture(params=["app", "lab"])
def opened(request, chromium, tmp_path):
    """(page, errors of its console, process of the server, name), with the panel on the screen."""
    options = ["--app"] if request.param == "app" else []
    project = tmp_path / "project"
    with driver.server(project, *options) as (url, pid), driver.page(chromium, url) as (page, errors):
        if request.param == "lab":
            page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=120 * SECONDS)
            page.get_by_text("(ipykernel) | Idle").first.wait_for(timeout=120 * SECONDS)
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name=re.compile("^Run All Cells")).click()
        panel = page.locator(".spml-panel")
        panel.wait_for(state="attached", timeout=240 * SECONDS)
        panel.scroll_into_view_if_needed()
        page.locator(".spml-panel mjx-container, .spml-panel .MathJax").first.wait_for(timeout=60 * SECONDS)
        yield page, errors, pid, request.param


def screenshot(opened, what):
    page, _, _, name = opened
    driver.ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=driver.ARTEFACTS / f"explore-{name}-{what}.png")


def readout(page) -> dict[str, float]:
    """Return the four numbers below the picture, the missing label's first."""
    texts = page.locator(".spml-panel td").filter(has_text=re.compile(r"^-?\d+\.\d{8}$")).all_inner_texts()
    kinds = ("missing", "missing_gradient", "observed", "observed_gradient")
    return dict(zip(kinds, map(float, texts), strict=True))


def computed(page) -> dict[str, float]:
    """Return what spml_core computes for the numbers beside the sliders."""
    ends = {"w": "slope w of k̂", "b": "offset b of k̂", "mu": "centre μ of v", "sigma": "width σ of v"}
    params = {
        name: tuple(driver.value(page, f"{words}, {end}") for end in ("start", "end"))
        for name, words in ends.items()
    }
    params |= {f"q{n}": driver.value(page, f"exponent q{sign}") for n, sign in zip("123", "₁₂₃", strict=True)}
    p, epoch = driver.value(page, "values at p"), int(driver.value(page, "epoch, of 10"))
    curve = curves.Setting("gr", params, epoch).curve(np.log([p / (1 - p)]))
    return curve.drop(columns=["z", "p"]).iloc[0].to_dict()


def test_as_a_user_meets_it(opened):
    """One test after the other on one page, since a server and a notebook take half a minute."""
    page, errors, pid, name = opened
    drag_changes_the_picture_and_the_numbers_agree(opened)
    names_are_spelled_out(page)
    arrow_keys_move_by_a_step(page)
    the_last_value_wins(page)
    code_can_be_copied(page)
    train_see_the_bar_and_cancel(opened)
    if name == "app":
        a_finished_training_is_in_the_table(opened)
    assert not trainings(pid)
    assert not errors


def drag_changes_the_picture_and_the_numbers_agree(opened):
    page = opened[0]
    assert readout(page) == pytest.approx(computed(page), abs=1e-6)
    before, old, drawn = driver.picture(page), driver.value(page, B), readout(page)
    driver.drag(page, B, 40)
    page.wait_for_function(CHANGED, arg=f"{drawn['missing_gradient']:.8f}")
    assert driver.value(page, B) > old + 1
    assert driver.picture(page) != before
    page.wait_for_timeout(500)  # until the last of the values has been drawn
    assert readout(page) == pytest.approx(computed(page), abs=1e-6)
    screenshot(opened, "dragged")


CUT = "labels => labels.filter(label => label.scrollWidth > label.clientWidth).map(label => label.innerText)"


def names_are_spelled_out(page):
    losses = page.locator(".spml-panel select").first
    for label in ("your own, in GR's frame", "EM+APL", "FM+SPLC", "EN", "GR"):
        losses.select_option(label=label)
        page.wait_for_timeout(1000)
        assert page.locator(".spml-panel .widget-label").evaluate_all(CUT) == []


def arrow_keys_move_by_a_step(page):
    before = driver.value(page, B)
    driver.move(page, B, -3)
    assert driver.value(page, B) == pytest.approx(before - 0.3)
    assert readout(page) == pytest.approx(computed(page), abs=1e-6)


def the_last_value_wins(page):
    """Move a slider faster than the panel can draw; in the end it shows the last value."""
    handle = driver.slider(page, B).locator(".noUi-handle")
    before = driver.value(page, B)
    handle.evaluate(
        "handle => { for (let n = 0; n < 40; n++) handle.dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true})); }"
    )
    assert driver.value(page, B) == pytest.approx(before - 4)
    page.wait_for_timeout(2000)
    assert readout(page) == pytest.approx(computed(page), abs=1e-6)


def code_can_be_copied(page):
    page.get_by_role("button", name="Copy as code").click()
    area = page.locator(".spml-panel textarea")
    area.wait_for()
    page.wait_for_function("() => document.querySelector('.spml-panel textarea').value.includes('build(')")
    assert "build('gr', num_classes=10" in area.input_value()
    page.get_by_role("button", name="Copy as code").click()


def trainings(pid: int) -> list[psutil.Process]:
    """Return the processes below the server that multiprocessing has started."""
    family = psutil.Process(pid).children(recursive=True)
    return [one for one in family if one.is_running() and "multiprocessing.spawn" in " ".join(one.cmdline())]


def train_see_the_bar_and_cancel(opened):
    page, _, pid, _ = opened
    page.get_by_role("button", name="Train on digits").click()
    bar = page.locator(".spml-panel .progress")
    bar.wait_for(timeout=60 * SECONDS)
    page.get_by_text("epoch 1", exact=True).wait_for(timeout=120 * SECONDS)
    assert trainings(pid)
    before = driver.picture(page)
    driver.move(page, B, 2)  # the panel answers meanwhile
    assert driver.picture(page) != before
    screenshot(opened, "training")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Training was interrupted").wait_for(timeout=60 * SECONDS)
    assert not bar.is_visible() and not trainings(pid)
    assert page.get_by_role("button", name="Train on digits").is_enabled()


def a_finished_training_is_in_the_table(opened):
    page, _, pid, _ = opened
    page.get_by_role("button", name="Train on digits").click()
    page.get_by_text("Finished: test mAP").wait_for(timeout=300 * SECONDS)
    table = page.locator(".spml-panel table").filter(has_text="settings")
    assert "GR" in table.inner_text() and "b=" in table.inner_text()
    assert not trainings(pid)
    screenshot(opened, "trained")
