"""The position of a stream: an offset for each partition, and the ids of the topics. Pure.

In a checkpoint it is the JSON of Spark's Kafka connector (topic → partition → next offset), with notes under keys that
no topic can have. The note ``@topicIds`` (KIP-516) reveals a topic that was replaced by another of the same name, even
while the query was not running. The caller decides which changes are a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.source.offset_ranges import Offsets

# First character of a note's name, which no topic name has.
NOTE_MARK: Final = "@"
TOPIC_IDS: Final = "@topicIds"
# Unknown notes are passed over. A format that changes what the offsets mean has this note; format 1 is written without.
FORMAT_NOTE: Final = "@format"
FORMAT: Final = 1


class UnknownPosition(SparkSourceError): ...


@dataclass(frozen=True, slots=True)
class Position:
    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The position as in a checkpoint; equal positions produce equal text."""
        ids = {TOPIC_IDS: dict(sorted(self.topic_ids.items()))} if self.topic_ids else {}
        return {**to_json_offsets(self.offsets), **ids}

    @classmethod
    def from_json(cls, nested: Mapping[str, Any]) -> Position:
        """Reverse :meth:`to_json`, also of the connector. Raises UnknownPosition."""
        if (version := nested.get(FORMAT_NOTE, FORMAT)) != FORMAT:
            raise UnknownPosition(
                f"the checkpoint's offsets have format {version}, and this version of oncelog reads {FORMAT}: continue "
                "the query with the version that wrote them"
            )
        topics = {name: value for name, value in nested.items() if not name.startswith(NOTE_MARK)}
        return cls(from_json_offsets(topics), dict(nested.get(TOPIC_IDS, {})))

    def is_other_topic(self, topic: str, now: Position) -> bool:
        before, after = self.topic_ids.get(topic), now.topic_ids.get(topic)
        # Without ids (old brokers, the connector's checkpoints) topics of one name count as the same.
        return before is not None and after is not None and before != after


@dataclass(frozen=True, slots=True)
class Added:
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Gone:
    """A partition that disappeared: its topic was deleted, or is no longer subscribed to."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Recreated:
    partition: TopicPartition
    offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class Shorter:
    partition: TopicPartition
    offset: int
    end: int


Change = Added | Gone | Recreated | Shorter


def changes(before: Position, now: Position) -> Iterator[Change]:
    """Yield the differences between a query's position and the logs' ends, by partition."""
    for partition in sorted({*before.offsets, *now.offsets}):
        offset, end = before.offsets.get(partition), now.offsets.get(partition)
        if offset is None:
            yield Added(partition)
        elif end is None:
            yield Gone(partition, offset)
        elif before.is_other_topic(partition.topic, now):
            yield Recreated(partition, offset, now.topic_ids[partition.topic])
        elif end < offset:
            yield Shorter(partition, offset, end)


def same_topic_only(before: Position, now: Position) -> Offsets:
    return {
        partition: offset
        for partition, offset in before.offsets.items()
        if partition in now.offsets and not before.is_other_topic(partition.topic, now)
    }


def lag_by_partition(end: Position, latest: Position) -> list[int]:
    """Number of unread offsets, for each partition in both positions."""
    return [max(0, latest.offsets[p] - offset) for p, offset in end.offsets.items() if p in latest.offsets]


def to_json_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return nested


def from_json_offsets(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(TopicName(topic), int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }
