"""Time from an arrow key on a slider of the loss lab to its new picture, in the app: `python -m benchmarks.explore`.

Targets over 50 moves: median 150 ms, 95 % quantile 300 ms, at most 20 MB more memory, at most one open figure. It
runs in headless Chromium. The load of the machine affects the times, so it is printed too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
from jupyter_client import BlockingKernelClient

from benchmarks import browser

MOVES = 50
SLIDERS = ("offset b of k̂, end", "slope w of k̂, end", "width σ of v, end", "exponent q₃")


def main():
    if reason := browser.missing():
        sys.exit(f"nothing measured: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kernels"
        place.mkdir()
        options = ("--app", f"--Voila.connection_dir_root={place}")
        with (
            browser.browser() as running,
            browser.server(Path(folder) / "project", *options) as (url, pid),
            browser.page(running, url) as (page, errors),
        ):
            page.locator(".spml-panel img").first.wait_for(timeout=180_000)
            kernel = next(
                one
                for one in psutil.Process(pid).children(recursive=True)
                if "ipykernel" in " ".join(one.cmdline())
            )
            browser.move(page, SLIDERS[0], 10)  # warm up
            before = kernel.memory_info().rss, heap(page)
            times = []
            for turn in range(MOVES):
                times += browser.move(page, SLIDERS[turn % len(SLIDERS)], -1)
            grown = kernel.memory_info().rss - before[0], heap(page) - before[1]
            figures = open_figures(next(place.rglob("kernel-*.json")))
    shown = (
        f"median {np.median(times):.0f} ms, 95 % {np.quantile(times, 0.95):.0f} ms, worst {max(times):.0f} ms"
    )
    print(f"{MOVES} moves: {shown}")
    print(
        f"memory: kernel {grown[0] / 2**20:+.1f} MB, page {grown[1] / 2**20:+.1f} MB; open figures: {figures}"
    )
    print(
        f"errors in the console: {len(errors)}; load of the {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}"
    )


def heap(page) -> int:
    """Return the bytes of JavaScript's heap after garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


def open_figures(connection: Path) -> int:
    """Return how many figures pyplot knows in the kernel."""
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    expression = "len(__import__('matplotlib.pyplot').pyplot.get_fignums())"
    reply = client.execute("", user_expressions={"n": expression}, reply=True, timeout=60)
    client.stop_channels()
    return int(reply["content"]["user_expressions"]["n"]["data"]["text/plain"])


if __name__ == "__main__":
    main()
