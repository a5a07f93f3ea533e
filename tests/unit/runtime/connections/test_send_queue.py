"""The sending half of a connection: chunks leave in order, small ones together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from oncelog.node.events import FileRange
from oncelog.ports import Buffer
from oncelog.runtime.connections.send_queue import SendQueue
from oncelog.runtime.workers import Workers


class Written(asyncio.WriteTransport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


class Cached:
    """A file in the page cache, or one that cannot be read."""

    def __init__(self, data: bytes, failure: OSError | None = None) -> None:
        self._data = data
        self._failure = failure

    def size(self) -> int:
        return len(self._data)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self._failure is not None:
            raise self._failure
        return self._data[position : position + size]

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def append(self, chunks: Sequence[Buffer]) -> int:
        raise NotImplementedError

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@pytest.fixture
def sent() -> Written:
    return Written()


def _queue(sent: Written, lost: list[Exception]) -> SendQueue:
    loop = asyncio.new_event_loop()
    loop.close()
    return SendQueue(sent, Workers(loop, 1, "disk"), lost.append)


def test_small_ranges_of_files_leave_with_what_is_around_them(sent: Written) -> None:
    queue, lost = _queue(sent, []), list[Exception]()
    chunks: list[object] = []
    for number in range(100):
        chunks += [b"head%02d" % number, FileRange(Cached(b"..record.."), 2, 6)]
    queue.add(chunks)
    assert b"".join(sent.pieces) == b"".join(b"head%02drecord" % number for number in range(100))
    assert len(sent.pieces) == 1
    assert (queue.held_bytes, queue.is_empty(), lost) == (0, True, [])


def test_a_large_range_leaves_by_itself_and_in_its_place(sent: Written) -> None:
    queue = _queue(sent, [])
    queue.add([b"a", FileRange(Cached(b"x" * 10_000), 0, 10_000), b"b"])
    assert sent.pieces == [b"a", b"x" * 10_000, b"b"]


def test_a_small_range_that_cannot_be_read_ends_the_connection_after_what_is_before_it(sent: Written) -> None:
    lost: list[Exception] = []
    failure = OSError(5, "Input/output error")
    queue = _queue(sent, lost)
    queue.add([b"a", FileRange(Cached(b"record", failure), 0, 6), b"b"])
    assert (sent.pieces, lost) == ([b"a"], [failure])
