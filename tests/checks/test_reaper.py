"""A test run that is killed leaves no peers behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.peers.reaper import start_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(start_of(os.getpid()) is None, reason="needs /proc")]

_RUN: Final = """
import signal, sys
from pathlib import Path
from tests.peers.process import Process

peer = Process([sys.executable, "-c", "import signal; signal.pause()"], Path(sys.argv[1]))
print(peer.pid, flush=True)
if len(sys.argv) > 2:
    peer.kill()
else:
    signal.pause()
"""


def _start(log: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _RUN, str(log), *more], stdout=subprocess.PIPE, text=True)


def test_peers_end_with_the_run_that_was_killed(tmp_path: Path) -> None:
    with _start(tmp_path / "log") as run:
        assert run.stdout is not None
        peer = int(run.stdout.readline())
        started = start_of(peer)
        assert started is not None
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: start_of(peer) != started, "the end of the peer")


def test_a_run_that_has_ended_its_peers_ends_without_a_word(tmp_path: Path) -> None:
    with _start(tmp_path / "log", "ends its peer") as run:
        message, _ = run.communicate()
    assert (run.returncode, len(message.splitlines())) == (0, 1)


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as zombie:
        wait_until(lambda: start_of(zombie.pid) is None, "its end")
