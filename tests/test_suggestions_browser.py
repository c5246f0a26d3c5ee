"""The page of suggestions in a real browser: answers by mouse and keyboard, with a filter, saved and kept."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import browser as driver
from spml_core.headless import suggestions

REASON = driver.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=f"no test in a browser: {REASON}"),
]
CLASSES = ["dog", "cat", "dog", 'bow, "tie"', "dog"]


@pytest.fixture
def opened(tmp_path):
    """The page of four missing labels and a doubtful one, the errors of its console, and its CSV file."""
    table = pd.DataFrame({"kind": ["missing"] * 4 + ["doubtful"], "image": [f"{n}.jpg" for n in range(5)]})
    table = table.assign(**{"class": CLASSES}, observed=[0, 0, 0, 0, 1], probability=0.5, present="")
    pictures = [np.full((8, 12), 40 * n, np.uint8) for n in range(5)]
    file = tmp_path / "found.csv"
    url = suggestions.write(file, table, ["person"] * 5, pictures, "a run", "spml data labels").as_uri()
    with driver.browser() as running, driver.page(running, url) as (page, errors):
        yield page, errors, file


def saved(page, file) -> list[str]:
    """Save the answers, put them in the place of the CSV file, and return its column `present`."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == file.name
    download.value.save_as(file)
    return pd.read_csv(file, dtype=str, keep_default_na=False)["present"].tolist()


def test_the_saved_file_has_the_answers_and_nothing_else_changes(opened):
    page, errors, file = opened
    before = pd.read_csv(file, dtype=str, keep_default_na=False)
    cards = page.locator("figure")
    cards.nth(0).get_by_role("button", name="no").click()
    cards.nth(0).get_by_role("button", name="yes").click()
    cards.nth(3).get_by_role("button", name="no").click()
    assert page.get_by_text("2 answered").is_visible()
    pressed = page.locator("button[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["yes", "no"]
    colour = "b => getComputedStyle(b).backgroundColor"
    yes = cards.get_by_role("button", name="yes")
    assert yes.nth(0).evaluate(colour) != yes.nth(1).evaluate(colour)  # an answer can be seen
    assert saved(page, file) == ["1", "", "", "0", ""]
    after = pd.read_csv(file, dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(after.drop(columns="present"), before.drop(columns="present"))
    page.reload()
    assert page.get_by_text("2 answered").is_visible() and pressed.all_inner_texts() == ["yes", "no"]
    assert not errors


def test_a_key_answers_a_card_and_goes_to_the_next_one_shown(opened):
    page, errors, file = opened
    page.get_by_label("Filter").fill("dog")
    page.locator("figure").first.focus()
    for key in "yn1":  # the last of them in the other section
        page.keyboard.press(key)
    assert page.get_by_role("button", name="Save").evaluate("b => b === document.activeElement")
    assert saved(page, file) == ["1", "", "0", "", "1"]
    page.locator("figure").nth(4).focus()
    page.keyboard.press(" ")  # takes its own answer back,
    page.keyboard.press(" ")  # then that of the card before
    assert saved(page, file) == ["1", "", "", "", ""]
    page.keyboard.press("y")  # on the button, where it answers nothing
    assert saved(page, file) == ["1", "", "", "", ""] and not errors
