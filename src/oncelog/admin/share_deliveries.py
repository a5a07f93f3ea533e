"""Records of share groups in flight: who holds what until when, and how often each has been delivered (KIP-932).

The leader of a partition knows it, and oncelog's tells it. From other brokers the states are read from the log of the
share coordinators, which has no locks (``share_state_log``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.admin.group_descriptions import GroupDescription
from oncelog.admin.share_groups import ShareOffsetRow
from oncelog.admin.share_state_log import RecordedState, read_states
from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, leaders, send_requests
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import SHARE_GROUP_STATE, TopicName, TopicPartition, by_topic
from oncelog.client.errors import ClientError, code_name
from oncelog.client.programs import Cluster, Program, operation
from oncelog.records.internal.share_state_records import StateBatch
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponsePartition,
)

__all__ = [
    "ACQUIRED",
    "ARCHIVED",
    "ARCHIVING",
    "AVAILABLE",
    "DELIVERED",
    "LEADER",
    "LOG",
    "ShareBatchRow",
    "ShareDeliveryRow",
    "as_led",
    "share_deliveries",
]

AVAILABLE: Final = "available"
ACQUIRED: Final = "acquired"
DELIVERED: Final = "acknowledged"
ARCHIVING: Final = "archiving"
ARCHIVED: Final = "archived"
STATES: Final = {0: AVAILABLE, 1: ACQUIRED, 2: DELIVERED, 3: ARCHIVING, 4: ARCHIVED}
TERMINAL: Final = (DELIVERED, ARCHIVED)
LEADER: Final = "leader"
LOG: Final = "log"


@dataclass(frozen=True, slots=True)
class ShareBatchRow:
    """Consecutive offsets in one state: "available" (delivered before, and to be delivered again), "acquired",
    "acknowledged", "archiving" (its dead letter is being written) or "archived" (rejected, or delivered too often).

    ``member_id`` and the times of the lock are None for records that are not acquired; ``locked_since_ms`` is the time
    of the acquisition or its last renewal.
    """

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None = None
    locked_since_ms: int | None = None
    locked_until_ms: int | None = None

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class ShareDeliveryRow:
    """The window of a share partition: from its start offset to the last offset that was acquired.

    ``source`` is "leader", or "log" for the states that were last made durable, without locks. ``in_flight_records``
    counts the offsets of the window, and ``most_in_flight`` is its limit (``share.partition.max.record.locks``); both
    are None from the log. ``batches_left_off`` counts those that the leader left out. ``start_offset`` is where the
    window begins; None if the log has none yet.
    """

    group: str
    topic: str
    partition: int
    source: str
    batches: tuple[ShareBatchRow, ...]
    in_flight_records: int | None = None
    most_in_flight: int | None = None
    batches_left_off: int = 0
    start_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)

    @property
    def acquired(self) -> int | None:
        """The number of acquired records; None if the source does not have it."""
        if self.source != LEADER:
            return None
        return sum(batch.records for batch in self.batches if batch.state == ACQUIRED)

    @property
    def most_deliveries(self) -> int | None:
        """The highest delivery count of a record that is not dealt with; None without one."""
        return max((batch.delivery_count for batch in self.batches if batch.state not in TERMINAL), default=None)


@operation
def share_deliveries(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> Program[tuple[list[ShareDeliveryRow], list[Unanswered]]]:
    """The records in flight of each partition, without partitions that have none, or whose state is not known."""
    places = sorted(partitions)
    rows, unanswered = yield from leader_deliveries(cluster, group, places)
    left = [place for place in places if place not in rows]
    states: dict[TopicPartition, RecordedState] = {}
    try:
        states = yield from read_states(cluster, group, left)
    except ClientError as error:
        unanswered.append(Unanswered(None, f"states of records in {SHARE_GROUP_STATE}", str(error)))
    rows |= {place: recorded_row(group, place, state) for place, state in states.items()}
    return [rows[place] for place in sorted(rows)], unanswered


def recorded_row(group: str, place: TopicPartition, state: RecordedState) -> ShareDeliveryRow:
    start = state.start_offset if state.start_offset >= 0 else None
    batches = tuple(map(_recorded, state.batches))
    return ShareDeliveryRow(group, place.topic, place.partition, LOG, batches, start_offset=start)


def _recorded(batch: StateBatch) -> ShareBatchRow:
    return ShareBatchRow(batch.first_offset, batch.last_offset, _state(batch.delivery_state), batch.delivery_count)


def _state(number: int) -> str:
    return STATES.get(number, f"state {number}")


def leader_deliveries(
    cluster: Cluster, group: str, places: Sequence[TopicPartition]
) -> Program[tuple[dict[TopicPartition, ShareDeliveryRow], list[Unanswered]]]:
    """The rows of leaders that tell; Apache Kafka's do not, and answer as coordinators."""
    yield from cluster.metadata({place.topic for place in places})
    led, unanswered = leaders(cluster, places)
    requests = [BrokerRequest(broker, _request(group, led[broker]), "records in flight") for broker in sorted(led)]
    rows: dict[TopicPartition, ShareDeliveryRow] = {}
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
            continue
        for described in answer.groups:
            if described.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                reason = described.error_message or code_name(described.error_code)
                unanswered.append(Unanswered(request.broker, request.subject, reason))
            for topic in described.topics:
                for partition in topic.partitions:
                    if partition.in_flight_records >= 0:
                        place = TopicPartition(TopicName(topic.topic_name), partition.partition_index)
                        rows[place] = _told(group, place, partition)
    return rows, unanswered


def _request(group: str, places: Iterable[TopicPartition]) -> DescribeShareGroupOffsetsRequest:
    topics = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=indexes)
        for topic, indexes in by_topic(places).items()
    ]
    described = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    return DescribeShareGroupOffsetsRequest(groups=[described], led_here=True)


def _told(group: str, place: TopicPartition, partition: DescribeShareGroupOffsetsResponsePartition) -> ShareDeliveryRow:
    columns = zip(
        partition.first_offsets,
        partition.last_offsets,
        partition.delivery_states,
        partition.delivery_counts,
        partition.member_ids,
        partition.locked_since_ms,
        partition.locked_until_ms,
        strict=False,
    )
    batches = tuple(
        ShareBatchRow(first, last, _state(state), count, member or None, since or None, until or None)
        for first, last, state, count, member, since, until in columns
    )
    return ShareDeliveryRow(
        group,
        place.topic,
        place.partition,
        LEADER,
        batches,
        partition.in_flight_records,
        partition.most_in_flight if partition.most_in_flight >= 0 else None,
        partition.batches_left_off,
        partition.start_offset,
    )


def as_led(
    description: GroupDescription, offsets: Iterable[ShareOffsetRow], deliveries: Iterable[ShareDeliveryRow]
) -> list[ShareOffsetRow]:
    """Offsets as the leaders have them, where they tell. A coordinator knows a start offset only after the first
    acknowledgement, and one write later."""
    # Without members a reset is possible. A leader learns of it at its next write.
    if not description.members:
        return list(offsets)
    led = {row.topic_partition: row for row in deliveries if row.source == LEADER}
    return [_as_led(offset, led.get(offset.topic_partition)) for offset in offsets]


def _as_led(offset: ShareOffsetRow, row: ShareDeliveryRow | None) -> ShareOffsetRow:
    if row is None or row.start_offset is None:
        return offset
    lag = offset.lag
    if offset.log_end is not None and not row.batches_left_off:
        done = sum(batch.records for batch in row.batches if batch.state in TERMINAL)
        lag = max(0, offset.log_end - row.start_offset - done)
    return replace(offset, start_offset=row.start_offset, lag=lag)
