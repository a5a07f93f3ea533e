"""Frames are cut the same way however the bytes arrive, and nothing is allocated for a length that cannot be."""

from __future__ import annotations

import pytest

from oncelog.base.errors import PeerError
from oncelog.client.machine.receive_buffer import ReceiveBuffer


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def drained(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (frame := buffer.next()) is not None:
        frames.append(bytes(frame))
    return frames


BODIES = [b"", b"a", b"bc" * 50, b"x" * 1000, b"tail"]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 63, 64, 65, 4096])
def test_frames_do_not_depend_on_how_bytes_arrive(step: int) -> None:
    buffer = ReceiveBuffer(10_000, read_ahead_bytes=64)
    data = framed(*BODIES)
    frames: list[bytes] = []
    for at in range(0, len(data), step):
        buffer.feed(data[at : at + step])
        frames += drained(buffer)
    assert frames == BODIES


@pytest.mark.parametrize("size", [-1, -(2**31), 10_001, 2**31 - 1])
def test_an_impossible_length_is_refused_before_its_bytes_come(size: int) -> None:
    buffer = ReceiveBuffer(10_000)
    with pytest.raises(PeerError):
        buffer.feed(size.to_bytes(4, "big", signed=True))


def test_a_port_that_speaks_tls_is_recognised() -> None:
    with pytest.raises(PeerError, match=r"set security\.protocol to SSL or SASL_SSL"):
        ReceiveBuffer(1 << 28).feed(bytes.fromhex("15030300020250"))


def test_a_large_frame_announced_and_not_sent_costs_little() -> None:
    buffer = ReceiveBuffer(1 << 30)
    buffer.feed((1 << 30).to_bytes(4, "big") + bytes(1 << 17))
    assert len(buffer.buffer()) <= 4 << 20


def test_a_frame_is_whole_after_its_buffer_has_grown() -> None:
    buffer = ReceiveBuffer(1 << 30, read_ahead_bytes=1024)
    body = bytes(range(256)) * (9 << 12)
    buffer.feed(framed(body, b"next"))
    assert drained(buffer) == [body, b"next"]


def large(receiving: ReceiveBuffer, byte: bytes) -> memoryview:
    """A frame of a megabyte, received."""
    receiving.feed(framed(byte * (1 << 20)))
    frame = receiving.next()
    assert frame is not None
    return frame


def test_a_large_frames_buffer_is_used_again_only_when_no_view_of_it_exists() -> None:
    receiving = ReceiveBuffer(1 << 30)
    first = large(receiving, b"a")
    buffer = first.obj
    part = first[10:20]
    first.release()
    second = large(receiving, b"b")
    assert second.obj is not buffer
    assert bytes(part) == b"a" * 10
    part.release()
    third = large(receiving, b"c")
    assert third.obj is buffer
    assert [bytes(frame[-2:]) for frame in (second, third)] == [b"bb", b"cc"]


def test_what_is_missing_of_a_large_frame() -> None:
    buffer = ReceiveBuffer(1 << 30, read_ahead_bytes=64)
    assert buffer.missing == 0
    buffer.feed(framed(bytes(1000))[:104])
    assert buffer.missing == 900
    buffer.feed(bytes(900))
    assert buffer.missing == 0
