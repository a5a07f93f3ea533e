"""The sending half of a connection: what goes out in one system call, what waits, and what a failing disk does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from oncelog.base.units import MIB
from oncelog.node.kernel.events import FileRange
from oncelog.runtime.connections.send_queue import READ_SIZE, SendQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from oncelog.runtime.workers import Workers

HEAD, TAIL = b"head of a response", b"end"


class _Transport:
    """Records the bytes that were handed over, call by call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.is_closed = False
        self.after_each: Callable[[], None] = lambda: None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.calls.append(b"".join(parts))
        self.after_each()

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class _Log:
    """A file of which the bytes from ``cold_from`` on are not in the page cache, and which may fail."""

    def __init__(self, content: bytes, cold_from: int | None = None, failure: OSError | None = None) -> None:
        self.content = content
        self._cold_from = len(content) if cold_from is None else cold_from
        self._failure = failure

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self._failure is not None:
            raise self._failure
        return self.read(position, size) if position + size <= self._cold_from else None

    def read(self, position: int, size: int) -> bytes:
        return self.content[position : position + size]


class _Worker:
    """Work that waits until it is told to run."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Callable[[], None]]] = []

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        self.waiting.append(work)

    def run(self) -> None:
        self.waiting.pop(0)()()


class _Bench:
    def __init__(self) -> None:
        self.transport, self.worker = _Transport(), _Worker()
        self.lost: list[Exception] = []
        self.queue = SendQueue(
            cast("asyncio.WriteTransport", self.transport), cast("Workers", self.worker), self.lost.append
        )


def _whole(log: _Log) -> FileRange:
    return FileRange(cast("Any", log), 0, len(log.content))


def test_head_records_and_tail_are_one_system_call() -> None:
    bench, log = _Bench(), _Log(b"r" * READ_SIZE)
    bench.queue.add([HEAD, _whole(log), TAIL])
    assert bench.transport.calls == [HEAD + log.content + TAIL]
    assert bench.queue.is_empty()
    assert bench.queue.held_bytes == 0


def test_a_large_range_goes_out_in_pieces() -> None:
    bench, log = _Bench(), _Log(bytes(range(256)) * (3 * MIB // 256) + b"rest")
    bench.queue.add([HEAD, _whole(log), TAIL])
    assert b"".join(bench.transport.calls) == HEAD + log.content + TAIL
    assert max(map(len, bench.transport.calls)) <= READ_SIZE + len(HEAD)


def test_nothing_more_is_read_while_the_socket_is_full() -> None:
    bench, log = _Bench(), _Log(b"r" * (3 * READ_SIZE))
    bench.transport.after_each = bench.queue.pause
    bench.queue.add([HEAD, _whole(log), TAIL])
    assert len(bench.transport.calls) == 1
    assert bench.queue.held_bytes == len(TAIL)
    bench.transport.after_each = lambda: None
    bench.queue.resume()
    assert b"".join(bench.transport.calls) == HEAD + log.content + TAIL


def test_records_that_are_not_in_the_page_cache_are_read_by_a_worker() -> None:
    bench, log = _Bench(), _Log(b"cold", cold_from=0)
    bench.queue.add([HEAD, _whole(log), TAIL])
    assert bench.transport.calls == [HEAD]
    assert not bench.queue.is_empty()
    bench.queue.add([b"the next response"])
    assert bench.transport.calls == [HEAD]
    bench.worker.run()
    assert b"".join(bench.transport.calls) == HEAD + b"cold" + TAIL + b"the next response"
    assert bench.queue.is_empty()


def test_a_log_that_cannot_be_read_ends_the_connection_and_nothing_is_sent_after_it() -> None:
    bench = _Bench()
    failure = OSError("the disk")
    bench.queue.add([HEAD, _whole(_Log(b"records", failure=failure)), TAIL])
    assert bench.lost == [failure]
    assert bench.transport.calls == []


def test_a_log_that_is_shorter_than_it_was_ends_the_connection() -> None:
    bench = _Bench()
    bench.queue.add([FileRange(cast("Any", _Log(b"short")), 0, 100)])
    bench.worker.run()
    assert "expected 100 bytes of a log, but the file has 5" in str(bench.lost)


def test_many_small_chunks_are_one_system_call() -> None:
    bench = _Bench()
    chunks: list[Any] = [bytes([number % 256]) for number in range(200)]
    bench.queue.add(chunks)
    assert bench.transport.calls == [b"".join(chunks)]


def test_a_connection_that_is_to_end_is_closed_after_what_is_queued() -> None:
    bench = _Bench()
    bench.transport.after_each = bench.queue.pause
    bench.queue.add([b"a", b"b" * READ_SIZE, b"c" * READ_SIZE])
    bench.queue.close_when_empty()
    assert not bench.transport.is_closed
    bench.transport.after_each = lambda: None
    bench.queue.resume()
    assert bench.transport.is_closed


def test_a_cold_read_that_ends_after_the_connection_writes_nothing() -> None:
    bench, log = _Bench(), _Log(b"cold", cold_from=0)
    bench.queue.add([HEAD, _whole(log), TAIL])
    sent = list(bench.transport.calls)
    bench.queue.drop()
    bench.transport.close()
    bench.worker.run()
    assert bench.transport.calls == sent
    assert not bench.lost


def test_gathered_responses_are_one_system_call() -> None:
    bench, log = _Bench(), _Log(b"records")
    bench.queue.gather()
    bench.queue.add([b"first"])
    bench.queue.add([HEAD, _whole(log), TAIL])
    assert bench.transport.calls == []
    bench.queue.send_gathered()
    assert bench.transport.calls == [b"first" + HEAD + b"records" + TAIL]
    bench.queue.add([b"next"])
    assert bench.transport.calls[1:] == [b"next"]


def test_gathered_responses_take_little_memory() -> None:
    bench = _Bench()
    bench.queue.gather()
    for _ in range(100):
        bench.queue.add([bytes(10_000)])
        assert bench.queue.held_bytes <= 64 * 1024 + 10_000
    assert sum(map(len, bench.transport.calls)) >= 900_000


def test_a_connection_that_closes_meanwhile_has_sent_what_was_gathered() -> None:
    bench = _Bench()
    bench.queue.gather()
    bench.queue.add([b"answer"])
    bench.queue.close_when_empty()
    assert bench.transport.calls == [b"answer"]
    assert bench.transport.is_closing()
