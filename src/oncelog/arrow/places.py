"""Where reading begins and ends: by name, by time, or partition by partition. Turned into offsets here.

The rule: a beginning is the first offset wanted, an end the first that is not. A time means the first record that is as
late (KIP-79); where there is none it means the log's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.errors import ConfigError

Place: TypeAlias = "str | datetime | Mapping[tuple[str, int], int]"
"""``"earliest"``, ``"latest"``, a moment (one without a zone is local time, as everywhere in Python), or an offset for
each (topic, partition)."""

_NAMED: Final = {"earliest": -2, "latest": -1}
_LATEST: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Offsets: TypeAlias = dict[TopicPartition, int]


def partitions_of(client: Client, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of ``topics``, sorted. Raises UnknownTopic."""
    return sorted(
        TopicPartition(TopicName(name), number) for name in topics for number in client.topic(name).partitions
    )


def resolve(client: Client, place: Place, partitions: Iterable[TopicPartition], *, read_committed: bool) -> Offsets:
    """``place`` as an offset for each partition; one that a mapping does not name is left out.

    Raises ConfigError for a place that is none, or names a partition that is not read.
    """
    wanted = list(partitions)
    if isinstance(place, str):
        if place not in _NAMED:
            raise ConfigError(f"a place is 'earliest', 'latest', a datetime or a mapping of offsets, not {place!r}")
        return _listed(client, dict.fromkeys(wanted, _NAMED[place]), read_committed)
    if isinstance(place, datetime):
        found = _listed(client, dict.fromkeys(wanted, _milliseconds(place)), read_committed)
        none = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **_listed(client, dict.fromkeys(none, _LATEST), read_committed)}
    given = {TopicPartition(TopicName(topic), number): offset for (topic, number), offset in place.items()}
    for partition, offset in given.items():
        if partition not in wanted:
            raise ConfigError(f"there is an offset for {partition}, which is not read")
        if offset < 0:
            raise ConfigError(f"offset {offset} of {partition} is below zero")
    return given


def _listed(client: Client, asked: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
    if not asked:
        return {}
    listed = client.list_offsets(asked, read_committed=read_committed)
    return {partition: listed[partition].offset for partition in asked}


def _milliseconds(moment: datetime) -> int:
    """Rounded up: a record that is earlier by less than a millisecond is not wanted."""
    return -((_EPOCH - moment.astimezone(UTC)) // timedelta(milliseconds=1))
