"""Reads the internal topics of mirrors to their ends, and the positions stored for a source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.positions_topic import Positions, positions_topic


class ReadRecord(NamedTuple):
    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


async def read_to_end(
    client: AsyncClient,
    partitions: Iterable[TopicPartition],
    starts: Mapping[TopicPartition, int] | None = None,
    *,
    read_committed: bool = True,
    wait_for_open: bool = True,
) -> AsyncIterator[ReadRecord]:
    """Every record written before the call, by partition and in order; of transactions only committed ones.

    Reads from ``starts``, or the beginning. Waits for transactions that are open now, or ends before them. Raises
    BrokerRefused, and what a consumer raises.
    """
    selected = list(partitions)
    starts = starts or await offsets_at(client, dict.fromkeys(selected, EARLIEST))
    ends = await offsets_at(client, dict.fromkeys(selected, LATEST), read_committed=not wait_for_open)
    async with AsyncConsumer(client, FetchSettings(read_committed=read_committed)) as consumer:
        await consumer.assign(starts, until=ends)
        while len(consumer.positions):
            for fetched in await consumer.poll():
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition}")
                for record in read_fetched(fetched, read_committed=read_committed):
                    if record.offset < ends[fetched.partition]:
                        yield ReadRecord(fetched.partition, record.offset, record.key, record.value, record.timestamp)


async def read_positions(client: AsyncClient, topic: TopicName, slots: tuple[int, ...], count: int) -> Positions:
    positions = Positions(topic, count)
    if slots:
        async for record in read_to_end(client, [TopicPartition(topic, slot) for slot in slots]):
            positions.apply(record.partition.partition, record.key, record.value)
    positions.finish()
    return positions


async def stored_positions(client: AsyncClient, alias: str) -> Positions:
    """All partitions that were mirrored from a source. Raises ClientError if it was never mirrored."""
    topic = positions_topic(alias)
    try:
        count = len((await client.topic(topic)).partitions)
    except UnknownTopic:
        raise ClientError(
            f"no mirror from {alias!r} was ever run to this target: it has no topic {topic}; is --source's name right?"
        ) from None
    return await read_positions(client, topic, tuple(range(count)), count)
