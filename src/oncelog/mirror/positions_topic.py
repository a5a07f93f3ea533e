"""Stores positions and offset maps in an internal topic at the target, within the transactions that copy records.

Each source has one compacted topic, ``__oncelog_mirror_<alias>``. Its partitions are *slots*: every source partition
hashes to one by its name. Instances share the slots as a group does; a slot's owner copies its partitions, reads the
slot from the beginning, and is its only writer.

A key is ``["map", topic, partition, topic id, first source offset]``, with the runs from that offset on as value
(JSON); ``["gap", …, first missing offset]`` for an accepted gap; or ``["group", …, group]`` for an offset committed at
the target. Of several topic ids (a re-created source topic) the map written last is current.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.mirror.offset_map import MappedRun, OffsetMap
from oncelog.mirror.refusals import Refused

PREFIX: Final = "__oncelog_mirror_"
SLOTS: Final = 16
CHUNK_RUNS: Final = 128
FORMAT: Final = 1


class PositionsDamaged(ClientError):
    """A record of the positions topic that this version did not write."""


def positions_topic(alias: str) -> TopicName:
    return TopicName(PREFIX + alias)


def slot_of(partition: TopicPartition, slots: int) -> int:
    """A topic's partitions spread evenly over the slots."""
    bits = max(1, (slots - 1).bit_length())
    # The bits of the partition number reversed: neighbours fall far apart.
    spread = int(f"{partition.partition % (1 << bits):0{bits}b}"[::-1], 2)
    return (zlib.crc32(partition.topic.encode()) + spread) % slots


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that the source deleted before they were copied; ``end`` is exclusive."""

    partition: TopicPartition
    start: int
    end: int


@dataclass(slots=True)
class CopiedPartition:
    """The known state of one source partition and its copy."""

    partition: TopicPartition
    topic_id: str
    """The source's topic id in hexadecimal, empty if it has none."""
    target: str
    """The topic at the target."""
    cluster: str
    """The cluster id of the source."""
    offsets: OffsetMap
    chunk_start: int = 0
    """The index of the first run of the record being extended."""
    noted_position: int = -1
    """The position stored in the topic."""
    gaps: list[Gap] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    """The offsets at the target that the mirror committed last, by group."""
    source_end: int = -1
    """The readable end of the source at its last answer; −1 if unknown."""
    written_ms: int = -1
    """When the position was written, in milliseconds on the mirror's clock."""
    target_id: str = ""
    """The topic id at the target in hexadecimal, empty if it has none."""
    chunk_firsts: list[int] = field(default_factory=list)
    """The first source offsets of the stored map records, in order."""
    refused: Refused | None = None
    """The record that the target refuses, which stops the partition."""

    def is_replaced(self, topic_id: bytes) -> bool:
        """True if the source reports another topic id: the topic was deleted and created again."""
        return bool(self.topic_id) and any(topic_id) and topic_id.hex() != self.topic_id

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of the records that bring the topic up to date; call ``noted`` once they are committed."""
        for start, stop in self._chunks():
            yield self._record(start, stop, is_last=stop == len(self.offsets))

    def prune(self, target_start: int) -> list[bytes]:
        """Drop map records whose copies the target has deleted. Returns their keys, to be written without a value."""
        keys, dropped = [], 0
        while len(self.chunk_firsts) > 1:
            index = self.offsets.index_of(self.chunk_firsts[1])
            if self.offsets.run(index).target > target_start:
                break
            keys.append(_key("map", self.partition, self.topic_id, self.chunk_firsts.pop(0)))
            dropped = index
        self.offsets.drop_first(dropped)
        self.chunk_start -= dropped
        return keys

    def keys(self) -> list[bytes]:
        firsts: list[tuple[str, int | str]] = [("map", first) for first in self.chunk_firsts]
        firsts += [("gap", gap.start) for gap in self.gaps]
        firsts += [("group", group) for group in self.groups]
        return [_key(kind, self.partition, self.topic_id, first) for kind, first in firsts]

    def gap_record(self, gap: Gap, at_ms: int) -> tuple[bytes, bytes]:
        return _key("gap", self.partition, self.topic_id, gap.start), _json({"v": FORMAT, "end": gap.end, "at": at_ms})

    def group_record(self, group: str, offset: int) -> tuple[bytes, bytes]:
        return _key("group", self.partition, self.topic_id, group), _json({"v": FORMAT, "offset": offset})

    def noted(self) -> None:
        """Mark ``records`` as committed."""
        for start, _ in self._chunks():
            self.chunk_start = start
            first = self.offsets.run(start).source
            if not self.chunk_firsts or self.chunk_firsts[-1] < first:
                self.chunk_firsts.append(first)
        self.noted_position = self.offsets.position

    def _chunks(self) -> list[tuple[int, int]]:
        end = len(self.offsets)
        # The last record is rewritten with every transaction until it has CHUNK_RUNS runs; then a new one begins, so
        # that compaction keeps each run once.
        starts = range(self.chunk_start, end, CHUNK_RUNS)
        return [(start, min(start + CHUNK_RUNS, end)) for start in starts]

    def _record(self, start: int, stop: int, *, is_last: bool) -> tuple[bytes, bytes]:
        flat: list[int] = []
        source = target = 0
        for index in range(start, stop):
            run = self.offsets.run(index)
            flat += (run.source - source, run.target - target, run.records)
            source, target = run.source + run.records, run.target + run.records
        first = self.offsets.run(start).source
        value: dict[str, Any] = {"v": FORMAT, "target": self.target, "cluster": self.cluster, "runs": flat}
        value["id"] = self.target_id
        if is_last:
            value |= {"position": self.offsets.position, "end": self.source_end, "at": self.written_ms}
            if self.refused is not None:
                value["refused"] = [*self.refused]
        return _key("map", self.partition, self.topic_id, first), _json(value)


@dataclass(slots=True)
class Positions:
    """The partitions of some slots, built from their records in order."""

    topic: str
    slots: int
    partitions: dict[TopicPartition, CopiedPartition] = field(default_factory=dict)
    before: dict[TopicPartition, list[CopiedPartition]] = field(default_factory=dict)
    """Earlier incarnations of partitions that were created again at the source."""
    _chunks: dict[TopicPartition, dict[str, dict[int, dict[str, Any]]]] = field(default_factory=dict)
    _groups: dict[tuple[TopicPartition, str], dict[Any, int]] = field(default_factory=dict)
    _gaps: dict[tuple[TopicPartition, str], dict[Any, int]] = field(default_factory=dict)

    def apply(self, slot: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic, from the lowest offset on. Raises PositionsDamaged."""
        try:
            kind, topic, number, topic_id, first = json.loads(key or b"null")
            fields = None if value is None else json.loads(value)
            partition = TopicPartition(TopicName(topic), int(number))
        except (ValueError, TypeError) as error:
            raise PositionsDamaged(f"a record of {self.topic} is not a mirror's: {error}") from None
        if slot_of(partition, self.slots) != slot:
            raise PositionsDamaged(
                f"{self.topic} has {self.slots} partitions, but was written with another number of them: "
                "its number of partitions must not be changed while a mirror uses it"
            )
        # Early mirrors wrote gaps and groups without a format.
        if fields is not None and (version := fields.get("v", FORMAT)) != FORMAT:
            raise PositionsDamaged(
                f"a record of {self.topic} has format {version}, and this version of oncelog reads {FORMAT}: run the "
                "mirror with the version that wrote it"
            )
        if kind in ("gap", "group"):
            kept = (self._gaps if kind == "gap" else self._groups).setdefault((partition, topic_id), {})
            kept.pop(first, None)
            if fields is not None:
                kept[first] = fields["end" if kind == "gap" else "offset"]
        elif kind == "map":
            self._apply_map(partition, topic_id, first, fields)

    def finish(self) -> None:
        """Build the maps; call once, after the last record."""
        for partition, lives in self._chunks.items():
            # The incarnation written last comes last.
            copies = [self._copy(partition, topic_id, chunks) for topic_id, chunks in lives.items() if chunks]
            if copies:
                *self.before[partition], self.partitions[partition] = copies
        self._chunks.clear()

    def _apply_map(self, partition: TopicPartition, topic_id: str, first: int, fields: dict[str, Any] | None) -> None:
        lives = self._chunks.setdefault(partition, {})
        if fields is None:
            lives.get(topic_id, {}).pop(first, None)
            return
        chunks = lives.pop(topic_id, {})
        lives[topic_id] = chunks  # the last that was written comes last
        chunks[first] = fields

    def _copy(self, partition: TopicPartition, topic_id: str, chunks: dict[int, dict[str, Any]]) -> CopiedPartition:
        ordered = sorted(chunks)
        last = chunks[ordered[-1]]
        position = last.get("position", -1)
        offsets = OffsetMap(0)
        offsets.extend((run for first in ordered for run in _runs(chunks[first]["runs"])), position)
        copied = CopiedPartition(partition, topic_id, last["target"], last["cluster"], offsets)
        copied.chunk_start = offsets.index_of(ordered[-1])
        copied.noted_position = position
        copied.gaps = [Gap(partition, first, end) for first, end in self._gaps.get((partition, topic_id), {}).items()]
        copied.groups = self._groups.get((partition, topic_id), {})
        copied.target_id = last.get("id", "")
        copied.source_end, copied.written_ms = last.get("end", -1), last.get("at", -1)
        copied.chunk_firsts = ordered
        copied.refused = Refused(*last["refused"]) if "refused" in last else None
        return copied


def _runs(flat: list[int]) -> Iterator[MappedRun]:
    source = target = 0
    for index in range(0, len(flat), 3):
        source, target, count = source + flat[index], target + flat[index + 1], flat[index + 2]
        yield MappedRun(source, target, count)
        source, target = source + count, target + count


def _key(kind: str, partition: TopicPartition, topic_id: str, first: int | str) -> bytes:
    return _json([kind, partition.topic, partition.partition, topic_id, first])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
