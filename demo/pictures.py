"""The pictures of README and docs: ``python -m demo.pictures`` plays the scene of the stuck consumer and takes them."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from demo.console import browser
from demo.stuck import stuck
from demo.terminal import Terminal

PICTURES: Final = Path("docs/pictures")


def main() -> int:
    """Write the pictures; 0 when the scene ended as it should."""
    if browser() is None:
        raise SystemExit("no Chromium, or no Playwright for Python, on this machine: no pictures")
    with TemporaryDirectory(prefix="oncelog-pictures-") as directory:
        return int(not stuck(Path(directory), Terminal(), PICTURES))


if __name__ == "__main__":
    sys.exit(main())
