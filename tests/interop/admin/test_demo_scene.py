"""The demonstration's last scene plays as the README shows it, and what it prints is in README.md and in
hanging-transactions.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo import stuck as scene
from demo.console import browser

from tests.snippets.blocks import blocks_of
from tests.snippets.transcripts import commands, differences

pytestmark = pytest.mark.slow
HERE = "tests/interop/admin/test_demo_scene.py"


class Heard:
    """Keeps what it is told; ``outputs`` are those of the commands, by the command."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.outputs: dict[str, str] = {}
        self._command = ""

    def say(self, text: str = "") -> None:
        self.lines.append(text.strip())
        if self._command:
            self.outputs[self._command] += f"{text.removeprefix('    ')}\n"

    def step(self, text: str) -> None:
        self.lines.append(text.strip())
        self._command = text if text.startswith("oncelog ") else ""
        if self._command:
            self.outputs[self._command] = ""

    progress = say


def play(directory: Path) -> list[str]:
    """The lines that are told."""
    heard = Heard()
    assert scene.stuck(directory, heard), "\n".join(heard.lines)
    assert "bookings-0 from 2 aborted: last stable offset 2 → 505, end 505: everything can be read" in heard.lines
    assert "bookings-0: hanging" in heard.lines
    wrong = [
        differences(f"{expected}…", heard.outputs[command])  # the scene's own lines follow
        for page in ("README.md", "docs/hanging-transactions.md")
        for block in blocks_of(page)
        if block.tested_by == HERE
        for command, expected in commands(block.text)
    ]
    assert not any(wrong), "\n".join(wrong)
    return heard.lines


def test_a_consumer_sticks_is_explained_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene, "browser", lambda: None)
    assert "(no pictures of the console: they need Chromium and Playwright for Python)" in play(tmp_path)


@pytest.mark.long
@pytest.mark.integration
@pytest.mark.browser
def test_there_are_pictures_of_the_console(tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("needs Chromium and Playwright")
    told = play(tmp_path)
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [picture.stem for picture in pictures] == sorted([*scene.PAGES, *scene.PAGES_AFTER])
    assert {str(picture) for picture in pictures} <= {*told}
