"""Resolves where a read starts and ends, given by name, by time or by partition, into offsets.

An end is the first offset not to read. A time means the first record with that timestamp or later (KIP-79), or the
log's end without such a record. A ``start`` by partition resumes at its offsets, and partitions it does not name are
read from their beginning; an ``end`` by partition also selects the partitions. An offset in ``start`` that the log does
not have raises an error, unless missing records may be skipped.
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
    """(topic, partition) → next offset. ``topic_ids`` (KIP-516, as text) detect a topic replaced by another of the same
    name. A plain dict with the same offsets lacks them."""

    def __init__(self, offsets: Mapping[tuple[str, int], int], topic_ids: Mapping[str, str]) -> None:
        super().__init__(offsets)
        self.topic_ids = dict(topic_ids)

    def to_json(self) -> str:
        """The positions as one line of JSON; equal positions produce equal text."""
        nested: dict[str, dict[str, int | str]] = {}
        for (topic, number), offset in sorted(self.items()):
            nested.setdefault(topic, {})[str(number)] = offset
        if self.topic_ids:
            nested[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        return json.dumps(nested)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of :meth:`to_json`. Raises ConfigError."""
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
            raise ConfigError(f'positions must be JSON such as {{"topic": {{"0": 5}}}}, got {text[:200]}') from None


Place: TypeAlias = "str | datetime | Mapping[tuple[str, int], int]"
"""``"earliest"``, ``"latest"``, a datetime (local time if it has no zone), or an offset for each (topic, partition)."""
OnGone = Literal["raise", "skip"]

_NAMED: Final = {"earliest": -2, "latest": -1}
_EARLIEST: Final = -2
_LATEST: Final = -1
# A new leader may briefly be behind: the end of a log that seems to have shrunk is fetched again.
_END_ATTEMPTS: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Offsets: TypeAlias = dict[TopicPartition, int]


class RecordsGone(ClientError):
    """Requested offsets are not in the log: retention or a deletion removed them, or the topic was replaced."""


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
    """The first offset and the end of each partition. ``growing`` topics also have their new partitions read."""

    begin: Offsets
    until: Offsets | None
    growing: tuple[str, ...]


def resolve_ranges(client: Client, watch: TopicWatch, request: ReadRequest) -> OffsetRanges:
    """Resolve the offsets to read, and watch the topics from now on. Raises UnknownTopic, ConfigError, RecordsGone."""
    start = _watch_topics(watch, request)
    partitions = _select_partitions(client, request)
    committed = request.read_committed
    until = None if request.end is None else _resolve(client, request.end, partitions, committed)
    if until is not None:
        partitions = [partition for partition in partitions if partition in until]
    begin = _resolve(client, start, partitions, committed)
    if isinstance(start, Mapping):
        _check_order(begin, until if isinstance(request.end, Mapping) else None)
        begin = _limit_to_log(client, begin, request.on_gone)
        begin |= _list_offsets(
            client,
            dict.fromkeys([partition for partition in partitions if partition not in begin], _EARLIEST),
            committed,
        )
    growing = tuple(request.topics) if request.end is None and request.partitions is None else ()
    return OffsetRanges(begin, until, growing)


def _watch_topics(watch: TopicWatch, request: ReadRequest) -> Place:
    """Watch the topics. Returns ``start`` without replaced topics if those may be skipped."""
    start = request.start
    ids: Mapping[str, str] = start.topic_ids if isinstance(start, Positions) else {}
    for topic in request.topics:
        other = watch.begin(topic, _topic_id(ids[topic]) if topic in ids else None)
        if other is None:
            continue
        if other.topic_id is None:
            raise UnknownTopic(f"topic {topic!r}")
        if request.on_gone == "raise":
            raise RecordsGone(f"topic {topic!r} cannot be resumed from these positions: {other.description}")
        watch.begin(topic)
        assert isinstance(start, Mapping)  # only positions have topic ids
        start = {place: offset for place, offset in start.items() if place[0] != topic}
    return start


def _topic_id(text: str) -> TopicId:
    try:
        return TopicId(uuid_bytes(text))
    except ValueError:
        raise ConfigError(f"{text!r} is not a topic id (22 characters of base64)") from None


def _select_partitions(client: Client, request: ReadRequest) -> list[TopicPartition]:
    existing = sorted(
        TopicPartition(TopicName(name), number) for name in request.topics for number in client.topic(name).partitions
    )
    if request.partitions is None:
        return existing
    try:
        selected = {TopicPartition(TopicName(topic), number) for topic, number in request.partitions}
    except (TypeError, ValueError):
        raise ConfigError(f"partitions must be like [('topic', 0)], got {request.partitions!r}") from None
    missing = sorted(selected.difference(existing))
    if missing:
        raise ConfigError(f"partitions names {missing[0]}, which does not exist in the topics to read")
    return sorted(selected)


def _resolve(client: Client, place: Place, partitions: Iterable[TopicPartition], read_committed: bool) -> Offsets:
    """Resolve ``place`` to an offset per partition, without those that a mapping leaves out. Raises ConfigError."""
    selected = list(partitions)
    if isinstance(place, str):
        if place not in _NAMED:
            raise _place_error(place)
        return _list_offsets(client, dict.fromkeys(selected, _NAMED[place]), read_committed)
    if isinstance(place, datetime):
        by_time = _list_offsets(client, dict.fromkeys(selected, offset_query(_milliseconds(place))), read_committed)
        after_end = [partition for partition, offset in by_time.items() if offset < 0]
        return {**by_time, **_list_offsets(client, dict.fromkeys(after_end, _LATEST), read_committed)}
    offsets = _by_partition(place)
    for partition, offset in offsets.items():
        if partition not in selected:
            raise ConfigError(
                f"an offset is given for {partition}, which is not one of the partitions to read; leave it out"
            )
        if offset < 0:
            raise ConfigError(f"offset {offset} of {partition} is negative; offsets begin at 0")
    return offsets


def _by_partition(place: object) -> Offsets:
    """The offsets of a mapping by (topic, partition). Raises ConfigError."""
    if not isinstance(place, Mapping):
        raise _place_error(place)
    offsets: Offsets = {}
    for key, offset in place.items():
        try:
            topic, number = key
            offsets[TopicPartition(TopicName(topic), index(number))] = index(offset)
        except (TypeError, ValueError):
            raise ConfigError(f"offsets must be like {{('topic', 0): 5}}, got {{{key!r}: {offset!r}}}") from None
    return offsets


def _place_error(place: object) -> ConfigError:
    return ConfigError(f"start and end must be 'earliest', 'latest', a datetime or a mapping of offsets, got {place!r}")


def _check_order(begin: Offsets, until: Offsets | None) -> None:
    for partition, offset in begin.items():
        if until is not None and offset > until[partition]:
            raise ConfigError(f"{partition} starts at offset {offset}, after its end, {until[partition]}")


def _limit_to_log(client: Client, begin: Offsets, on_gone: OnGone) -> Offsets:
    """Limit ``begin`` to the logs' ends. The fetch detects offsets before a log's beginning."""
    ends: Offsets = {}
    beyond: Offsets = {}
    for attempt in range(_END_ATTEMPTS):
        if attempt:
            client.pause(attempt)
        ends |= _list_offsets(client, dict.fromkeys(beyond or begin, _LATEST), read_committed=False)
        beyond = {partition: ends[partition] for partition, offset in begin.items() if offset > ends[partition]}
        if not beyond:
            break
    for partition in sorted(beyond) if on_gone == "raise" else ():
        raise RecordsGone(
            f"{partition} ends at offset {ends[partition]}, before the requested {begin[partition]} "
            "(the log was truncated, or the topic was recreated)"
        )
    return {**begin, **beyond}


def _list_offsets(client: Client, timestamps: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
    if not timestamps:
        return {}
    listed = client.list_offsets(timestamps, read_committed=read_committed)
    return {partition: listed[partition].offset for partition in timestamps}


def _milliseconds(moment: datetime) -> int:
    """The moment in milliseconds, rounded up so that no record before it is read."""
    return -((_EPOCH - moment.astimezone(UTC)) // timedelta(milliseconds=1))
