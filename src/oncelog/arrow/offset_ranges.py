"""Start and end of reading, given by name, by time or partition by partition, turned into offsets.

The rule: a beginning is the first offset wanted, an end the first that is not. A time means the first record that is as
late (KIP-79); where there is none it means the log's end. A ``start`` by partition says where to go on, what it does
not name is read from its beginning; an ``end`` by partition chooses the partitions, too. What a ``start`` names and
the log does not have is an error that names it, unless what is gone is to be skipped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Final, Literal, Self, TypeAlias

from oncelog.base.ids import TopicId, TopicName, TopicPartition, uuid_bytes
from oncelog.client.blocking import Client
from oncelog.client.blocking.topic_identity import TopicWatch
from oncelog.client.errors import ClientError, ConfigError, UnknownTopic
from oncelog.client.machine.requests import offset_query

_NOTE_MARK: Final = "@"
_TOPIC_IDS: Final = "@topicIds"


class Positions(dict[tuple[str, int], int]):
    """(topic, partition) → the next offset. With ``topic_ids`` (KIP-516; as text) a topic is known from another one of
    its name; a plain dict with the same offsets, or one that was made of it, does not have them."""

    def __init__(self, offsets: Mapping[tuple[str, int], int], topic_ids: Mapping[str, str]) -> None:
        super().__init__(offsets)
        self.topic_ids = dict(topic_ids)

    def to_json(self) -> str:
        """The positions as one line of JSON; equal positions give equal text."""
        nested: dict[str, dict[str, int | str]] = {}
        for (topic, number), offset in sorted(self.items()):
            nested.setdefault(topic, {})[str(number)] = offset
        if self.topic_ids:
            nested[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return json.dumps(nested)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The positions in the text of :meth:`to_json`. Raises ConfigError."""
        try:
            nested = json.loads(text)
            offsets = {
                (topic, int(number)): int(offset)
                for topic, partitions in nested.items()
                if not topic.startswith(_NOTE_MARK)
                for number, offset in partitions.items()
            }
            return cls(offsets, nested.get(_TOPIC_IDS, {}))
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(f'positions must be JSON like {{"topic": {{"0": 5}}}}, not {text[:200]}') from None


Place: TypeAlias = "str | datetime | Mapping[tuple[str, int], int]"
"""``"earliest"``, ``"latest"``, a moment (one without a zone is local time, as everywhere in Python), or an offset for
each (topic, partition)."""
OnGone = Literal["raise", "skip"]

_NAMED: Final = {"earliest": -2, "latest": -1}
_EARLIEST: Final = -2
_LATEST: Final = -1
_LOOKS: Final = 3
"""Attempts to find the end of a log that seems shorter than it was: a new leader may be behind for a moment."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Offsets: TypeAlias = dict[TopicPartition, int]


class RecordsGone(ClientError):
    """Offsets that were asked for are not in the log: retention or a deletion was faster, or the topic is another."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The arguments of ``read_arrow`` that choose topics, partitions and offsets."""

    topics: list[str]
    start: Place
    end: Place | None
    partitions: Collection[tuple[str, int]] | None
    read_committed: bool
    on_gone: OnGone


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """The first offset and the end of each partition; ``growing`` topics have their new partitions read, too."""

    begin: Offsets
    until: Offsets | None
    growing: tuple[str, ...]


def resolve_ranges(client: Client, watch: TopicWatch, request: ReadRequest) -> OffsetRanges:
    """The offsets to read. The topics are watched from now on. Raises UnknownTopic, ConfigError, RecordsGone."""
    start = _of_these_topics(watch, request)
    partitions = _chosen(client, request)
    committed = request.read_committed
    until = None if request.end is None else _resolve(client, request.end, partitions, committed)
    if until is not None:
        partitions = [partition for partition in partitions if partition in until]
    begin = _resolve(client, start, partitions, committed)
    if isinstance(start, Mapping):
        _check_order(begin, until if isinstance(request.end, Mapping) else None)
        begin = _within_log(client, begin, request.on_gone)
        begin |= _listed(client, dict.fromkeys([one for one in partitions if one not in begin], _EARLIEST), committed)
    growing = tuple(request.topics) if request.end is None and request.partitions is None else ()
    return OffsetRanges(begin, until, growing)


def _of_these_topics(watch: TopicWatch, request: ReadRequest) -> Place:
    """Watch the topics. Returns ``start`` without topics that were replaced, if those are to be skipped."""
    start = request.start
    ids: Mapping[str, str] = start.topic_ids if isinstance(start, Positions) else {}
    for topic in request.topics:
        other = watch.begin(topic, _topic_id(ids[topic]) if topic in ids else None)
        if other is None:
            continue
        if other.topic_id is None:
            raise UnknownTopic(f"topic {topic!r}")
        if request.on_gone == "raise":
            raise RecordsGone(f"topic {topic!r} cannot be read on from these positions: {other.description}")
        watch.begin(topic)
        assert isinstance(start, Mapping)  # it has ids
        start = {place: offset for place, offset in start.items() if place[0] != topic}
    return start


def _topic_id(text: str) -> TopicId:
    try:
        return TopicId(uuid_bytes(text))
    except ValueError:
        raise ConfigError(f"{text!r} is not a topic id") from None


def _chosen(client: Client, request: ReadRequest) -> list[TopicPartition]:
    """The partitions to read, sorted."""
    all_of_them = sorted(
        TopicPartition(TopicName(name), number) for name in request.topics for number in client.topic(name).partitions
    )
    if request.partitions is None:
        return all_of_them
    try:
        wanted = {TopicPartition(TopicName(topic), number) for topic, number in request.partitions}
    except (TypeError, ValueError):
        raise ConfigError(f"partitions are given as [('topic', 0)], not as {request.partitions!r}") from None
    missing = sorted(wanted.difference(all_of_them))
    if missing:
        raise ConfigError(f"partitions names {missing[0]}, which the topics to read do not have")
    return sorted(wanted)


def _resolve(client: Client, place: Place, partitions: Iterable[TopicPartition], read_committed: bool) -> Offsets:
    """``place`` as an offset for each partition; one that a mapping does not name is left out.

    Raises ConfigError for a place that is none, or names a partition that is not read.
    """
    wanted = list(partitions)
    if isinstance(place, str):
        if place not in _NAMED:
            raise _no_place(place)
        return _listed(client, dict.fromkeys(wanted, _NAMED[place]), read_committed)
    if isinstance(place, datetime):
        found = _listed(client, dict.fromkeys(wanted, offset_query(_milliseconds(place))), read_committed)
        none = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **_listed(client, dict.fromkeys(none, _LATEST), read_committed)}
    given = _by_partition(place)
    for partition, offset in given.items():
        if partition not in wanted:
            raise ConfigError(f"there is an offset for {partition}, which is not read")
        if offset < 0:
            raise ConfigError(f"offset {offset} of {partition} is below zero")
    return given


def _by_partition(place: object) -> Offsets:
    """The offsets of a mapping by (topic, partition). Raises ConfigError for anything else."""
    if not isinstance(place, Mapping):
        raise _no_place(place)
    given: Offsets = {}
    for key, offset in place.items():
        try:
            topic, number = key
            given[TopicPartition(TopicName(topic), index(number))] = index(offset)
        except (TypeError, ValueError):
            raise ConfigError(f"offsets are given as {{('topic', 0): 5}}, not as {{{key!r}: {offset!r}}}") from None
    return given


def _no_place(place: object) -> ConfigError:
    """The error for a start or an end of another kind."""
    return ConfigError(f"start and end are 'earliest', 'latest', a datetime or a mapping of offsets, not {place!r}")


def _check_order(begin: Offsets, until: Offsets | None) -> None:
    for partition, offset in begin.items():
        if until is not None and offset > until[partition]:
            raise ConfigError(f"{partition} begins at offset {offset} and ends before, at {until[partition]}")


def _within_log(client: Client, begin: Offsets, on_gone: OnGone) -> Offsets:
    """``begin`` limited to the logs' ends; offsets before a log's beginning are found out when they are fetched."""
    ends: Offsets = {}
    beyond: Offsets = {}
    for look in range(_LOOKS):
        if look:
            client.pause(look)
        ends |= _listed(client, dict.fromkeys(beyond or begin, _LATEST), read_committed=False)
        beyond = {partition: ends[partition] for partition, offset in begin.items() if offset > ends[partition]}
        if not beyond:
            break
    for partition in sorted(beyond) if on_gone == "raise" else ():
        raise RecordsGone(
            f"{partition} ends at offset {ends[partition]}; {begin[partition]} was asked for "
            "(the log became shorter, or the topic was created anew)"
        )
    return {**begin, **beyond}


def _listed(client: Client, timestamps: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
    if not timestamps:
        return {}
    listed = client.list_offsets(timestamps, read_committed=read_committed)
    return {partition: listed[partition].offset for partition in timestamps}


def _milliseconds(moment: datetime) -> int:
    """The moment in milliseconds, rounded up: a record that is earlier by a fraction of one is not wanted."""
    return -((_EPOCH - moment.astimezone(UTC)) // timedelta(milliseconds=1))
