"""The broker under fire: the real ``oncelog serve``, a proxy before it, a clock that jumps, a disk that fills up.

The disk is full either for real (a small tmpfs, which needs root) or by a limit on the size of files (RLIMIT_FSIZE,
lowered and raised in the running process): then appends fail with EFBIG instead of ENOSPC, in one file after another.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.faults.skewed import set_skew
from tests.peers.network_proxy import Proxy
from tests.peers.oncelog_serve import OncelogServe
from tests.peers.process import free_ports

PROPERTIES: Final = {
    "log.segment.bytes": "1048576",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
}
"""Small segments, so that they roll; no retention and no limit on timestamps, for the clock jumps by hours."""
TMPFS_BYTES: Final = 128 << 20


class Host:
    """One broker and its surroundings. Use as a context manager."""

    def __init__(self, directory: Path, *, tmpfs: bool = False) -> None:
        self._directory = directory
        self._tmpfs = tmpfs
        self._skew = directory / "skew"
        self._ballast = directory / "broker" / "ballast"
        self._stack = contextlib.ExitStack()
        self.skew_s = 0.0
        self.broken: list[str] = []
        """Faults of the broker itself: it ended."""

    def __enter__(self) -> Host:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _begin(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        set_skew(self._skew, 0)
        broker_directory = self._directory / "broker"
        broker_directory.mkdir(exist_ok=True)
        if self._tmpfs:
            self._stack.enter_context(_mounted(broker_directory))
        port = free_ports(1)[0]
        self.proxy = Proxy(("127.0.0.1", port))
        self._stack.callback(self.proxy.close)
        command = [sys.executable, "-m", "tests.interop.faults.skewed", str(self._skew)]
        properties = {**PROPERTIES, "advertised.listeners": f"PLAINTEXT://{self.proxy.bootstrap_servers}"}
        self.broker = OncelogServe(broker_directory, properties=properties, port=port, command=command, forked=True)
        self._stack.callback(self._end)
        self.broker.start()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's."""
        return self.proxy.bootstrap_servers

    def kill(self, down_s: float) -> None:
        """SIGKILL, and start again."""
        self.broker.kill()
        time.sleep(down_s)
        self.broker.start()

    def stop(self, down_s: float) -> None:
        """SIGTERM, and start again."""
        code = self.broker.stop()
        if code != 0:
            self.broken.append(f"exit code {code} after SIGTERM")
        time.sleep(down_s)
        self.broker.start()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, SIGCONT."""
        os.kill(self.broker.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.broker.process.pid, signal.SIGCONT)

    def move_clock(self, seconds: float) -> None:
        """The broker's wall clock jumps."""
        self.skew_s += seconds
        set_skew(self._skew, int(self.skew_s * 1e9))

    def fill_disk(self) -> None:
        """No room any more."""
        if not self._tmpfs:
            self._limit_files(0)
            return
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            size = 1 << 20
            while size:
                try:
                    ballast.write(bytes(size))
                except OSError:
                    size //= 2

    def free_disk(self) -> None:
        """Room again; whoever stopped for the lack of it is started, as an operator would."""
        if self._tmpfs:
            self._ballast.unlink(missing_ok=True)
        elif self.broker.process.running:
            self._limit_files(resource.RLIM_INFINITY)
        if not self.broker.process.running:
            self.start_again()

    def start_again(self) -> None:
        """After it stopped for a reason that a fault gave it."""
        self.broker.kill()
        self.broker.start()

    def look(self) -> None:
        """Note an end that nobody asked for; and start it again, so that the rest is seen too."""
        if not self.broker.process.running:
            self.broken.append(f"the broker ended by itself:\n{self.broker.process.log_tail()}")
            self.start_again()

    def _limit_files(self, size_bytes: int) -> None:
        resource.prlimit(self.broker.process.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # it never ran
            self.broker.kill()


@contextlib.contextmanager
def _mounted(directory: Path) -> Iterator[None]:
    """A small file system of its own on ``directory``. Raises CalledProcessError where that is not allowed."""
    size = f"size={TMPFS_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "oncelog-faults", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)
