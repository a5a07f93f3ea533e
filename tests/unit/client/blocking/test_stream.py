"""Waiting for a large response goes on until much of it is here, and never past what will come; the next one need not
wait for whoever reads."""

from __future__ import annotations

import select
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.stream import TcpStream
from oncelog.client.config import Address
from oncelog.client.errors import ConnectionLost

LONG_MS = 20_000
Ends = tuple[TcpStream, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A stream, and the far end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield TcpStream(near, Address("127.0.0.1", 1)), far


def received(stream: TcpStream, count: int) -> int:
    """Take in a response of ``count`` bytes as a link does."""
    room, taken = memoryview(bytearray(2 * MIB)), 0
    stream.expect(count)
    while taken < count:
        taken += stream.receive_into(room, LONG_MS)
        stream.expect(count - taken)
    return taken


def test_the_rest_of_a_response_is_enough_to_wake_up(ends: Ends) -> None:
    stream, far = ends
    far.sendall(bytes(600 * KIB))
    assert received(stream, 600 * KIB) == 600 * KIB
    far.sendall(b"end")
    assert received(stream, 3) == 3


def test_a_far_end_that_gives_up_is_noticed_at_once(ends: Ends) -> None:
    stream, far = ends
    stream.expect(1 * MIB)
    far.sendall(bytes(10 * KIB))
    far.shutdown(socket.SHUT_WR)
    assert stream.receive_into(memoryview(bytearray(MIB)), LONG_MS) == 10 * KIB
    with pytest.raises(ConnectionLost):
        stream.receive_into(memoryview(bytearray(10)), LONG_MS)


def test_little_is_waited_for_again_after_a_response(ends: Ends) -> None:
    stream, far = ends
    stream.expect(1 * MIB)
    stream.expect(0)
    far.sendall(b"x")
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    assert poll.poll(LONG_MS)
    assert received(stream, 1) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the low-water mark is left alone")
def test_the_next_large_response_has_room_while_nobody_reads(ends: Ends) -> None:
    stream, far = ends
    far.sendall(bytes(600 * KIB))
    assert received(stream, 600 * KIB) == 600 * KIB
    with socket.fromfd(stream._socket.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 600 * KIB
        stream.fileno()
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_chunks_that_the_kernel_takes_in_part_arrive_whole_and_in_order(ends: Ends) -> None:
    stream, far = ends
    chunks = [b"head", bytes(range(256)) * 40_000, memoryview(b"x" * (6 * MIB)), bytearray(b"tail"), b""]
    sender = threading.Thread(target=stream.send, args=(chunks, LONG_MS))
    sender.start()
    got = bytearray()
    while not got.endswith(b"tail"):
        got += far.recv(MIB)
    sender.join()
    assert got == b"".join(chunks)
