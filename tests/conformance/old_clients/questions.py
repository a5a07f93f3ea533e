"""The questions of old clients to a broker, in order: the same to Apache Kafka 3.9.1 and to ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple

from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.wire.message import Request
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.old_clients.sets import KEYED, MADE_MS, MIXED, messages, unsound_sets
from tests.message_sets import write

TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "formats": {},
    "unsound": {"message.timestamp.after.max.ms": "3600000"},
    "compacted": {"cleanup.policy": "compact"},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip"},
    "zstd": {"compression.type": "zstd"},
    "by-zstd": {},
    "small": {"max.message.bytes": "300"},
    "large": {},
    "transactional": {},
    "many": {"segment.bytes": "1048576"},
}
LARGE: Final = 5000


class Question(NamedTuple):
    """A request in a version; ``again``: until there is a coordinator."""

    name: str
    request: Request[Any]
    version: int
    again: bool = False


def produce(
    name: str, topic: str, records: bytes | None, version: int, *, acks: int = -1, partition: int = 0
) -> Question:
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return Question(f"produce {version}: {name}", request, version)


def fetch(
    name: str, topic: str, offset: int, version: int, *, most: int = 1 << 20, total: int = 1 << 24, partition: int = 0
) -> Question:
    expected = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
    request = FetchRequest(
        replica_id=-1,
        max_bytes=total,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[expected])],
    )
    return Question(f"fetch {version}: {name}", request, version)


def create_topics() -> Question:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in TOPICS.items()
    ]
    return Question("topics", CreateTopicsRequest(topics=topics, timeout_ms=10_000), 2)


def ask_all(ask: Callable[[Question], Any]) -> None:
    """Ask them all, one after the other."""
    steps = questions()
    question = next(steps)
    with contextlib.suppress(StopIteration):
        while True:
            question = steps.send(ask(question))


def questions() -> Generator[Question, Any, None]:
    """All questions, each sent its response; the topics have been made."""
    yield Question("versions", ApiVersionsRequest(), 0)
    yield from _formats()
    yield from _unsound()
    yield from _topics_rules()
    yield from _sizes()
    yield from _fetches()
    yield from _transactions()
    yield from _list_offsets()
    yield from _groups()
    yield from _metadata()


def _formats() -> Iterator[Question]:
    offset = 0
    for version in (0, 1, 2):
        for magic in (0, 1):
            for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                name = f"format {magic}, {codec.name}"
                yield produce(name, "formats", write(messages(magic), magic, codec), version)
                yield fetch(f"what {name} of {version} became", "formats", offset, 0)
                yield fetch(f"what {name} of {version} became", "formats", offset, 2)
                yield fetch(f"what {name} of {version} became", "formats", offset, 3)
                offset += len(KEYED)
    batch = bytes(build_batch([Record(i, MADE_MS + i, b"k", b"v", (("h", b"x"),)) for i in range(3)]))
    yield produce("a batch of today's format", "formats", batch, 2)
    yield fetch("a batch of today's format", "formats", offset + 1, 0)


def _unsound() -> Iterator[Question]:
    for name, data in unsound_sets().items():
        yield produce(name, "unsound", data, 2)
    yield produce("an unknown topic's partition", "unsound", write(messages(1), 1), 2, partition=9)
    yield produce("acks of 2", "unsound", write(messages(1), 1), 2, acks=2)
    yield fetch("what was taken of what is unsound", "unsound", 0, 2)


def _topics_rules() -> Iterator[Question]:
    for codec in (Codec.NONE, Codec.GZIP):
        for topic in ("compacted", "appended", "gzipped", "zstd"):
            for magic in (0, 1):
                yield produce(f"{topic}, format {magic}, {codec.name}", topic, write(messages(magic), magic, codec), 2)
                mixed = write(messages(magic, MIXED), magic, codec)
                yield produce(f"{topic}, no keys, format {magic}, {codec.name}", topic, mixed, 2)
            yield fetch(f"{topic}, {codec.name}", topic, 0, 0)
            yield fetch(f"{topic}, {codec.name}", topic, 0, 3)
    batch = bytes(build_batch([Record(0, MADE_MS, b"k", b"v")], codec=Codec.ZSTD))
    plain = bytes(build_batch([Record(0, MADE_MS, b"k", b"v")]))
    yield produce("a batch by zstd", "by-zstd", batch, 7)
    yield fetch("a batch by zstd", "by-zstd", 0, 2)
    yield produce("a batch by none", "by-zstd", plain, 7)
    yield fetch("a batch behind one by zstd", "by-zstd", 1, 2)


def _sizes() -> Iterator[Question]:
    yield produce("small enough", "small", write(messages(1, [(b"k", b"x" * 200)]), 1), 2)
    yield produce("a message too large", "small", write(messages(1, [(b"k", b"x" * 300)]), 1), 2)
    yield produce("messages too large together", "small", write(messages(1, [(b"k", b"x" * 120)] * 4), 1), 2)
    yield produce("small while compressed", "small", write(messages(1, [(b"k", b"x" * 120)] * 9), 1, Codec.GZIP), 2)
    yield produce("large", "large", write(messages(1, [(b"k", b"x" * LARGE)]), 1), 2)
    for version in range(4):
        for most in (0, 20, 100, LARGE, LARGE * 2):
            yield fetch(f"{LARGE} bytes into {most}", "large", 0, version, most=most)
    yield fetch("limit of all", "large", 0, 3, total=10)


def _fetches() -> Iterator[Question]:
    yield produce("several batches", "plain", write(messages(1), 1), 2)
    yield produce("several batches", "plain", write(messages(0), 0, Codec.GZIP), 1)
    for version in range(4):
        yield fetch("from the beginning", "plain", 0, version)
        yield fetch("from the middle of a plain batch", "plain", 1, version)
        yield fetch("from the middle of a compressed batch", "plain", 4, version)
        yield fetch("at the end", "plain", 6, version)
        yield fetch("beyond the end", "plain", 7, version)
        yield fetch("before the beginning", "plain", -1, version)
        yield fetch("a partition that is not there", "plain", 0, version, partition=7)
        yield fetch("a topic that is not there", "nowhere", 0, version)


def _transactions() -> Generator[Question, Any, None]:
    yield Question("a coordinator", FindCoordinatorRequest(key="txn", key_type=1), 1, again=True)
    init = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    identity = yield Question("a producer id", init, 1, again=True)
    yield from _transaction("first", identity, 0, commits=True)
    yield from _transaction("second", identity, 1, commits=False)
    identity = yield Question("markers are written", init, 1, again=True)
    yield produce("behind transactions", "transactional", write(messages(1), 1), 2)
    for version in range(4):
        yield fetch("transactions", "transactional", 0, version)
        yield fetch("transactions, from a marker", "transactional", 1, version)
    yield from _transaction("third", identity, 0, commits=True)
    yield Question("its marker is written", init, 1, again=True)
    for version in range(4):
        yield fetch("transactions, from the last marker", "transactional", 8, version)


def _transaction(name: str, identity: Any, sequence: int, *, commits: bool) -> Iterator[Question]:
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn",
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="transactional", partitions=[0])],
    )
    yield Question(f"{name} transaction: adding", add, 0, again=True)
    batch = build_batch(
        [Record(0, MADE_MS, b"k", b"committed" if commits else b"aborted")],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    request = ProduceRequest(
        transactional_id="txn",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="transactional", partition_data=data)],
    )
    yield Question(f"{name} transaction: producing", request, 7)
    end = EndTxnRequest(
        transactional_id="txn",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=commits,
    )
    yield Question(f"{name} transaction: ending", end, 1, again=True)


def _list_offsets() -> Iterator[Question]:
    for name, topic, partition in (("a log", "plain", 0), ("an empty one", "many", 0), ("none", "plain", 8)):
        for timestamp in (-1, -2, 0, 4_000_000_000_000):
            for count in (1, 10, 0):
                entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
                topics = [ListOffsetsTopic(name=topic, partitions=[entry])]
                request = ListOffsetsRequest(replica_id=-1, topics=topics)
                yield Question(f"offsets of {name} at {timestamp}, {count}", request, 0)


def _groups() -> Iterator[Question]:
    yield Question("a group's coordinator", FindCoordinatorRequest(key="g"), 0, again=True)
    for version in (0, 1, 2):
        yield _committed("g", version, 5)
        yield _committed("g", version, 6, topic="nowhere")
        yield _committed("g", version, 6, partition=9)
        yield _committed("g", version, 6, metadata="m" * 5000)
    for version in (0, 1, 2):
        for group in ("g", "unknown"):
            topics = [
                OffsetFetchRequestTopic(name="plain", partition_indexes=[0, 9]),
                OffsetFetchRequestTopic(name="nowhere", partition_indexes=[0]),
            ]
            request = OffsetFetchRequest(group_id=group, topics=topics)
            yield Question(f"offsets {version} of group {group}", request, version)
    yield _committed("g", 0, -1)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="plain", partition_indexes=[0])])
    yield Question("offset of -1", request, 0)


def _committed(
    group: str, version: int, offset: int, *, topic: str = "plain", partition: int = 0, metadata: str = "text"
) -> Question:
    entry = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset + version, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        retention_time_ms=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[entry])],
    )
    name = f"commit {version}: {topic}-{partition} {offset}, {len(metadata)} characters"
    return Question(name, request, version, again=True)


def _metadata() -> Iterator[Question]:
    for name in ("plain", "not/a name", "x" * 300):
        yield Question(f"metadata: {name[:20]}", MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 0)
    yield Question(
        "metadata: made by asking", MetadataRequest(topics=[MetadataRequestTopic(name="made")]), 0, again=True
    )
