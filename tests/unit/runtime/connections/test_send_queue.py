"""The queue of chunks in front of a socket: what becomes one write, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncelog.runtime.connections.send_queue import SendQueue
from oncelog.storage.file_range import FileRange

CONTENT = bytes(range(256)) * 4096


class Transport:
    """Takes down what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


class File:
    """A file in the page cache, or not, or on a disk that has failed."""

    def __init__(self, *, cached: bool = True, failed: bool = False) -> None:
        self.cached = cached
        self.failed = failed

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self.failed:
            raise OSError("failed")
        return self.read(position, size) if self.cached else None

    def read(self, position: int, size: int) -> bytes:
        return CONTENT[position : position + size]


class Worker:
    """Does work when the test says."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Callable[[], None]]] = []

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        self.work.append(work)

    def do(self) -> None:
        self.work.pop()()()


class Queue:
    """A queue with its surroundings."""

    def __init__(self) -> None:
        self.transport, self.worker = Transport(), Worker()
        self.lost: list[Exception] = []
        self.queue = SendQueue(cast("Any", self.transport), cast("Any", self.worker), self.lost.append)

    def add(self, file: File, size: int) -> list[bytes]:
        self.queue.add([b"head", FileRange(cast("Any", file), 10, size), b"tail"])
        return self.transport.written


def test_a_response_with_few_records_is_one_write() -> None:
    queue = Queue()
    assert queue.add(File(), 100) == [b"head" + CONTENT[10:110] + b"tail"]
    assert queue.queue.held_bytes == 0
    assert queue.queue.is_empty()


def test_many_records_are_written_by_themselves() -> None:
    queue = Queue()
    assert queue.add(File(), 100_000) == [b"head", CONTENT[10:100_010], b"tail"]
    assert queue.queue.held_bytes == 0


def test_few_records_that_are_not_in_memory_are_read_by_a_worker() -> None:
    queue = Queue()
    assert queue.add(File(cached=False), 100) == [b"head"]
    assert queue.queue.held_bytes == len(b"tail")
    queue.worker.do()
    assert b"".join(queue.transport.written) == b"head" + CONTENT[10:110] + b"tail"
    assert queue.queue.held_bytes == 0


def test_a_log_that_cannot_be_read_ends_the_response() -> None:
    queue = Queue()
    assert queue.add(File(failed=True), 100) == [b"head"]
    assert len(queue.lost) == 1


def test_small_responses_that_wait_for_the_socket_leave_together() -> None:
    queue = Queue()
    queue.queue.pause()
    for _ in range(3):
        queue.add(File(), 10)
    assert queue.transport.written == []
    queue.queue.resume()
    assert queue.transport.written == [(b"head" + CONTENT[10:20] + b"tail") * 3]
