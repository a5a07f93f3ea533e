"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, versions


def _topic(name: str, topic_id: bytes, **fields: Any) -> FetchTopic:
    partition = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000, **fields})
    return FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])


def _fetch(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    return FetchRequest(topics=list(topics), **{"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 10_000_000, **fields})


def _plain_fetches(wire: Wire) -> None:
    topic_id = wire.topic("sd-one", 2)
    for number in range(6):
        wire.produce("sd-one", b"%d" % number * 50, b"second", timestamp=1000 * number)
    for version in versions(FetchRequest):
        for offset in (0, 1, 5, 11, 12, 13, 1000, -1):
            wire.call(_fetch(_topic("sd-one", topic_id, fetch_offset=offset)), version)
        for size in (0, 1, 200, 400):
            wire.call(_fetch(_topic("sd-one", topic_id, partition_max_bytes=size)), version)
            wire.call(_fetch(_topic("sd-one", topic_id), max_bytes=size), version)
        both = _topic("sd-one", topic_id)
        both.partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1_000_000))
        wire.call(_fetch(both), version)
        wire.call(_fetch(_topic("sd-one", topic_id), isolation_level=1), version)
        wire.call(_fetch(_topic("sd-one", topic_id, partition=9)), version)
        wire.call(_fetch(_topic("sd-none", NOWHERE)), version)
        wire.call(_fetch(_topic("sd-none", NOWHERE), _topic("sd-one", topic_id)), version)
        wire.call(_fetch(_topic("sd-one", topic_id, fetch_offset=12), max_wait_ms=20, min_bytes=100_000), version)
        for epoch in (0, 1, 7):
            wire.call(_fetch(_topic("sd-one", topic_id, current_leader_epoch=epoch)), version)
        for epoch in (0, 3):
            wire.call(_fetch(_topic("sd-one", topic_id, current_leader_epoch=0, last_fetched_epoch=epoch)), version)
        wire.call(_fetch(), version)


def _fetch_sessions(wire: Wire) -> None:
    topic_id = wire.topic("sd-session", 2)
    for version in range(7, 19):
        wire.produce("sd-session", b"one")
        opened = wire.call(_fetch(_topic("sd-session", topic_id), session_epoch=0), version)
        known = {"session_id": opened.session_id}
        at_end = _topic("sd-session", topic_id, fetch_offset=opened.responses[0].partitions[0].high_watermark)
        wire.call(_fetch(at_end, session_epoch=1, **known), version)
        wire.call(_fetch(session_epoch=2, **known), version)
        wire.produce("sd-session", b"two")
        wire.call(_fetch(session_epoch=3, **known), version)
        wire.call(_fetch(_topic("sd-session", topic_id, partition=1), session_epoch=4, **known), version)
        wire.call(_fetch(_topic("sd-session", topic_id, partition=7), session_epoch=5, **known), version)
        wire.call(_fetch(session_epoch=6, **known), version)
        forgotten = [ForgottenTopic(topic="sd-session", topic_id=topic_id, partitions=[0, 7])]
        wire.call(_fetch(session_epoch=7, forgotten_topics_data=forgotten, **known), version)
        wire.call(_fetch(session_epoch=20, **known), version)
        wire.call(_fetch(session_epoch=8, session_id=opened.session_id ^ 1), version)
        wire.call(_fetch(session_epoch=-1, **known), version)
        wire.call(_fetch(session_epoch=8, **known), version)
        wire.call(_fetch(session_epoch=0, session_id=0), version)


def _list_offsets(wire: Wire) -> None:
    wire.topic("sd-list")
    wire.topic("sd-empty")
    for number in range(5):
        wire.produce("sd-list", b"a", b"b", timestamp=1000 * (number % 4 + 1))

    def ask(topic: str, timestamp: int, version: int, partition: int = 0, epoch: int = -1, **fields: Any) -> None:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
        wire.call(ListOffsetsRequest(**{"replica_id": -1, "topics": topics, "timeout_ms": 1000, **fields}), version)

    for version in versions(ListOffsetsRequest):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 2500, 4000, 4001, 4002, 2**60):
            ask("sd-list", timestamp, version)
        for timestamp in (-1, -2, -3, 0):
            ask("sd-empty", timestamp, version)
            ask("sd-none", timestamp, version)
            ask("sd-list", timestamp, version, partition=4)
            ask("sd-list", timestamp, version, isolation_level=1)
            ask("sd-list", timestamp, version, replica_id=-2)
        for epoch in (0, 1):
            ask("sd-list", -1, version, epoch=epoch)
        twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        wire.call(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="sd-list", partitions=twice)]), version
        )
        wire.call(ListOffsetsRequest(replica_id=-1), version)


def _leader_epochs(wire: Wire) -> None:
    wire.topic("sd-epochs")
    wire.produce("sd-epochs", b"a", b"b")
    for version in versions(OffsetForLeaderEpochRequest):
        for topic, partition in (("sd-epochs", 0), ("sd-epochs", 3), ("sd-none", 0)):
            for leader_epoch in (-1, 0, 1, 5):
                for current in (-1, 0, 2):
                    asked = OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
                    )
                    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
                    wire.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)


def _delete_records(wire: Wire) -> None:
    wire.topic("sd-delete")
    wire.topic("sd-compacted", cleanup_policy="compact")
    for version in versions(DeleteRecordsRequest):
        for _ in range(4):
            wire.produce("sd-delete", b"a", b"b")
        targets: tuple[tuple[str, int, int], ...]
        targets = (("sd-delete", 0, 1), ("sd-delete", 0, 0), ("sd-delete", 0, 3), ("sd-delete", 0, 1000))
        targets += (("sd-delete", 0, -2), ("sd-delete", 9, 0), ("sd-none", 0, 0), ("sd-compacted", 0, 0))
        targets += (("sd-delete", 0, 4 + version * 8), ("sd-delete", 0, -1))
        for topic, partition, offset in targets:
            partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
            topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
            wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=5000), version)
        asked = ListOffsetsPartition(partition_index=0, timestamp=-2)
        wire.call(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="sd-delete", partitions=[asked])]), 5)


SWEEPS: Final[dict[str, Sweep]] = {
    "fetch": _plain_fetches,
    "fetch-sessions": _fetch_sessions,
    "list-offsets": _list_offsets,
    "offset-for-leader-epoch": _leader_epochs,
    "delete-records": _delete_records,
}
