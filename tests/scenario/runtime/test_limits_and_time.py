"""The broker's bounds over all connections, and the clocks it goes by."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from oncelog.base.ids import TopicPartition
from oncelog.base.notation.java_properties import parse_properties
from oncelog.node.kernel.events import RunJob
from oncelog.node.listeners.broker_settings import ConfigError, read_settings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.runtime.clock import WallClock
from oncelog.runtime.data.disk_files import DiskFile
from oncelog.testing import Broker
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.scenario.node.requests import fetch, produce
from tests.scenario.runtime.test_peers_that_misbehave import answers, connect, encoded, read_exactly, read_frame
from tests.waiting import HANG_S, wait_until

SMALLEST_BOUND = 1 << 20


def produce_frame(size: int) -> bytes:
    """A frame that is refused, but only when it is here whole: its size says so first."""
    return struct.pack(">ihhi", size, 0, 9, 1) + b"\xff\xff" + bytes(size - 10)


def create_topic(peer: socket.socket) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    peer.sendall(encoded(request, 9, 1))
    read_frame(peer)


def test_peers_whose_requests_do_not_fit_together_all_get_through():
    with Broker(
        {"oncelog.buffered.max.bytes": str(SMALLEST_BOUND), "oncelog.connection.stalled.ms": "60000"}
    ) as broker:
        size = 3 << 20
        peers = [connect(broker) for _ in range(4)]
        for peer in peers:
            peer.sendall(produce_frame(size)[: SMALLEST_BOUND // 2])
        for peer in reversed(peers):
            peer.sendall(produce_frame(size)[SMALLEST_BOUND // 2 :])
        for peer in peers:
            assert peer.recv(1) == b"", "decoded, refused, closed"
            peer.close()


def test_requests_that_wait_behind_another_count_as_held():
    with Broker() as broker, connect(broker) as peer:
        create_topic(peer)
        waiting: FetchRequest = fetch("t", 0, max_wait_ms=2**31 - 1)
        peer.sendall(encoded(waiting, 11, 2) + produce_frame(500_000))
        quotas = broker._running()._quotas
        with connect(broker) as other:
            wait_until(lambda: answers(other) and quotas.held_bytes == 500_000, "all of the request", poll_s=0)
            peer.close()
            wait_until(lambda: answers(other) and quotas.held_bytes == 0, "the end of the connection", poll_s=0)


def test_a_negative_idle_time_means_never():
    with Broker({"connections.max.idle.ms": "-1"}) as broker, connect(broker) as peer, connect(broker) as silent:
        assert answers(silent)
        for _ in range(100):
            assert answers(peer)
        assert answers(silent)


def test_the_number_of_connections_may_be_lowered_while_it_runs():
    with Broker() as broker, connect(broker) as peer:
        config = AlterableConfig(name="max.connections", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        peer.sendall(encoded(IncrementalAlterConfigsRequest(resources=[resource]), 0, 1))
        assert read_frame(peer)
        with connect(broker) as refused:
            assert closed(refused)
        assert answers(peer)


def closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_one_peers_many_requests_leave_others_their_turn():
    with Broker() as broker, connect(broker) as greedy, connect(broker) as other:
        names = [MetadataRequestTopic(name=f"n{index}") for index in range(400)]
        request = encoded(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9, 1)
        greedy.sendall(request * 40)
        assert answers(other)
        for _ in range(40):
            assert read_frame(greedy)


def test_what_a_peer_said_before_it_left_is_still_done():
    with Broker() as broker, connect(broker) as watcher:
        create_topic(watcher)
        records = bytes(build_batch([Record(0, 1, None, b"v" * 20_000, ())]))
        with connect(broker) as peer:
            peer.sendall(encoded(produce("t", records, acks=0), 9, 1) * 200)
        log = broker._running().node.partitions.leader_log(TopicPartition("t", 0)).log
        wait_until(lambda: answers(watcher) and log.log_end_offset == 200, "what was sent", poll_s=0)


@pytest.mark.slow
def test_virtual_time_passes_a_default_retention_quickly(monkeypatch):
    with Broker(virtual_time=True) as broker:
        node, turns = broker._running().node, 0
        handle = node.handle

        def counted(*event):
            nonlocal turns
            turns += 1
            return handle(*event)

        monkeypatch.setattr(node, "handle", counted)
        broker.advance(8 * 24 * 3600 * 1000)
        assert turns < 100_000, "a turn every seven seconds"


def test_a_clock_that_is_set_back_slows_time_and_does_not_stop_it():
    wall, monotonic = [10_000_000_000_000_000], [0]
    clock = WallClock(lambda: wall[0], lambda: monotonic[0])
    before_ms = clock.now_ms()
    wall[0] -= 3600 * 10**9
    for _ in range(1000):
        monotonic[0] += 1_000_000
        wall[0] += 1_000_000
        clock.now_ms()
    assert clock.now_ms() - before_ms == 500
    wall[0] += 3600 * 10**9
    monotonic[0] += 500_000_000
    wall[0] += 500_000_000
    assert clock.now_ms() == wall[0] // 1_000_000


@pytest.mark.parametrize(("forward_s", "after_10_s"), [(1, 11), (10, 20), (1200, 20), (3600, 3610)])
def test_a_clock_that_is_set_forward_quickens_time_and_fires_no_timeouts_at_once(forward_s, after_10_s):
    wall, monotonic = [10_000_000_000_000_000], [0]
    clock = WallClock(lambda: wall[0], lambda: monotonic[0])
    before_ms = clock.now_ms()
    wall[0] += forward_s * 10**9
    if forward_s < 1800:
        assert clock.now_ms() == before_ms
    for _ in range(1000):
        monotonic[0] += 10_000_000
        wall[0] += 10_000_000
        clock.now_ms()
    assert clock.now_ms() - before_ms == after_10_s * 1000


@pytest.mark.slow
def test_a_clock_that_is_set_ahead_holds_nothing_up():
    """Found by the harness of real processes: what fell due by the jump was waited for as if nothing had happened."""
    with Broker(virtual_time=True) as broker, connect(broker) as peer:
        create_topic(peer)
        assert broker._clock is not None
        broker._clock.move_to(broker._clock.now_ms() + 3_600_000)  # nobody is told, as nobody is told by the system
        peer.sendall(encoded(fetch("t", 0, max_wait_ms=50), 11, 2))
        assert read_frame(peer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\nc: d\ne f", {"a": "b", "c": "d", "e": "f"}),
        ("# a comment \\\nkey=value", {"key": "value"}),
        ("list=a,\\\n    b,\\\r\n    c\nnext=1", {"list": "a,b,c", "next": "1"}),
        ("listeners: PLAINTEXT://h:9092?x=y", {"listeners": "PLAINTEXT://h:9092?x=y"}),
        ("pem=A\\n\\\nB\\tC\\u00e4\\=", {"pem": "A\nB\tCä="}),
        ("path=C\\:\\\\dir\\\\\nnext=1", {"path": "C:\\dir\\", "next": "1"}),
        ("empty=\n\n! no\nlast=1\\", {"empty": "", "last": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, expected):
    assert parse_properties(text) == expected


def test_clients_are_never_told_an_address_that_they_cannot_reach():
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0"):
        read_settings({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"})
    assert told({"advertised.listeners": "PLAINTEXT://:9092"}) == ("", 9092)  # the address by which they came
    assert told({"advertised.listeners": "PLAINTEXT://[::1]:9092"}) == ("::1", 9092)


def told(config: dict[str, str]) -> tuple[str, int]:
    endpoint = read_settings(config).listeners.advertised["PLAINTEXT"]
    return endpoint.host, endpoint.port


def test_a_log_that_cannot_be_read_costs_who_asked_and_nobody_else(monkeypatch):
    with Broker() as broker, connect(broker) as peer, connect(broker) as other:
        create_topic(peer)
        records = bytes(build_batch([Record(0, 1, None, b"v", ())]))
        peer.sendall(encoded(produce("t", records), 9, 1))
        read_frame(peer)

        def fails(*_args):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(DiskFile, "read_cached", fails)
        peer.sendall(encoded(fetch("t", 0), 11, 1))
        assert closed_within_response(peer)
        monkeypatch.undo()
        other.sendall(encoded(produce("t", records), 9, 1))
        assert read_frame(other)


def closed_within_response(peer: socket.socket) -> bool:
    try:
        size = struct.unpack(">i", read_exactly(peer, 4))[0]
        read_exactly(peer, size)
    except (AssertionError, ConnectionResetError):
        return True
    return False


def test_a_long_job_does_not_hold_up_the_end():
    """It ends with its slice: a broker that waited for it would never stop."""
    begun, left = threading.Event(), threading.Event()

    def forever():
        try:
            while True:
                begun.set()
                yield
        finally:
            left.set()

    broker = Broker()
    broker.start()
    broker._on_loop(lambda: broker._running()._effect_runner.carry_out([RunJob(99, forever())]))
    assert begun.wait(HANG_S)
    broker.stop()
    assert left.is_set()
