"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any, Final

from oncelog.records.compression import Codec
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, batch, versions


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


def _fetch_limits(wire: Wire) -> None:
    """The rest of a limit is less than the first batch of a partition, which a later one may fit into."""
    topic_id = wire.topic("sd-limits", 3)
    sizes = (100, 1000, 10)
    for partition, size in enumerate(sizes):
        for _ in range(3):
            wire.produce("sd-limits", bytes(size), partition=partition)

    def ask(version: int, order: tuple[int, ...], number: int = 1_000_000, offset: int = 0, **fields: int) -> None:
        topic = FetchTopic(topic="sd-limits", topic_id=topic_id)
        for partition in order:
            request = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=number)
            topic.partitions.append(request)
        wire.call(_fetch(topic, **fields), version)

    for version in (4, 11, 12, 18):
        for isolation_level in (0, 1):
            for whole in (-1, 0, 1, 171, 172, 240, 513, 515, 553, 600, 700, 1000, 1583, 1584, 2000, 10_000):
                ask(version, (0, 1, 2), max_bytes=whole, isolation_level=isolation_level)
            for item in (-1, 0, 1, 40, 78, 79, 100, 171, 200, 1071, 1080):
                ask(version, (0, 1, 2), item, isolation_level=isolation_level)
                ask(version, (2, 0, 1), item, isolation_level=isolation_level)
                ask(version, (1, 0), item, offset=1, isolation_level=isolation_level)


def _fetch_epochs(wire: Wire) -> None:
    """The last epoch a client has seen, of a partition that was never written, and of one with nothing left in it."""
    topic_id = wire.topic("sd-lineage", 2)
    wire.produce("sd-lineage", b"a", b"b", b"c", partition=1)

    def ask() -> None:
        for version in (12, 13, 18):
            for offset in (0, 1, 2, 3, 4, 100, -1):
                for epoch in (-1, 0, 1, 5):
                    for partition in (0, 1):
                        fields = {"partition": partition, "fetch_offset": offset, "last_fetched_epoch": epoch}
                        wire.call(_fetch(_topic("sd-lineage", topic_id, **fields), max_wait_ms=0), version)
        for partition in (0, 1):
            for epoch in (-1, 0, 1, 5):
                request = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
                topics = [OffsetForLeaderTopic(topic="sd-lineage", partitions=[request])]
                wire.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)

    ask()
    for before in (2, 3):
        partitions = [DeleteRecordsPartition(partition_index=1, offset=before)]
        topics = [DeleteRecordsTopic(name="sd-lineage", partitions=partitions)]
        wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
        ask()


def _fetch_codecs(wire: Wire) -> None:
    """Batches of every codec, whether the topic or the producer chose it: which versions of Fetch are given them."""
    for kept in ("zstd", "producer"):
        for codec in Codec:
            name = f"sd-{kept}-{codec.name.lower()}"
            topic_id = wire.topic(name, compression_type=kept)
            records = batch(*[bytes(100)] * 5, codec=codec)
            topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])]
            wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
            for version in versions(FetchRequest):
                if kept == "producer" or codec is Codec.ZSTD:
                    wire.call(_fetch(_topic(name, topic_id)), version)
                else:
                    # Two encoders of zstd need not write the same bytes: the size alone would differ.
                    wire.call(_fetch(_topic(name, topic_id, fetch_offset=5), max_wait_ms=0), version)


def _list_offsets(wire: Wire) -> None:
    wire.topic("sd-list")
    wire.topic("sd-empty")
    for number in range(5):
        wire.produce("sd-list", b"a", b"b", timestamp=1000 * (number % 4 + 1))

    def ask(topic: str, timestamp: int, version: int, partition: int = 0, epoch: int = -1, **fields: Any) -> None:
        request = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        topics = [ListOffsetsTopic(name=topic, partitions=[request])]
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
                    offset = OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
                    )
                    topics = [OffsetForLeaderTopic(topic=topic, partitions=[offset])]
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
        request = ListOffsetsPartition(partition_index=0, timestamp=-2)
        wire.call(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="sd-delete", partitions=[request])]), 5
        )


SWEEPS: Final[dict[str, Sweep]] = {
    "fetch": _plain_fetches,
    "fetch-sessions": _fetch_sessions,
    "fetch-limits": _fetch_limits,
    "fetch-epochs": _fetch_epochs,
    "fetch-codecs": _fetch_codecs,
    "list-offsets": _list_offsets,
    "offset-for-leader-epoch": _leader_epochs,
    "delete-records": _delete_records,
}
