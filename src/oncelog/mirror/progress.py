"""Reports one engine's state as rows: partitions, groups, refusals, the last failure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from oncelog.base.ids import TopicPartition
from oncelog.client.machine.positions import Fetched
from oncelog.mirror.positions_topic import CopiedPartition


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A source partition and its copy. ``lag`` counts readable offsets that are not copied yet; ``undecided`` those
    behind them in open transactions.
    """

    source: str
    topic: str
    partition: int
    target: str
    position: int
    lag: int | None
    undecided: int | None
    records: int
    """Records that the mirror has copied to the target."""
    gaps: int


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A refusal by the target. ``partition`` and ``offset`` are None if a whole topic is refused."""

    source: str
    topic: str
    partition: int | None
    offset: int | None
    """The offset of the first record not copied."""
    target: str
    code: int
    text: str
    """One line: the place, the cause, and what to do."""
    stands: bool = True
    """True if records are not copied; False if only the target's configuration differs."""


class GroupState(Enum):
    """The outcome for a group's offset."""

    synced = "synced"
    """The target has the translated offset."""
    ahead = "ahead of the mirror"
    """The group has read further than the mirror has copied; translated once the copy exists."""
    moved_on = "goes on there"
    """The group has an offset of its own on the other side, which is kept."""
    movable = "to be committed"
    """The translated offset may be committed on the other side."""
    taken = "has members there"
    """The group is in use on the other side."""
    refused = "refused there"
    """The other side refuses to let the mirror read or commit the group's offsets."""


@dataclass(frozen=True, slots=True)
class GroupOffsetRow:
    """The offset of a group in one partition, on both sides."""

    group: str
    topic: str
    partition: int
    source_offset: int
    target_topic: str
    translated: int | None
    target_offset: int | None
    state: GroupState


@dataclass(slots=True)
class Progress:
    """Updated by an engine, read by status displays."""

    alias: str
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    failures: int = 0
    last_failure: str | None = None
    cycles: tuple[str, ...] = ()
    groups: list[GroupOffsetRow] = field(default_factory=list)
    refusals: dict[TopicPartition, RefusalRow] = field(default_factory=dict)
    """Records that the target refuses, by partition of the source."""
    topic_refusals: dict[str, RefusalRow] = field(default_factory=dict)
    """Topics that the target refuses, by their names at the source."""
    schema_refusals: list[RefusalRow] = field(default_factory=list)
    """Schemas that the target has differently."""
    _ends: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    _partitions: dict[TopicPartition, CopiedPartition] = field(default_factory=dict)
    _seen: tuple[float, int, int] = (0.0, 0, 0)
    _rates: tuple[float, float] = (0.0, 0.0)

    def fetched(self, fetched: Fetched) -> None:
        stable = fetched.last_stable_offset if fetched.last_stable_offset >= 0 else fetched.high_watermark
        self._ends[fetched.partition] = stable, fetched.high_watermark

    def owned(self, partitions: Iterable[CopiedPartition]) -> None:
        self._partitions = {copied.partition: copied for copied in partitions}

    def committed(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.bytes += size_bytes
        self.transactions += 1

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.last_failure = str(error)

    def rates(self, now_s: float | None = None) -> tuple[float, float]:
        """Records and bytes per second since the last call, at least half a second ago."""
        now = time.monotonic() if now_s is None else now_s
        since, records, size = self._seen
        if now - since >= 0.5:
            span = now - since
            self._rates = ((self.records - records) / span, (self.bytes - size) / span) if since else (0.0, 0.0)
            self._seen = now, self.records, self.bytes
        return self._rates

    def rows(self) -> list[PartitionRow]:
        rows = []
        for partition in sorted(self._partitions):
            copied = self._partitions[partition]
            stable, end = self._ends.get(partition, (None, None))
            position = copied.offsets.position
            rows.append(
                PartitionRow(
                    self.alias,
                    partition.topic,
                    partition.partition,
                    copied.target,
                    position,
                    None if stable is None else max(0, stable - position),
                    None if stable is None or end is None else max(0, end - max(stable, position)),
                    copied.offsets.records,
                    len(copied.gaps),
                )
            )
        return rows

    def refused(self) -> list[RefusalRow]:
        rows = [*self.schema_refusals, *self.topic_refusals.values(), *self.refusals.values()]
        return sorted(rows, key=lambda row: (row.topic, -1 if row.partition is None else row.partition))

    @property
    def lag(self) -> int:
        return sum(row.lag or 0 for row in self.rows())
