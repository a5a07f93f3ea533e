"""DescribeShareGroupOffsets with our field ``led_here``: the records in flight of share partitions led by this broker.

Apache Kafka has no request for them, and sends this one to the group's coordinator; ours goes to the leaders of the
partitions. The answer has batches as the share partition has them in memory, alike neighbours as one, and at most
``MOST_BATCHES`` of a partition. Partitions that the group has not fetched from, since this broker began to lead them,
are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicName
from oncelog.core.share.model import InFlightRecords
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UseShares
from oncelog.handlers.groups.requests import serves_share_groups
from oncelog.wire.messages import describe_share_group_offsets as wire

if TYPE_CHECKING:
    from oncelog.core.share.partition import SharePartition
    from oncelog.handlers.broker.shares import Shares

MOST_BATCHES: Final = 500
_MOST_OF_ALL: Final = 10_000
"""Batches of all partitions of an answer."""


def describe_led(
    request: wire.DescribeShareGroupOffsetsRequest, context: Context
) -> Steps[wire.DescribeShareGroupOffsetsResponse]:
    shares: Shares = yield UseShares()
    left = _MOST_OF_ALL
    groups = []
    for group in request.groups:
        answer = wire.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
        groups.append(answer)
        if not serves_share_groups(context):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        elif not context.allows_group(Operation.DESCRIBE, group.group_id):
            answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            for topic in group.topics or ():
                described = _topic(GroupId(group.group_id), topic, context, shares, left)
                if described is not None:
                    answer.topics.append(described)
                    left -= sum(len(partition.first_offsets) for partition in described.partitions)
    return wire.DescribeShareGroupOffsetsResponse(groups=groups)


def _topic(
    group_id: GroupId,
    topic: wire.DescribeShareGroupOffsetsRequestTopic,
    context: Context,
    shares: Shares,
    left: int,
) -> wire.DescribeShareGroupOffsetsResponseTopic | None:
    image = context.cluster.image.topics.get(TopicName(topic.topic_name))
    if image is None or not context.allows_topic(Operation.DESCRIBE, TopicName(topic.topic_name)):
        return None
    partitions = []
    for number in dict.fromkeys(topic.partitions):
        led = shares.led_already(ShareKey(group_id, image.topic_id, number))
        if led is not None and led.machine is not None:
            partition = _partition(number, led.machine, min(MOST_BATCHES, left))
            partition.leader_epoch = led.leader_epoch
            partitions.append(partition)
            left -= len(partition.first_offsets)
    if not partitions:
        return None
    return wire.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=image.topic_id, partitions=partitions
    )


def _partition(number: int, machine: SharePartition, most: int) -> wire.DescribeShareGroupOffsetsResponsePartition:
    start = machine.start_offset
    # The first batch of the window may begin before its start offset.
    window = (row._replace(first_offset=max(row.first_offset, start)) for row in machine.in_flight())
    rows = list(_joined(row for row in window if row.last_offset >= start))
    shown = rows[:most]
    return wire.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=start,
        first_offsets=[row.first_offset for row in shown],
        last_offsets=[row.last_offset for row in shown],
        delivery_states=[int(row.delivery_state) for row in shown],
        delivery_counts=[row.delivery_count for row in shown],
        member_ids=[row.member_id for row in shown],
        locked_since_ms=[row.locked_since_ms or 0 for row in shown],
        locked_until_ms=[row.locked_until_ms or 0 for row in shown],
        batches_left_off=len(rows) - len(shown),
        in_flight_records=machine.in_flight_records,
        most_in_flight=machine.settings.max_in_flight,
    )


def _joined(rows: Iterable[InFlightRecords]) -> Iterator[InFlightRecords]:
    """Neighbours in the same state, and of the same lock, as one."""
    before: InFlightRecords | None = None
    for row in rows:
        if before is not None and before.last_offset + 1 == row.first_offset and before[2:] == row[2:]:
            before = before._replace(last_offset=row.last_offset)
            continue
        if before is not None:
            yield before
        before = row
    if before is not None:
        yield before
