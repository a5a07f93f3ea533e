"""Lists mirrors from their target's side: what each has copied, and its lag at its last transaction.

Reads the positions topics with a blocking client. A stopped mirror's source ends are as of its last transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import LATEST, Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.mirror.errors import refusal_row
from oncelog.mirror.positions_topic import PREFIX, CopiedPartition, Positions
from oncelog.mirror.provenance import PROVENANCE_TOPIC

_FETCH: Final = FetchSettings(max_bytes=8 * MIB, partition_max_bytes=MIB, read_committed=True)


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """A source partition and its copy. ``position`` is the source offset to copy next; ``lag`` the number of source
    offsets behind it at ``at_ms``, None if an earlier version wrote it.
    """

    source: str
    cluster: str
    topic: str
    partition: int
    target: str
    position: int
    lag: int | None
    at_ms: int | None
    records: int
    gaps: int
    groups: int
    refused: str | None
    """The refused record that stops the partition, in one line; None without one."""


def mirrored_partitions(client: Client) -> list[MirroredPartition]:
    """All partitions that mirrors copy into this cluster, by source, topic and partition. Raises ClientError."""
    topics = sorted(name for name in client.metadata(None) if name.startswith(PREFIX) and name != PROVENANCE_TOPIC)
    rows = []
    for topic in topics:
        partitions = _positions(client, topic).partitions
        rows += [_row(topic.removeprefix(PREFIX), partitions[partition]) for partition in sorted(partitions)]
    return rows


def _positions(client: Client, topic: TopicName) -> Positions:
    slots = [TopicPartition(topic, index) for index in sorted(client.topic(topic).partitions)]
    listed = client.list_offsets(dict.fromkeys(slots, LATEST), read_committed=True)
    ends = {slot: listed_offset.offset for slot, listed_offset in listed.items()}
    positions = Positions(topic, len(slots))
    for fetched in client.fetch(dict.fromkeys(slots, 0), until=ends, settings=_FETCH):
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, str(fetched.partition))
        for record in read_fetched(fetched, read_committed=True):
            positions.apply(record.partition, record.key, record.value)
    positions.finish()
    return positions


def _row(source: str, copied: CopiedPartition) -> MirroredPartition:
    topic, partition = copied.partition
    position = copied.offsets.position
    target = TopicPartition(TopicName(copied.target), partition)
    return MirroredPartition(
        source,
        copied.cluster,
        topic,
        partition,
        copied.target,
        position,
        None if copied.source_end < 0 else max(0, copied.source_end - position),
        None if copied.written_ms < 0 else copied.written_ms,
        copied.offsets.records,
        len(copied.gaps),
        len(copied.groups),
        None if copied.refused is None else refusal_row(source, copied.partition, target, copied.refused).text,
    )
