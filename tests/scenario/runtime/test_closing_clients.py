"""Clients that close, reset or half-close behind what they sent, over real sockets and TLS, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.runtime.server import Server
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.certificates import Authority
from tests.scenario.node.requests import produce
from tests.waiting import HANG_S, wait_until

PARTITION = TopicPartition(TopicName("t"), 0)
MANY = 450
"""More requests than a connection may have unanswered."""


def frame(request: Any, version: int, correlation_id: int = 1) -> bytes:
    header = RequestHeader(request.API_KEY, version, correlation_id, "c")
    return b"".join(map(bytes, encode_request(header, request)))


def append(acks: int = 1, size: int = 1, correlation_id: int = 1) -> bytes:
    records = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x" * size, ())]))
    return frame(produce("t", records, acks=acks, timeout_ms=30_000), 9, correlation_id)


class Running:
    """A broker on a loop of its own thread."""

    def __init__(self, config: dict[str, str], directory: Path, new_loop: Callable[[], Any], authority: Authority):
        self._authority = authority
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = self.call(self._start(config, directory))
        with self.connect() as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.sendall(frame(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5))
            assert client.recv(4)

    async def _start(self, config: dict[str, str], directory: Path) -> Server:
        server = Server(read_settings(config, data_directory=str(directory)))
        await server.start()
        return server

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(HANG_S)

    def end(self) -> None:
        self.call(self.server.abandon())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def connect(self, listener: str = "PLAINTEXT") -> socket.socket:
        acceptors = self.server._acceptors
        assert acceptors is not None
        client = socket.create_connection(("127.0.0.1", acceptors.addresses[listener][1]))
        client.settimeout(HANG_S)
        if listener == "SSL":
            return self._authority.context().wrap_socket(client, server_hostname="localhost")
        return client

    def appended(self) -> int:
        log = self.server.node.logs.logs.get(PARTITION)
        return 0 if log is None else log.log_end_offset

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self.appended() >= count, lambda: f"{count} appends, {self.appended()} are there")

    def wait_until_gone(self) -> None:
        wait_until(
            lambda: not (self.server.effect_runner.connections or self.server.node.connections.by_id),
            "the end of all connections",
        )


def _uvloop() -> Any:
    return pytest.importorskip("uvloop").new_event_loop()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=[asyncio.new_event_loop, _uvloop], ids=["asyncio", "uvloop"])
def broker(request: pytest.FixtureRequest, tmp_path: Path, authority: Authority) -> Iterator[Running]:
    config = authority.listener() | {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    running = Running(config, tmp_path, request.param, authority)
    yield running
    running.end()


def answers(client: socket.socket) -> list[int]:
    """Correlation ids of all answers until the broker closes."""
    data = b""
    while received := client.recv(65536):
        data += received
    ids = []
    while data:
        size, correlation_id = struct.unpack(">ii", data[:8])
        ids.append(correlation_id)
        data = data[4 + size :]
    return ids


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
def test_many_requests_and_a_close(broker: Running, listener: str) -> None:
    with broker.connect(listener) as client:
        client.sendall(b"".join(append(acks=0) for _ in range(MANY)))
    broker.wait_for(MANY)
    broker.wait_until_gone()


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("ends", [reset, socket.socket.close])
def test_requests_that_come_before_an_answer_cannot_be_sent(
    broker: Running, listener: str, ends: Callable[[socket.socket], None]
) -> None:
    """The answer to the first fails while the others have arrived and are not read."""
    syncing, goes_on, is_held, go_on = (threading.Event() for _ in range(4))

    def wait() -> None:
        syncing.set()
        goes_on.wait(HANG_S)

    def hold() -> None:
        is_held.set()
        go_on.wait(HANG_S)

    broker.server.effect_runner.before_sync = wait
    client = broker.connect(listener)
    client.sendall(append(acks=-1))
    syncing.wait(HANG_S)
    broker.loop.call_soon_threadsafe(hold)
    is_held.wait(HANG_S)
    client.sendall(b"".join(append() for _ in range(2)))
    ends(client)
    goes_on.set()
    wait_until(lambda: broker.server.effect_runner.disk._wake_pending, "the end of the sync")  # the answer comes first
    go_on.set()
    broker.wait_for(3)
    broker.wait_until_gone()


@pytest.mark.slow
def test_a_client_that_sends_nothing_more_gets_all_its_answers(broker: Running) -> None:
    waits = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=2**20, session_epoch=-1)
    waits.topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=2**20)])]
    with broker.connect() as client:
        requests = [append(correlation_id=1), frame(waits, 11, 2), append(acks=-1, correlation_id=3)]
        waits.topics[0].partitions[0].fetch_offset = 1
        requests.insert(2, frame(waits, 11, 4))
        client.sendall(b"".join(requests) + frame(ApiVersionsRequest(), 0, 5) + b"\0\0")
        client.shutdown(socket.SHUT_WR)
        assert answers(client) == [1, 2, 4, 3, 5]
    broker.wait_until_gone()


@pytest.mark.slow
def test_a_tls_client_that_sends_nothing_more_gets_all_its_answers(broker: Running) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = broker.connect()
    client.close()
    acceptors = broker.server._acceptors
    assert acceptors is not None
    with socket.create_connection(("127.0.0.1", acceptors.addresses["SSL"][1])) as client:
        client.settimeout(HANG_S)
        tls = broker._authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
            client.sendall(outgoing.read())
            incoming.write(client.recv(65536))
        tls.write(append(acks=-1, correlation_id=1) + frame(ApiVersionsRequest(), 0, 2))
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        client.sendall(outgoing.read())
        client.shutdown(socket.SHUT_WR)
        while received := client.recv(65536):
            incoming.write(received)
        data = tls.read(100_000)
        assert struct.unpack(">i", data[4:8]) == (1,)
    assert broker.appended() == 1


@pytest.mark.slow
def test_an_idle_client_that_closes_is_gone_at_once(broker: Running) -> None:
    with broker.connect() as client, broker.connect("SSL") as secured:
        for item in (client, secured):
            item.sendall(frame(ApiVersionsRequest(), 0))
            assert item.recv(4)
    broker.wait_until_gone()


@pytest.mark.slow
def test_the_end_of_the_broker_carries_out_what_it_has_read(broker: Running) -> None:
    syncing, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        syncing.set()
        goes_on.wait(HANG_S)

    broker.server.effect_runner.before_sync = wait
    with broker.connect() as client:
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        client.sendall(
            append(acks=-1) + frame(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5) + append(acks=1)
        )
        syncing.wait(HANG_S)
        stopped = asyncio.run_coroutine_threadsafe(broker.server.stop(HANG_S), broker.loop)
        goes_on.set()
        assert stopped.result(HANG_S) is None
        assert len(answers(client)) == 3
    assert broker.appended() == 2


@pytest.mark.slow
def test_the_end_of_the_broker_does_not_wait_for_a_throttled_client(broker: Running) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="c")]
    entry = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=100.0)])
    with broker.connect() as client:
        client.sendall(frame(AlterClientQuotasRequest(entries=[entry]), 0))
        assert client.recv(4)
    with broker.connect() as client:
        client.sendall(b"".join(append(size=5_000, correlation_id=index) for index in range(3)))
        muted = broker.server.node.requests.mutes
        wait_until(lambda: sum(len(mute.backlog) for mute in list(muted)) == 2, "two requests behind the throttle")
        assert broker.call(broker.server.stop(HANG_S / 2)) is None
        assert answers(client) == [0, 1, 2]
    assert broker.appended() == 3


@pytest.mark.slow
def test_a_broker_that_does_not_come_to_rest_still_closes_its_logs(broker: Running, tmp_path: Path) -> None:
    goes_on = threading.Event()
    broker.server.effect_runner.before_sync = lambda: goes_on.wait(HANG_S)
    shut = broker.server.effect_runner.shut

    def shut_after_the_sync() -> None:
        goes_on.set()
        shut()

    broker.server.effect_runner.shut = shut_after_the_sync  # type: ignore[method-assign]
    with broker.connect() as client:
        client.sendall(append(acks=-1))
        broker.wait_for(1)
        assert broker.call(broker.server.stop(0.5)) is None
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_an_end_that_is_not_clean_leaves_its_reason(broker: Running) -> None:
    broker.server.effect_runner.dispatch = lambda _event: None  # type: ignore[method-assign]
    reason = broker.call(broker.server.stop(0.1))
    assert reason is not None
    assert broker.server.stopped.result() == reason
