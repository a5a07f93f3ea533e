"""Raw sockets against the real server: garbage, stalls, slow readers. Nothing but their own connection suffers."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct

import pytest

from oncelog.testing import Broker, loop
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.waiting import HANG_S, wait_until


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


def connect(broker) -> socket.socket:
    peer = socket.create_connection((broker.host, broker.port))
    peer.settimeout(HANG_S)
    return peer


def encoded(request, version: int, correlation_id: int) -> bytes:
    header = RequestHeader(request.API_KEY, version, correlation_id, "raw")
    return b"".join(bytes(chunk) for chunk in encode_request(header, request))


def api_versions_request(correlation_id: int) -> bytes:
    return encoded(ApiVersionsRequest(), 0, correlation_id)


def read_frame(peer: socket.socket) -> bytes:
    size = struct.unpack(">i", read_exactly(peer, 4))[0]
    return read_exactly(peer, size)


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        assert piece, "closed"
        data += piece
    return data


def answers(peer: socket.socket, correlation_id: int = 5) -> bool:
    peer.sendall(api_versions_request(correlation_id))
    frame = read_frame(peer)
    response = ApiVersionsResponse.decode(frame[4:], 0)
    return frame[:4] == struct.pack(">i", correlation_id) and response.error_code == 0


def test_a_request_may_arrive_a_byte_at_a_time(broker):
    with connect(broker) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in api_versions_request(9):
            peer.sendall(bytes([byte]))
        assert read_frame(peer)[:4] == struct.pack(">i", 9)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        struct.pack(">ihh", 0x7FFFFFFF, 0, 9),
        struct.pack(">ihh", 2 << 20, 3, 12),
        struct.pack(">ihh", -1, 0, 0),
        bytes(64),
    ],
    ids=["http", "tls", "2 GiB produce", "2 MiB metadata", "negative size", "zeros"],
)
def test_what_is_no_request_closes_the_connection(broker, data):
    with connect(broker) as peer, connect(broker) as other:
        peer.sendall(data)
        assert peer.recv(1) == b""
        assert answers(other)


def test_what_was_asked_before_the_garbage_is_still_answered(broker):
    with connect(broker) as peer:
        peer.sendall(api_versions_request(3) + b"\xff" * 16)
        assert read_frame(peer)[:4] == struct.pack(">i", 3)
        assert peer.recv(1) == b""


@pytest.mark.slow
def test_many_who_announce_much_and_stall_hold_no_memory(broker):
    with connect(broker) as honest:
        assert answers(honest)
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stalled = []
        for _ in range(300):
            peer = connect(broker)
            peer.sendall(struct.pack(">ihh", 90_000_000, 0, 9) + bytes(100))
            stalled.append(peer)
        assert answers(honest, 77)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000
        for peer in stalled:
            peer.close()


def produce_frame(size: int) -> bytes:
    return struct.pack(">ihhi", size, 0, 9, 1) + b"\xff\xff" + bytes(size - 10)


class Later:
    """Moves the time of a broker's loop on, so that nothing depends on how long this machine takes for it."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def pass_s(self, seconds: float, other: socket.socket) -> None:
        """Let time pass, and what falls due happen; ``other`` is a connection of somebody else."""
        self.by_s += seconds
        for _ in range(3):  # a sweep that has become due is done within the loop's next two rounds
            assert answers(other)


@pytest.fixture
def later(monkeypatch) -> Later:
    passed = Later()

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + passed.by_s

    monkeypatch.setattr(loop, "new_event_loop", Loop)
    return passed


def test_a_large_request_over_a_slow_but_steady_link_is_no_stall(later):
    with (
        Broker({"oncelog.connection.stalled.ms": "60000"}) as broker,
        connect(broker) as peer,
        connect(broker) as other,
    ):
        frame = produce_frame(600_000)
        quotas = broker._running()._quotas
        for end in range(70_000, len(frame), 70_000):
            peer.sendall(frame[end - 70_000 : end])
            while quotas.held_bytes < end - 4 and not quotas.cut_off:
                assert answers(other)
            later.pass_s(40, other)
            assert quotas.cut_off == 0
        peer.sendall(frame[end:])
        assert peer.recv(1) == b"", "whole, decoded, refused"
        assert quotas.cut_off == 0


def test_a_peer_that_drips_into_what_it_began_is_cut_off(later):
    with (
        Broker({"oncelog.connection.stalled.ms": "60000"}) as broker,
        connect(broker) as peer,
        connect(broker) as other,
    ):
        frame = produce_frame(600_000)
        quotas = broker._running()._quotas
        peer.sendall(frame[:100_000])
        for end in range(100_000, 100_003):
            while quotas.held_bytes < end - 4:
                assert answers(other)
            assert quotas.cut_off == 0
            peer.sendall(frame[end : end + 1])
            later.pass_s(25, other)
        assert peer.recv(1) == b""
        assert quotas.cut_off == 1


def test_a_client_that_pipelines_gets_its_answers_in_order(broker):
    with connect(broker) as peer:
        peer.sendall(b"".join(api_versions_request(number) for number in range(250)))
        assert [struct.unpack(">i", read_frame(peer)[:4])[0] for _ in range(250)] == list(range(250))


@pytest.mark.slow
def test_a_peer_that_asks_much_and_reads_nothing_is_bounded_and_cut_off():
    with Broker({"oncelog.connection.stalled.ms": "150", "num.partitions": "300"}) as broker:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="large")], allow_auto_topic_creation=True)
        with connect(broker) as peer, connect(broker) as other:
            peer.sendall(encoded(request, 9, 1))
            assert len(read_frame(peer)) > 6_000
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            peer.settimeout(0.3)
            with contextlib.suppress(OSError):
                peer.sendall(encoded(MetadataRequest(topics=None), 9, 2) * 300_000)
            wait_until(lambda: answers(other) and broker._running()._quotas.cut_off, "its being cut off", poll_s=0)
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 60_000
            peer.settimeout(HANG_S)
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(1 << 20):
                    pass  # what was on its way; then the end, because it was cut off
            assert answers(other)
