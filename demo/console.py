"""The web console of the demonstration, and pictures of its pages where a Chromium is installed.

The rule: the demonstration never fails for want of a browser; nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from demo.processes import ONCELOG

LARGEST = 150 * 1024
COMMANDS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDTH, HIGHEST = 1260, 820
_COLOURS = 256


@contextmanager
def console(bootstrap_servers: str, log: Path) -> Iterator[str]:
    """``oncelog console`` on a free port, looking every second: its address."""
    listen = f"127.0.0.1:{_free_port()}"
    command = [ONCELOG, "console", "--bootstrap-server", bootstrap_servers, "--listen", listen, "--sample-every", "1"]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield f"http://{listen}/"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def browser() -> str | None:
    """The path of a Chromium that Playwright can drive here; None where there is none."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    given = os.environ.get("ONCELOG_CHROMIUM")
    return given or next((found for found in map(shutil.which, COMMANDS) if found), None)


def take(address: str, pages: Mapping[str, str], directory: Path) -> list[Path]:
    """Pictures of pages, by the names of their files; nothing without a browser. A name that ends in ``-dark`` is dark.

    Each is as high as its page, ``HIGHEST`` at most, and has 256 colours, which is enough for text and lines."""
    executable = browser()
    if executable is None:
        return []
    from PIL import Image
    from playwright.sync_api import sync_playwright

    directory.mkdir(parents=True, exist_ok=True)
    taken = []
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=executable, args=FLAGS) as opened:
        for name, path in pages.items():
            scheme = "dark" if name.endswith("-dark") else "light"
            size = {"width": WIDTH, "height": 400}
            page = opened.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]  # one of its words
            page.goto(address.rstrip("/") + path, timeout=120_000, wait_until="load")
            page.locator("main .notice[role=status]").wait_for(state="detached")  # The first look at the cluster.
            high = int(page.evaluate("document.documentElement.scrollHeight"))
            page.set_viewport_size({"width": WIDTH, "height": min(high, HIGHEST)})
            shot = Image.open(BytesIO(page.screenshot(timeout=120_000))).convert("RGB")
            page.close()
            file = directory / f"{name}.png"
            shot.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
            if file.stat().st_size > LARGEST:
                raise SystemExit(f"{file} has {file.stat().st_size} bytes, of {LARGEST}: show less in it")
            taken.append(file)
    return taken
