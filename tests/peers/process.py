"""A peer's process: its log, its processor time and memory, and its end."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.peers.forked import ForkedProcess
from tests.peers.reaper import watch
from tests.waiting import HANG_S

_METADATA_V0: Final = struct.pack(">hhihi", 3, 0, 1, -1, 0)
_METADATA_V1: Final = struct.pack(">hhihi", 3, 1, 1, -1, -1)
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on now, all different; so is the port after each.

    They lie below those that systems give to connections and to listeners that name none: only another test that asks
    here may take one before it is used, and it draws from thousands."""
    results: list[int] = []
    while len(results) < count:
        port = random.SystemRandom().randrange(12_000, 32_000, 2)
        if port not in results and all(map(_is_free, (port, port + 1))):
            results.append(port)
    return results


def _is_free(port: int) -> bool:
    with socket.socket() as each:
        try:
            each.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers_metadata(host: str, port: int, timeout_s: float = HANG_S, *, old: bool = False) -> bool:
    """True if a broker there names at least one live broker: it is ready for clients. An ``old`` one, of 0.8 or 0.9,
    names none before it has a topic: it has to answer."""
    request = _METADATA_V0 if old else _METADATA_V1
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = b""
            while len(answer) < 12:
                more = connection.recv(4096)
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    return old or int.from_bytes(answer[8:12], "big", signed=True) > 0


class Process:
    """One child process that listens on a port. Ended by its own id only, at the latest with the test
    run (`tests.peers.reaper`). ``forked``: see `tests.peers.forked`."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, *, forked: bool = False
    ) -> None:
        self._log = log
        self._output = log.open("ab")
        self._started = time.monotonic()
        self._child: subprocess.Popen[bytes] | ForkedProcess
        if forked:
            self._child = ForkedProcess(command, log, environment)
            watch(self._child.pid)
            return
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
        )
        watch(self._child.pid)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """True while the child has not ended."""
        return self._child.poll() is None

    def wait_ready(self, host: str, port: int, poll_s: float = 0.01, *, old: bool = False) -> float:
        """Wait until the broker names itself; seconds since the start of the process."""
        while not answers_metadata(host, port, old=old):
            elapsed = time.monotonic() - self._started
            if not self.running or elapsed > HANG_S:
                raise RuntimeError(f"no broker at {host}:{port} after {elapsed:.1f} s:\n{self.log_tail()}")
            time.sleep(poll_s)
        return time.monotonic() - self._started

    def log_tail(self, size_bytes: int = 4000) -> str:
        """The end of what the child printed."""
        return self._log.read_bytes()[-size_bytes:].decode("utf-8", "replace")

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_bytes(self) -> int:
        """Memory resident now."""
        return self._status_bytes("VmRSS")

    def peak_resident_bytes(self) -> int:
        """The most memory that was ever resident."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: it stands still, and nobody is told."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._child.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, wait (SIGKILL if it hangs); the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.running:
            self._child.send_signal(number)
            try:
                self._child.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(HANG_S)
        self._output.close()
        return self._child.wait()
