"""Positions that a mirror has stored about a source, read at the target by whoever asks: nothing is changed by it."""

from __future__ import annotations

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import ClientError, UnknownTopic
from oncelog.mirror.administration import read_to_end
from oncelog.mirror.positions_topic import Positions, positions_topic


async def read_positions(client: AsyncClient, topic: TopicName, slots: tuple[int, ...], count: int) -> Positions:
    """The partitions in ``slots`` of ``count``, from the topic's beginning to its present end."""
    positions = Positions(topic, count)
    if slots:
        async for record in read_to_end(client, [TopicPartition(topic, slot) for slot in slots]):
            positions.apply(record.partition.partition, record.key, record.value)
    positions.finish()
    return positions


async def stored_positions(client: AsyncClient, alias: str) -> Positions:
    """All partitions that were mirrored from a source. Raises ClientError where there was no mirror of it."""
    topic = positions_topic(alias)
    try:
        count = len((await client.topic(topic)).partitions)
    except UnknownTopic:
        raise ClientError(
            f"no mirror from {alias!r} was ever run to this target: it has no topic {topic}; is --source's name right?"
        ) from None
    return await read_positions(client, topic, tuple(range(count)), count)
