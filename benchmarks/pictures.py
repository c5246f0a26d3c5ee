"""Renew the README's pictures of the panels, in headless Chromium: `python -m benchmarks.pictures`.

The loss lab shows GR before and after a move of its offset b; the run browser compares GR with AN on `digits`, seed 0,
which are trained unless they are in `runs/`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import browser
from spml_core.paths import locate
from spml_core.runs import Experiment, run_all

GALLERY = browser.ROOT / "figures" / "gallery"


def main():
    if reason := browser.missing():
        sys.exit(f"no pictures: {reason}")
    runs = run_all([Experiment(method=method) for method in ("gr", "an")], root=locate("runs"))
    with (
        tempfile.TemporaryDirectory() as folder,
        browser.browser() as running,
        browser.server(project := Path(folder) / "project", "--app") as (url, _),
    ):
        for run in runs:
            shutil.copytree(run.path, project / "runs" / run.path.name)
        with browser.page(running, url) as (page, _):
            panel = page.locator(".spml-panel")
            panel.locator("img").first.wait_for(timeout=180_000)
            page.get_by_role("button", name="Hold").click()
            browser.move(page, "offset b of k̂, end", -30)
            panel.first.screenshot(path=GALLERY / "explore-loss-lab.png")

            page.get_by_role("tab", name="Runs").click()
            shown = page.locator(".widget-tab-contents > :not(.lm-mod-hidden) .spml-panel")
            picture = shown.locator("img").first
            picture.wait_for(timeout=60_000)
            alone = picture.get_attribute("src")
            shown.get_by_label("compare with").select_option(index=1)
            page.wait_for_function("([img, src]) => img.src != src", arg=[picture.element_handle(), alone])
            shown.first.screenshot(path=GALLERY / "explore-runs.png")


if __name__ == "__main__":
    main()
