"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: what Apache Kafka 4.3.1 answers, case by case."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicName, TopicPartition
from oncelog.handlers.api import CLUSTER_NAME, Operation
from oncelog.handlers.broker.waits import UntilDurable
from oncelog.handlers.logs import delete_records, list_offsets, offset_for_leader_epoch
from oncelog.records.compression import Codec
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.handlers.log_broker import NOW_MS, LogBroker, Parked, answered, context_of

A0 = TopicPartition(TopicName("a"), 0)
Answer = tuple[int, int, int, int]
"""Error, timestamp, offset, leader epoch."""
NOTHING = (0, -1, -1, -1)


@pytest.fixture
def broker() -> LogBroker:
    """Topic ``a``: partition 0 has offsets 0 to 9, a millisecond apart; partition 1 is empty."""
    broker = LogBroker()
    broker.add_topic("a", 2)
    broker.append("a", values=[b"v"] * 10)
    return broker


def ask(
    broker: LogBroker,
    *partitions: tuple[int, int],
    version: int = 11,
    topic: str = "a",
    isolation_level: int = 0,
    replica_id: int = -1,
    epoch: int = -1,
    denied: tuple[tuple[Operation, str], ...] = (),
) -> list[tuple[int, Answer]]:
    """Partition and timestamp each."""
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
                    for index, timestamp in partitions
                ],
            )
        ],
    )
    response = list_offsets.handle(request, context_of(broker, 2, version, *denied))
    if isinstance(response, Generator):  # something is searched for
        with pytest.raises(StopIteration) as end:
            next(response)
        response = end.value.value
    (answer,) = response.topics
    assert answer.name == topic
    return [(p.partition_index, (p.error_code, p.timestamp, p.offset, p.leader_epoch)) for p in answer.partitions]


def one(broker: LogBroker, timestamp: int, partition: int = 0, **more: object) -> Answer:
    ((_, answer),) = ask(broker, (partition, timestamp), **more)  # type: ignore[arg-type]  # keywords of ask
    return answer


def test_a_search_that_meets_a_record_larger_than_the_topic_allows(broker: LogBroker) -> None:
    broker.add_topic("b", max_decompressed_message_bytes=100)
    log = broker.logs.logs[TopicPartition(TopicName("b"), 0)]
    limited, log.config = log.config, log.config._replace(max_decompressed_message_bytes=1000)
    broker.append("b", values=[b"v", bytes(100), b"v"], codec=Codec.ZSTD)
    log.config = limited
    assert one(broker, NOW_MS, topic="b") == (0, NOW_MS, 0, 0)
    for timestamp in (NOW_MS + 1, NOW_MS + 2, list_offsets.MAX_TIMESTAMP):
        assert one(broker, timestamp, topic="b") == (ErrorCode.INVALID_RECORD, -1, -1, -1)


def test_special_timestamps(broker: LogBroker) -> None:
    assert one(broker, list_offsets.LATEST) == (0, -1, 10, 0)
    assert one(broker, list_offsets.EARLIEST) == (0, -1, 0, 0)
    assert one(broker, list_offsets.MAX_TIMESTAMP) == (0, NOW_MS + 9, 9, 0)
    assert one(broker, list_offsets.EARLIEST_LOCAL) == (0, -1, 0, 0)
    assert one(broker, list_offsets.LATEST_TIERED) == NOTHING
    assert one(broker, list_offsets.EARLIEST_PENDING_UPLOAD) == NOTHING


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps_are_known_since_their_version(broker: LogBroker, version: int) -> None:
    unknown = [t for t in range(-8, 0) if one(broker, t, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION]
    first = {1: -2, 7: -3, 8: -4, 9: -5, 11: -6}
    lowest = first[max(since for since in first if since <= version)]
    assert unknown == list(range(-8, lowest))
    # The version is looked at before the partition.
    assert one(broker, -9, 77, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_by_time(broker: LogBroker) -> None:
    assert one(broker, 0) == (0, NOW_MS, 0, 0)
    assert one(broker, NOW_MS + 4) == (0, NOW_MS + 4, 4, 0)
    assert one(broker, NOW_MS + 10) == NOTHING


def test_an_empty_partition_has_an_end_and_a_beginning_and_nothing_else(broker: LogBroker) -> None:
    assert [one(broker, t, 1) for t in (-1, -2, -4)] == [(0, -1, 0, 0)] * 3
    assert [one(broker, t, 1) for t in (-3, -5, -6, 0, NOW_MS)] == [NOTHING] * 5


def test_what_cannot_be_read_yet_is_not_found(broker: LogBroker) -> None:
    log = broker.logs.logs[A0]
    assert log is not None
    log.high_watermark = Offset(5)
    assert one(broker, NOW_MS + 4)[2] == 4
    assert one(broker, list_offsets.LATEST, replica_id=5)[2] == 10


@pytest.mark.parametrize(
    ("timestamp", "awaited", "told"),
    [
        (list_offsets.LATEST, 10, (-1, 10, 0)),
        (list_offsets.MAX_TIMESTAMP, 10, (NOW_MS + 9, 9, 0)),
        (NOW_MS + 5, 6, (NOW_MS + 5, 5, 0)),
    ],
)
def test_what_cannot_be_read_yet_is_waited_for(
    broker: LogBroker, timestamp: int, awaited: int, told: tuple[int, int, int]
) -> None:
    log = broker.logs.logs[A0]
    log.high_watermark = Offset(5)
    expected = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=[expected])])
    parked = Parked(list_offsets.handle(request, context_of(broker, 2, 7)))
    wait = cast("UntilDurable", parked.wait)
    assert (wait.offsets, wait.holds_connection) == ({A0: awaited}, True)
    log.high_watermark = Offset(awaited)
    ((answer,),) = [topic.partitions for topic in parked.resume().topics]
    assert (answer.timestamp, answer.offset, answer.leader_epoch) == told


def test_read_committed_ends_at_the_last_stable_offset(broker: LogBroker) -> None:
    broker.append("a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert one(broker, list_offsets.LATEST)[2] == 11
    assert one(broker, list_offsets.LATEST, isolation_level=1)[2] == 10


def test_refusals(broker: LogBroker) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert one(broker, -1, 7) == one(broker, -1, -1) == one(broker, -1, topic="nope") == unknown
    assert ask(broker, (0, -1), (1, -1), (0, -2)) == [
        (0, (ErrorCode.INVALID_REQUEST, -1, -1, -1)),
        (1, (0, -1, 0, 0)),
    ]
    assert one(broker, -1, isolation_level=7)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    denied = ((Operation.DESCRIBE, "a"),)
    assert one(broker, -1, denied=denied)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_leader_epochs_are_checked(broker: LogBroker) -> None:
    broker.add_topic("a", 2, leader_epoch=4)
    assert one(broker, -1, epoch=4) == (0, -1, 10, 4)
    assert one(broker, -1, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert [one(broker, -1, epoch=epoch)[0] for epoch in (3, -2)] == [ErrorCode.FENCED_LEADER_EPOCH] * 2


def epoch_end(broker: LogBroker, leader_epoch: int, partition: int = 0, **more: object) -> Answer:
    """Error, partition, epoch, end offset."""
    current = more.pop("current", -1)
    denied = more.pop("denied", ())
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=str(more.pop("topic", "a")),
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition,
                        leader_epoch=leader_epoch,
                        current_leader_epoch=current,  # type: ignore[arg-type]  # an int
                    )
                ],
            )
        ],
    )
    context = context_of(broker, 23, 4, *denied)  # type: ignore[misc]  # pairs
    ((answer,),) = [topic.partitions for topic in offset_for_leader_epoch.handle(request, context).topics]
    return answer.error_code, answer.partition, answer.leader_epoch, answer.end_offset


def test_where_an_epoch_ends(broker: LogBroker) -> None:
    assert epoch_end(broker, 0) == (0, 0, 0, 10)
    assert epoch_end(broker, 1) == epoch_end(broker, -1) == (0, 0, -1, -1)
    assert epoch_end(broker, 0, 1) == (0, 1, 0, 0)
    broker.add_topic("a", 2, leader_epoch=3)
    broker.append("a")
    assert epoch_end(broker, 0) == epoch_end(broker, 2) == (0, 0, 0, 10)
    assert epoch_end(broker, 3) == (0, 0, 3, 11)


def test_where_an_epoch_ends_is_refused_as_other_questions_are(broker: LogBroker) -> None:
    assert epoch_end(broker, 0, current=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(broker, 0, 9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9, -1, -1)
    describe, cluster = (Operation.DESCRIBE, "a"), (Operation.CLUSTER_ACTION, CLUSTER_NAME)
    assert epoch_end(broker, 0, denied=(describe,))[0] == ErrorCode.NONE
    assert epoch_end(broker, 0, denied=(cluster,))[0] == ErrorCode.NONE
    assert epoch_end(broker, 0, denied=(describe, cluster))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def delete(
    broker: LogBroker, *offsets: tuple[int, int], topic: str = "a", denied: tuple[tuple[Operation, str], ...] = ()
) -> list[tuple[int, int, int]]:
    """Partition and offset each; partition, error and low watermark in return."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets],
            )
        ]
    )
    (answer,) = answered(delete_records.handle(request, context_of(broker, 21, 2, *denied))).topics
    assert answer.name == topic
    return [(p.partition_index, p.error_code, p.low_watermark) for p in answer.partitions]


def test_records_before_an_offset_go_and_never_come_back(broker: LogBroker) -> None:
    assert delete(broker, (0, 3)) == [(0, 0, 3)]
    assert broker.changed == [A0]
    assert one(broker, list_offsets.EARLIEST)[2] == 3
    assert delete(broker, (0, 1)) == [(0, 0, 3)]
    assert broker.changed == [A0]
    assert delete(broker, (0, -1)) == [(0, 0, 10)]
    assert one(broker, list_offsets.EARLIEST) == (0, -1, 10, 0)
    assert one(broker, NOW_MS) == NOTHING


@pytest.mark.parametrize("offset", [11, 1 << 60, -2])
def test_offsets_that_do_not_exist_are_not_deleted(broker: LogBroker, offset: int) -> None:
    assert delete(broker, (0, offset)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]


def test_what_may_not_be_deleted(broker: LogBroker) -> None:
    broker.add_topic("compacted", cleanup_policy="compact")
    broker.add_topic("both", cleanup_policy="compact,delete")
    broker.add_topic("__consumer_offsets")
    for topic in ("compacted", "both"):
        broker.append(topic, values=[b"v"] * 2)
    assert delete(broker, (0, 1), topic="compacted") == [(0, ErrorCode.POLICY_VIOLATION, -1)]
    assert delete(broker, (0, 1), topic="both") == [(0, 0, 1)]
    assert delete(broker, (0, 0), topic="__consumer_offsets") == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
    assert delete(broker, (9, 0)) == [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert delete(broker, (0, 0), topic="nope") == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    denied = ((Operation.DELETE, "a"),)
    assert delete(broker, (0, 1), denied=denied) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]


def test_a_partition_named_twice_is_answered_once(broker: LogBroker) -> None:
    assert delete(broker, (0, 2), (0, 4)) == [(0, 0, 4)]
