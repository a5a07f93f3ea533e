"""A command line run in this process with a pseudo-terminal as its stdout and stderr."""

from __future__ import annotations

import os
import re
import sys
import threading
import tty
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from oncelog.cli.main import invoke

OWN_SEQUENCES = re.compile(r"\x1b\[H\x1b\[2J|\r?(\x1b\[1A)?\x1b\[2K|\x1b\[\?25[lh]|\x1b\[[0-9;]*m")
"""The control sequences that commands write themselves: an empty screen, the last line anew, a progress bar."""


class Shown(NamedTuple):
    """The exit code, and all that reached the terminal but for our own control sequences."""

    code: int
    text: str

    def act_on_terminal(self) -> list[str]:
        """The lines with characters that a terminal would do something about."""
        return [line for line in self.text.split("\n") if not line.isprintable()]


def run_on_terminal(arguments: Sequence[str], stdin: bytes = b"") -> Shown:
    """Run the command line; its stdin is a pipe."""
    controller, terminal = os.openpty()
    tty.setraw(terminal)
    received = bytearray()

    def read() -> None:
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # the other end is closed
                return
            received.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    given, giving = os.pipe()
    os.write(giving, stdin)
    os.close(giving)
    with (
        pytest.MonkeyPatch.context() as patch,
        os.fdopen(given, "r", encoding="utf-8") as reading,
        os.fdopen(terminal, "w", encoding="utf-8", errors="backslashreplace", closefd=True) as screen,
    ):
        for name, stream in (("stdin", reading), ("stdout", screen), ("stderr", screen)):
            patch.setattr(sys, name, stream)
        code = invoke(list(arguments))
        screen.flush()
    reader.join()
    os.close(controller)
    return Shown(code, OWN_SEQUENCES.sub("", received.decode()))
