"""JupyterLab or the app of the panels in Chromium: for the tests and `benchmarks.explore`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parents[1]
ARTEFACTS = ROOT / "artefacts"
# Chromium asks for nothing but the page; in a container it runs as root.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
START_SECONDS = 180  # a busy machine may need long


def missing() -> str:
    """Return why no browser can be used here, "" if one can."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if shutil.which("chromium") else "there is no chromium on this machine"


@contextmanager
def browser():
    """Yield Playwright's handle of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def page(running, url: str) -> Iterator[tuple[object, list[str]]]:
    """Yield a page, and the list of errors in its console so far. Nothing is fetched from other machines."""
    context = running.new_context(viewport={"width": 1360, "height": 900})
    context.route(re.compile(r"^https?://(?!localhost|127\.0\.0\.1)"), lambda route: route.fulfill(body=""))
    shown, errors = context.new_page(), []
    shown.on("console", lambda message: message.type == "error" and errors.append(message.text))
    shown.on("pageerror", lambda error: errors.append(str(error)))
    try:
        shown.goto(url, timeout=1000 * START_SECONDS)
        yield shown, errors
    finally:
        context.close()


@contextmanager
def server(project: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Run `spml explore` in a new project with a copy of notebook 01; yield its address with the token, and its PID."""
    (project / "notebooks").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "spml-core"\n')
    shutil.copy(ROOT / "notebooks" / "01-losses-and-gradients.ipynb", project / "notebooks")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from spml_core.cli import main; main()", "explore", "--no-browser"]
    if "--app" not in options and os.geteuid() == 0:
        options = (*options, "--allow-root")  # JupyterLab's own rule; a container's only user is root
    own = {f"JUPYTER_{kind}_DIR": str(project / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{kind}_DIR": str(project / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    own |= {"IPYTHONDIR": str(project / "ipython"), "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [*command, f"--port={port}", *options], cwd=project, env=os.environ | own, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield _address(started), started.pid
    finally:
        _end(started)


def _address(started: subprocess.Popen) -> str:
    said = []
    for line in started.stdout:
        said.append(line)
        if found := re.search(r"http://(?:localhost|127\.0\.0\.1):\S*\?token=\w+", line):
            Thread(
                target=started.stdout.read, daemon=True
            ).start()  # else it would wait for a reader some day
            return found[0]
    raise RuntimeError("the server ended:\n" + "".join(said))


def _end(started: subprocess.Popen) -> None:
    """End the server, its kernels, and what they have started."""
    import psutil

    if started.poll() is not None:
        return
    family = psutil.Process(started.pid).children(recursive=True)
    os.killpg(started.pid, signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=10)
    for process in left:
        process.kill()
    started.wait()


def move(shown, name: str, steps: int) -> list[float]:
    """Move the slider called `name` by arrow keys; return the milliseconds from each key to the new picture."""
    handle = slider(shown, name).locator(".noUi-handle")
    handle.focus()
    key = "ArrowRight" if steps > 0 else "ArrowLeft"
    return [handle.evaluate(MOVE, key) for _ in range(abs(steps))]


MOVE = """async (handle, key) => {
    const picture = handle.closest('.spml-panel').querySelector('img');
    const loaded = new Promise((done, fail) => {
        picture.addEventListener('load', done, {once: true});
        setTimeout(fail, 20000, new Error(`${key} has brought no new picture`));
    });
    const start = performance.now();
    handle.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    await loaded;
    return performance.now() - start;
}"""


def slider(shown, name: str):
    return shown.locator(".spml-panel .widget-slider").filter(has_text=name).first


def drag(shown, name: str, by: int) -> None:
    """Drag the handle of a slider with the mouse, in pixels."""
    handle = slider(shown, name).locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    shown.mouse.move(x, y)
    shown.mouse.down()
    for part in range(1, 11):
        shown.mouse.move(x + by * part / 10, y)
    shown.mouse.up()


def value(shown, name: str) -> float:
    """Return the value shown beside a slider."""
    return float(slider(shown, name).locator(".widget-readout").inner_text().replace("\N{MINUS SIGN}", "-"))


def picture(shown) -> list[int]:
    """Return the bytes of the picture that is shown."""
    read = "async image => [...new Uint8Array(await (await fetch(image.src)).arrayBuffer())]"
    return shown.locator(".spml-panel img").first.evaluate(read)
