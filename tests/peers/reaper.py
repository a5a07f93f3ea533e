"""Ends the processes of a test run that was killed: SIGKILL runs no fixture's end, and JVMs would stay behind.

One helper for each test process, started with its first peer. It is told which peers run, through a pipe that only the
test process has; the pipe's end is the test process's end, however that came. A peer is named by its id and the moment
of its start, so that no process that was given the id since is hit. Where there is no ``/proc`` nobody is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

_ENDED: Final = ("Z", "X")
"""States of processes that have ended: zombies, and those about to go."""


def watch(pid: int) -> None:
    """Let a process end when this one has."""
    started = start_of(pid)
    if started is not None:
        _tell(f"{pid} {started}\n")


def start_of(pid: int) -> str | None:
    """The moment in which a process was started, in ticks since the machine's start; None: it has ended, though its
    parent, such as the first process of a container, may not have asked how."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return None if state in _ENDED else fields[18]
    except (OSError, ValueError, IndexError):
        return None


def _tell(line: str) -> None:
    helper = _helper(os.getpid())
    assert helper.stdin is not None
    with contextlib.suppress(OSError):  # somebody has ended the helper: the run is worth more
        helper.stdin.write(line.encode())
        helper.stdin.flush()


@cache
def _helper(_own_pid: int) -> subprocess.Popen[bytes]:
    """By the process id: what is forked from this process has peers, and a helper, of its own."""
    command = [sys.executable, "-S", "-E", __file__]
    helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    atexit.register(helper.communicate)
    return helper


def main() -> None:
    """Read who runs until the writer is gone; then end whoever is left."""
    watched = [line.split() for line in sys.stdin]
    for pid, started in watched:
        if start_of(int(pid)) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    main()
