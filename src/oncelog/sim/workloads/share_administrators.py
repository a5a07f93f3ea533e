"""Administrators of share groups: changes of offsets, the rest that a group has to deliver, and its dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.admin.groups import delete_groups
from oncelog.admin.share_groups import alter_start_offsets, delete_start_offsets, share_offsets
from oncelog.admin.share_state_log import read_states
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.core.share.model import TERMINAL
from oncelog.records.batch import iter_headers
from oncelog.records.internal.share_state_records import StateBatch
from oncelog.sim.checkers.history import GroupPartition
from oncelog.sim.checkers.share_groups import DeadLetterSeen
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.final_state import EARLIEST, LATEST
from oncelog.sim.workloads.kit.workload import WorkloadProgram
from oncelog.sim.workloads.share_group import ShareGroup

_REFUSALS: Final = frozenset(
    {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


class GroupEnd(NamedTuple):
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    # No transaction holds records back.
    is_readable: bool
    is_settled: bool


async def is_at_end(client: AsyncClient, group: str, topic: str) -> GroupEnd:
    """The start offsets of a group, and whether it has delivered everything."""
    info = await client.topic(topic)
    partitions = [TopicPartition(TopicName(topic), index) for index in sorted(info.partitions)]
    async with AsyncConsumer(client) as consumer:
        ends = await consumer.list_offsets(dict.fromkeys(partitions, LATEST))
        stable = await consumer.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    rows = {row.topic_partition: row for row in await share_offsets(client, group)}
    starts = {partition: -1 if row.start_offset is None else row.start_offset for partition, row in rows.items()}
    # Records that the log has lost are done, but that is not written by itself.
    is_settled = all(
        partition in rows
        and (rows[partition].lag == 0 or max(starts[partition], rows[partition].log_start or 0) >= ends[partition])
        for partition in partitions
        if ends[partition]
    )
    return GroupEnd(starts, ends, ends == stable, is_settled and ends == stable)


async def unsettled_batches(client: AsyncClient, group: str, end: GroupEnd) -> dict[TopicPartition, list[range]]:
    """The batches of the log with offsets that are not settled in the group's written state.

    A lag is no proof of them. Compaction leaves offsets without a batch between records in flight. They are never
    acknowledged, so the lag has them until a later write of the start offset, as in Apache Kafka.
    """
    states = await client.run(read_states(client.cluster, group, end.ends))
    left: dict[TopicPartition, list[range]] = {}
    async with AsyncConsumer(client, FetchSettings(max_wait_ms=100)) as consumer:
        starts = await consumer.list_offsets(dict.fromkeys(end.ends, EARLIEST))
        await consumer.assign(starts, end.ends)
        while len(consumer.positions):
            for fetched in await consumer.poll():
                state = states.get(fetched.partition)
                start = -1 if state is None else state.start_offset
                open_ranges = unsettled_ranges(
                    max(start, starts[fetched.partition]),
                    end.ends[fetched.partition],
                    () if state is None else state.batches,
                )
                headers = (header for _, header in iter_headers(fetched.records))
                batches = (range(header.base_offset, header.last_offset + 1) for header in headers)
                left.setdefault(fetched.partition, []).extend(overlapping(batches, open_ranges))
    return {partition: batches for partition, batches in left.items() if batches}


def unsettled_ranges(start: int, end: int, batches: Iterable[StateBatch]) -> list[range]:
    """The offsets from ``start`` to before ``end`` that no batch of a state, given in order, has as settled."""
    ranges: list[range] = []
    for batch in batches:
        if batch.delivery_state in TERMINAL:
            ranges.append(range(start, min(end, batch.first_offset)))
            start = max(start, batch.last_offset + 1)
    ranges.append(range(start, end))
    return [offsets for offsets in ranges if offsets]


def overlapping(batches: Iterable[range], ranges: Iterable[range]) -> list[range]:
    """The batches that have an offset of the ranges."""
    ranges = list(ranges)
    return [
        batch for batch in batches if any(max(batch.start, part.start) < min(batch.stop, part.stop) for part in ranges)
    ]


async def settled_offsets(client: AsyncClient, group: ShareGroup) -> dict[TopicPartition, int]:
    return dict((await is_at_end(client, group.name, group.topic)).starts)


async def read_dead_letters(client: AsyncClient, consumer: AsyncConsumer, topic: str) -> list[DeadLetterSeen]:
    """All dead letters of a topic; none if it does not exist."""
    try:
        info = await client.topic(topic)
    except UnknownTopic:
        return []
    partitions = [TopicPartition(TopicName(topic), index) for index in sorted(info.partitions)]
    starts = await consumer.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await consumer.list_offsets(dict.fromkeys(partitions, LATEST))
    await consumer.assign(starts, ends)
    letters: list[DeadLetterSeen] = []
    while len(consumer.positions):
        for fetched in await consumer.poll():
            for record in read_fetched(fetched, read_committed=False):
                headers = {name: (value or b"").decode() for name, value in record.headers}
                source = TopicPartition(
                    TopicName(headers["__dlq.errors.topic"]), int(headers["__dlq.errors.partition"])
                )
                key = GroupPartition(headers["__dlq.errors.group"], source)
                letters.append(DeadLetterSeen(key, int(headers["__dlq.errors.offset"])))
    return letters


class Altering(WorkloadProgram[ShareGroup]):
    """Changes or deletes the group's offsets, or the group, while it is empty."""

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            while not host.stopping:
                await host.sleep(self.entropy.randint(500, 3_000))
                if self.workload.is_closed(host):
                    await self.change(client)

    async def change(self, client: AsyncClient) -> None:
        group, entropy = self.workload, self.entropy
        kind = entropy.choice(("alter", "alter", "topic", "group"))
        try:
            if kind == "alter":
                end = await is_at_end(client, group.name, group.topic)
                offsets = {
                    partition: entropy.randint(0, offset)
                    for partition, offset in end.ends.items()
                    if entropy.random() < 0.7
                }
                await client.run(alter_start_offsets(client.cluster, group.name, offsets))
            elif kind == "topic":
                await client.run(delete_start_offsets(client.cluster, group.name, [group.topic]))
            else:
                await delete_groups(client, [group.name])
        except BrokerRefused as error:
            if error.code not in _REFUSALS:
                raise
