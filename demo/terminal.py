"""The terminal: what the demonstration says while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from demo.page import shown


class Output(Protocol):
    """Whoever shows what a scene says."""

    def say(self, text: str = "") -> None:
        """Show a line."""

    def step(self, text: str) -> None:
        """Announce the next step."""

    def progress(self, text: str) -> None:
        """Show a line that the next one replaces."""


class Terminal:
    """The demonstration's progress: a line per finished step; where there is a terminal, one that is overwritten."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._live = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def say(self, text: str = "") -> None:
        """A line that stays."""
        sys.stdout.write(("\r\x1b[2K" if self._live else "") + text + "\n")
        sys.stdout.flush()

    def step(self, text: str) -> None:
        """Announce the next step, with the time since the beginning."""
        self.say(f"[{self.seconds:5.1f} s] {text}")

    def progress(self, text: str) -> None:
        """A line that the next one replaces; nothing without a terminal."""
        if self._live:
            sys.stdout.write(f"\r\x1b[2K          {text}")
            sys.stdout.flush()

    def table(self, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str], limit: int = 10) -> None:
        """Rows, aligned."""
        cells = [[shown(row[name]) for name in headings] for row in rows[:limit]]
        numeric = [all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in headings]
        names = list(headings.values())
        widths = [max(len(name), *(len(line[i]) for line in cells), 0) for i, name in enumerate(names)]
        for line in (names, *cells):
            padded = (
                one.rjust(width) if right else one.ljust(width)
                for one, width, right in zip(line, widths, numeric, strict=True)
            )
            self.say("    " + "  ".join(padded).rstrip())
        if len(rows) > limit:
            self.say(f"    … {len(rows) - limit} more")
