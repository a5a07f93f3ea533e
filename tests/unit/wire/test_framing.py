"""Frames out of a stream, however it is cut, and never more memory than was received."""

from __future__ import annotations

import random

import pytest

from oncelog.base.errors import PeerError
from oncelog.wire.framing import FrameSplitter, request_limit, response_limit
from tests.memory import peak_bytes

PRODUCE, METADATA = 0, 3


def frame(api_key: int, size: int) -> bytes:
    """A frame of ``size`` bytes after its size, of this API key and version 1, told apart by its content."""
    return size.to_bytes(4, "big") + (api_key.to_bytes(2, "big") + b"\0\1" + random.Random(size).randbytes(size))[:size]


def splitter(large: int = 1 << 20, small: int = 1 << 10) -> FrameSplitter:
    return FrameSplitter(request_limit(large, small))


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    frames = [frame(METADATA, size) for size in (4, 5, 8, 300, 1024)] + [frame(PRODUCE, 5000)]
    stream = b"".join(frames)
    for seed in range(30):
        rng = random.Random(seed)
        receiver = splitter()
        received: list[bytes] = []
        position = 0
        while position < len(stream):
            size = rng.choice((1, 1, 2, 3, 7, 8, 100, 10_000))
            received += map(bytes, receiver.feed(stream[position : position + size]))
            position += size
        assert received == [data[4:] for data in frames]
        assert receiver.held_bytes == 0


def test_a_frame_is_writable_and_owned_by_its_receiver() -> None:
    data = bytearray(frame(METADATA, 20) + frame(METADATA, 30))
    receiver = splitter()
    first, second = receiver.feed(data)
    expected = bytes(second)
    first[:] = bytes(20)
    data[:] = bytes(len(data))
    assert bytes(second) == expected


def test_only_produce_may_be_large() -> None:
    receiver = splitter(large=5000, small=1000)
    assert len(receiver.feed(frame(PRODUCE, 5000))) == 1
    assert len(receiver.feed(frame(METADATA, 1000))) == 1
    with pytest.raises(PeerError, match="1001 bytes where 1000 are allowed"):
        receiver.feed(frame(METADATA, 1001)[:8])
    with pytest.raises(PeerError, match="5001 bytes where 5000 are allowed"):
        splitter(large=5000).feed(frame(PRODUCE, 5001)[:8])


@pytest.mark.parametrize(
    ("data", "remark"),
    [(b"\x16\x03\x01\x02\0\1\0\1", "like TLS"), (b"GET /topics HTTP/1.1\r\n", "like HTTP")],
)
def test_another_protocol_is_named(data: bytes, remark: str) -> None:
    with pytest.raises(PeerError, match=remark):
        splitter().feed(data)


def test_a_limit_applies_from_the_next_frame() -> None:
    receiver = splitter(small=10)
    receiver.set_limit(request_limit(100, 100))
    assert len(receiver.feed(frame(METADATA, 100))) == 1


def test_what_precedes_garbage_is_still_handed_over() -> None:
    receiver = splitter()
    (honest,) = receiver.feed(frame(METADATA, 20) + b"GET / HTTP/1.1\r\n")
    assert len(honest) == 20
    assert receiver.refusal is not None
    with pytest.raises(PeerError, match="allowed"):
        receiver.feed(b"")


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3])
def test_a_size_that_no_frame_has_is_refused_at_once(size: int) -> None:
    with pytest.raises(PeerError):
        splitter().feed(size.to_bytes(4, "big", signed=True))


def test_a_response_of_a_correlation_id_alone_is_a_frame() -> None:
    receiver = FrameSplitter(response_limit(100))
    assert receiver.feed(b"\0\0\0\4\0\0") == []
    assert receiver.held_bytes == 6
    (only,) = receiver.feed(b"\0\7")
    assert bytes(only) == b"\0\0\0\7"


def test_what_a_peer_announces_costs_nothing() -> None:
    def receive() -> None:
        receiver = splitter(large=100 << 20)
        assert receiver.feed((100 << 20).to_bytes(4, "big") + bytes(1000)) == []
        assert receiver.held_bytes == 1000

    assert peak_bytes(receive, 10_000) < 10_000
