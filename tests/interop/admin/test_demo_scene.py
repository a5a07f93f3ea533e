"""The demonstration's last scene plays as the README shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo.stuck import stuck

pytestmark = pytest.mark.slow


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str = "") -> None:
        self.lines.append(text.strip())

    step = say
    progress = say


def test_a_consumer_sticks_is_explained_and_goes_on(tmp_path: Path) -> None:
    heard = Heard()
    assert stuck(tmp_path, heard), "\n".join(heard.lines)
    assert "bookings-0 from 2 aborted: last stable offset 2 → 505, end 505: everything can be read" in heard.lines
    assert "bookings-0: hanging" in heard.lines
