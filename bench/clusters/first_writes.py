"""How long it is until every partition of many takes a record: a Produce request to each broker, with all it leads.

Rules: metadata is asked of any living broker, a record goes to the leader named there, acks=all, and what was refused
is asked again after 20 ms, until nothing is missing. A client for programs would do the same with some ten thousand
queues of its own, whose processor time was two thirds of what was measured; here the brokers' is nearly all of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench.peers import Served
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.link import Link
from oncelog.client.errors import ConnectionLost, NoBrokerReachable, RequestTimedOut
from oncelog.client.machine.requests import LAST_PRODUCE_VERSION_BY_NAME, produce_request
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.chunks import Buffer
from oncelog.wire.messages.produce import ProduceResponse

Batches = Mapping[TopicPartition, Buffer]

_AGAIN_S: Final = 0.02
_LOOK_AGAIN_S: Final = 0.1
"""Metadata of ten thousand partitions costs a broker and a client some 50 ms: whoever only looks on asks rarely."""
_LONGEST_S: Final = 300.0
_TIMEOUT_MS: Final = 30_000
_LOST: Final = (ConnectionLost, NoBrokerReachable, RequestTimedOut)
_SETTINGS: Final = {"request.timeout.ms": "30000", "retry.backoff.ms": "20", "retry.backoff.max.ms": "20"}


def write_each(cluster: Served, topics: Sequence[str], partitions: int) -> None:
    """One record into each partition, acknowledged by all in sync. Raises RuntimeError after five minutes."""
    missing = {TopicPartition(TopicName(topic), index) for topic in topics for index in range(partitions)}
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, b"x" * 100)])
    deadline = time.monotonic() + _LONGEST_S
    with Client(cluster.bootstrap_servers, config=_SETTINGS) as client:
        while True:
            missing -= _write(client, topics, dict.fromkeys(missing, batch))
            if not missing:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(missing):,} partitions take no records")
            time.sleep(_AGAIN_S)


def led_by_others_s(cluster: Served, topics: Sequence[str], broker_id: int) -> float:
    """Seconds until metadata names another leader than ``broker_id`` for every partition. Raises RuntimeError."""
    began = time.perf_counter()
    with Client(cluster.bootstrap_servers, config=_SETTINGS) as client:
        while time.perf_counter() - began < _LONGEST_S:
            values = client.metadata(topics).values()
            if all(
                partition.leader not in (-1, broker_id) for topic in values for partition in topic.partitions.values()
            ):
                return time.perf_counter() - began
            time.sleep(_LOOK_AGAIN_S)
    raise RuntimeError(f"broker {broker_id} is still the leader of partitions")


def _write(client: Client, topics: Sequence[str], batches: Batches) -> set[TopicPartition]:
    """Send each leader what is its own, all at the same time; the partitions whose record is written."""
    client.metadata(topics)
    sent: list[tuple[Link, int]] = []
    for leader, own in _by_leader(client, batches).items():
        message = produce_request(client.view, own, -1, _TIMEOUT_MS)
        with contextlib.suppress(*_LOST):
            link = client.link(leader)
            sent.append((link, link.submit(message, link.versions.choose(message, LAST_PRODUCE_VERSION_BY_NAME))))
    written: set[TopicPartition] = set()
    for link, correlation_id in sent:
        with contextlib.suppress(*_LOST):
            written |= _written(link.decode(link.response(correlation_id)))
    return written


def _by_leader(client: Client, batches: Batches) -> dict[int, Batches]:
    """Batches by the broker that leads their partition; those without a leader are left out."""
    grouped: dict[int, dict[TopicPartition, Buffer]] = {}
    for partition, batch in batches.items():
        leader = client.view.leader(partition)
        if leader is not None and leader in client.view.brokers:
            grouped.setdefault(leader, {})[partition] = batch
    return dict(grouped)


def _written(response: ProduceResponse) -> set[TopicPartition]:
    return {
        TopicPartition(TopicName(topic.name), item.index)
        for topic in response.responses
        for item in topic.partition_responses
        if item.error_code == ErrorCode.NONE
    }
