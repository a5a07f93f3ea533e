"""DescribeShareGroupOffsets with our field ``led_here``: the records in flight of share partitions led by this broker.

Apache Kafka has no request for them, and sends this one to the group's coordinator; ours goes to the leaders of the
partitions. The answer has batches as the share partition has them in memory, alike neighbours as one, and at most
``MOST_BATCHES`` of a partition. Partitions that the group has not fetched from, since this broker began to lead them,
are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicName
from oncelog.core.share.model import InFlightRecords
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.time_slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps, UseShares
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
    described = _Described(context, shares)
    budget = SliceBudget(context.partitions)
    for group in request.groups:
        refusal = _refusal(group.group_id, context)
        answer = described.group(group.group_id)
        answer.error_code = refusal
        if budget.spent():
            yield NextSlice()
        for topic in group.topics or () if refusal is ErrorCode.NONE else ():
            for number in topic.partitions:
                if budget.spent(described.add(answer, topic.topic_name, number)):
                    yield NextSlice()
    return wire.DescribeShareGroupOffsetsResponse(groups=list(described.groups.values()))


def _refusal(group_id: str, context: Context) -> ErrorCode:
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.allows_group(Operation.DESCRIBE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


class _Described:
    """The answer so far. A request may name a partition thousands of times: it is described once."""

    def __init__(self, context: Context, shares: Shares) -> None:
        self.groups: dict[str, wire.DescribeShareGroupOffsetsResponseGroup] = {}
        self._context = context
        self._shares = shares
        self._allowed: dict[str, bool] = {}
        self._topics: dict[tuple[str, str], wire.DescribeShareGroupOffsetsResponseTopic] = {}
        self._seen: set[ShareKey] = set()
        self._left = _MOST_OF_ALL

    def group(self, group_id: str) -> wire.DescribeShareGroupOffsetsResponseGroup:
        answer = self.groups.get(group_id)
        if answer is None:
            answer = self.groups[group_id] = wire.DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
        return answer

    def add(self, answer: wire.DescribeShareGroupOffsetsResponseGroup, topic: str, number: int) -> int:
        """Describe a partition. Returns how many items of a slice that took."""
        image = self._context.cluster.image.topics.get(TopicName(topic))
        if image is None or not self._allows(topic):
            return 1
        key = ShareKey(GroupId(answer.group_id), image.topic_id, number)
        led = self._shares.led_already(key)
        if led is None or led.machine is None or key in self._seen:
            return 1
        self._seen.add(key)
        partition = _partition(number, led.machine, min(MOST_BATCHES, self._left))
        partition.leader_epoch = led.leader_epoch
        self._left -= len(partition.first_offsets)
        described = self._topics.get((answer.group_id, topic))
        if described is None:
            described = wire.DescribeShareGroupOffsetsResponseTopic(topic_name=topic, topic_id=image.topic_id)
            self._topics[answer.group_id, topic] = described
            answer.topics.append(described)
        described.partitions.append(partition)
        return 1 + led.machine.in_flight_runs

    def _allows(self, topic: str) -> bool:
        if topic not in self._allowed:
            self._allowed[topic] = self._context.allows_topic(Operation.DESCRIBE, TopicName(topic))
        return self._allowed[topic]


def _partition(number: int, machine: SharePartition, most: int) -> wire.DescribeShareGroupOffsetsResponsePartition:
    start = machine.start_offset
    shown: list[InFlightRecords] = []
    walked = 0
    for row in machine.in_flight():
        # The first batch of the window may begin before its start offset.
        if row.last_offset >= start:
            if shown and _continues(shown[-1], row):
                shown[-1] = shown[-1]._replace(last_offset=row.last_offset)
            elif len(shown) == most:
                break
            else:
                shown.append(row._replace(first_offset=max(row.first_offset, start)))
        walked += 1
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
        # Of these, neighbours are not joined.
        batches_left_off=machine.in_flight_runs - walked,
        in_flight_records=machine.in_flight_records,
        most_in_flight=machine.settings.max_in_flight,
    )


def _continues(before: InFlightRecords, row: InFlightRecords) -> bool:
    """True for a neighbour in the same state, and of the same lock."""
    return before.last_offset + 1 == row.first_offset and before[2:] == row[2:]
