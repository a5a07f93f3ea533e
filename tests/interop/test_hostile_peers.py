"""Garbage, torn frames, lying sizes: whoever sends them loses its connection, and nothing else happens.

The frames are the golden corpus's, damaged by seed; a well-behaved client is served all along.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

import pytest

from oncelog.testing import Broker
from tests.conformance.golden.corpus import DATA
from tests.peers.clients.confluent import make_topic
from tests.peers.clients.sweep.wire import Wire, batch
from tests.peers.process import answers_metadata
from tests.peers.recorder import Direction, load
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow


def _requests() -> list[bytes]:
    frames = {
        event.frame
        for recording in sorted(DATA.glob("*.xz"))
        for event in load(recording)
        if event.direction is Direction.REQUEST and len(event.frame) < 5000
    }
    return sorted(frames)


def _damaged(frame: bytes, chance: random.Random) -> bytes:
    changed = bytearray(frame)
    kind = chance.randrange(4)
    if kind == 0:
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    elif kind == 1:
        del changed[chance.randrange(len(changed)) :]
    elif kind == 2:
        position = chance.randrange(len(changed))
        changed[position:position] = chance.randbytes(chance.randint(1, 8))
    else:
        position = chance.randrange(8, max(9, len(changed) - 4))
        changed[position : position + 4] = struct.pack(">i", chance.choice([-2, 2**31 - 1, 2**24, 1_000_000]))
    return bytes(changed)


def _send(broker: Broker, frames: list[bytes]) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((broker.host, broker.port), timeout=HANG_S) as connection,
    ):
        for frame in frames:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.05)
        while connection.recv(1 << 16):
            pass


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_requests_harm_nobody_else(seed: int, broker: Broker) -> None:
    chance = random.Random(seed)
    frames = _requests()
    with Wire(broker.bootstrap_servers) as good:
        good.topic("kept")
        for round_number in range(150):
            _send(broker, [_damaged(chance.choice(frames), chance) for _ in range(chance.randint(1, 5))])
            if round_number % 10 == 0:
                answer = good.produce("kept", b"v")
                assert answer.responses[0].partition_responses[0].error_code in (0, 3)
    assert answers_metadata(broker.host, broker.port)


def test_noise_and_lying_sizes_end_their_own_connection(broker: Broker) -> None:
    chance = random.Random(3)
    for start in (
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        chance.randbytes(1000),
    ):
        with socket.create_connection((broker.host, broker.port), timeout=HANG_S) as connection:
            connection.sendall(start)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1 << 16) == b""
    assert answers_metadata(broker.host, broker.port)


def test_clients_that_announce_much_and_stall_do_not_stop_the_others(broker: Broker) -> None:
    make_topic(broker.bootstrap_servers, "busy")
    stalled = [socket.create_connection((broker.host, broker.port), timeout=HANG_S) for _ in range(200)]
    try:
        for connection in stalled:
            connection.sendall(struct.pack(">ihhi", 90_000_000, 0, 9, 1))
        with Wire(broker.bootstrap_servers) as good:
            for _ in range(20):
                assert good.produce("busy", b"v").responses[0].partition_responses[0].error_code == 0
    finally:
        for connection in stalled:
            connection.close()


def test_a_connection_that_is_cut_in_the_middle_of_a_request_leaves_nothing(broker: Broker) -> None:
    make_topic(broker.bootstrap_servers, "torn")
    whole = batch(b"v" * 1000)
    threads = []
    for size in range(10, 1000, 100):
        frame = struct.pack(">ihhi", 5000, 0, 9, 1) + whole[:size]
        threads.append(threading.Thread(target=_cut, args=(broker, frame)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    with Wire(broker.bootstrap_servers) as good:
        assert good.produce("torn", b"v").responses[0].partition_responses[0].base_offset == 0


def _cut(broker: Broker, start: bytes) -> None:
    with socket.create_connection((broker.host, broker.port), timeout=HANG_S) as connection:
        connection.sendall(start)
