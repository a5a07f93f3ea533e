"""The cost of a hostile peer to a real server process: its memory's peak, and how long it lets others wait.

Linux keeps both for us: the peak of the resident memory can be set back (``clear_refs``), and ``schedstat`` says what
the main thread has run for. A wait is counted in work: that processor time, divided by what a fixed piece of work takes
at the same moment (``STEPS_A_PIECE``). Who is slow because others take the machine's time, its caches or the other half
of a core does not look guilty.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Final, Self

from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from tests.hostile.largest import KNOWN
from tests.peers.clients.sweep.wire import Wire
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import HANG_S

STEPS_A_PIECE: Final = 10_000
"""Of a Python loop: a piece of work, about half a millisecond of an idle core."""
_PING: Final = join_chunks(encode_request(RequestHeader(18, 0, 7, "ping"), ApiVersionsRequest()))


def server_pid(port: int) -> int:
    """The process that listens on a port of this machine."""
    expected = f":{port:04X}"
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(expected) and line.split()[3] == "0A"
    }
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                links = (os.readlink(link) for link in (entry / "fd").iterdir())
                if any(link == f"socket:[{inode}]" for link in links for inode in inodes):
                    return int(entry.name)
    raise RuntimeError(f"nobody listens on {port}")


class Server:
    """A broker process, and what it costs."""

    def __init__(self, *, partitions: int = 1, **properties: str) -> None:
        self._partitions = partitions
        """Of the topic that exists."""
        self._serve = OncelogServe(properties={key.replace("_", "."): value for key, value in properties.items()})
        self.pid = 0

    def __enter__(self) -> Self:
        self._serve.__enter__()
        self.pid = server_pid(self._serve.port)
        with Wire(self._serve.bootstrap_servers) as wire:
            self.topic_id = wire.topic(KNOWN, self._partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serve.__exit__(kind, error, trace)

    @property
    def bootstrap_servers(self) -> str:
        """The address on which it listens."""
        return self._serve.bootstrap_servers

    def connect(self) -> socket.socket:
        """A connection of another client."""
        connection = socket.create_connection((self._serve.host, self._serve.port), timeout=HANG_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ran_s(self) -> float:
        """Seconds that its main thread has run for."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def forget_peak(self) -> None:
        """The peak of the memory begins here."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def memory(self, text: str = "VmHWM") -> int:
        """Peak of the resident memory in bytes; ``VmRSS``: what it is now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(text):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {text}")


class Waits(threading.Thread):
    """Another client that asks something small again and again: the longest it had to wait."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._over = threading.Event()
        self.worst_s = 0.0
        """Longest time that the server's loop ran for meanwhile."""
        self.asked = 0
        self._pieces_s: list[float] = []

    @property
    def worst(self) -> float:
        """The longest wait, in pieces of work."""
        return self.worst_s / median(self._pieces_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Ask until it is over."""
        with self._server.connect() as connection:
            while not self._over.is_set() or not self.asked:
                ran_s = self._server.ran_s()
                connection.sendall(_PING)
                read_answer(connection)
                self._note(self._server.ran_s() - ran_s)

    def _note(self, waited_s: float) -> None:
        self.worst_s = max(self.worst_s, waited_s)
        self._pieces_s.append(_piece_s())
        self.asked += 1

    def ask_more(self, times: int) -> None:
        """Return when it has been answered so many times more, or has failed."""
        enough = self.asked + times
        while self.asked < enough and self.is_alive():
            time.sleep(0.01)


class Acknowledgements(Waits):
    """Another client that produces with acks=all."""

    def run(self) -> None:
        """Produce until it is over."""
        with Wire(self._server.bootstrap_servers) as wire:
            while not self._over.is_set() or not self.asked:
                ran_s = self._server.ran_s()
                answer = wire.produce(KNOWN, b"v")
                assert answer.responses[0].partition_responses[0].error_code == 0
                self._note(self._server.ran_s() - ran_s)


def _piece_s() -> float:
    """The processor time that a piece of work takes now."""
    started_s = time.thread_time()
    sum(number * number for number in range(STEPS_A_PIECE))
    return time.thread_time() - started_s


def read_answer(connection: socket.socket) -> int:
    """Read one response away, without keeping it; its size, 0 when the connection was closed instead."""
    start = b""
    while len(start) < 4:
        try:
            piece = connection.recv(4 - len(start))
        except ConnectionResetError:
            return 0
        if not piece:
            return 0
        start += piece
    size = left = int.from_bytes(start, "big")
    while left:
        left -= len(connection.recv(min(left, 1 << 20))) or left
    return size


def announced(size: int) -> bytes:
    """The start of a Produce request of ``size`` bytes."""
    return struct.pack(">ihhi", size, 0, 9, 1) + b"\xff\xff"
