"""The Chromium that the tests in a browser drive: the one that is installed. Playwright downloads nothing.

The rule: each run has an empty profile of its own, and a browser that asks nobody outside this machine for anything.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Final

VARIABLE: Final = "ONCELOG_CHROMIUM"
"""The environment variable that may name an executable."""
COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def executable() -> str | None:
    """The path of the browser, None where there is none."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    return next((found for found in map(shutil.which, COMMANDS) if found), None)


def missing() -> str | None:
    """The reason why no browser can be driven here, and what to do about it."""
    if find_spec("playwright") is None:
        return "Playwright for Python is not installed (make setup does it, with the other development dependencies)"
    if executable() is None:
        return (
            "no Chromium on this machine: install it (Debian: apt-get install chromium, Fedora: dnf install chromium, "
            f"macOS: brew install --cask chromium) or name one in {VARIABLE}"
        )
    return None
