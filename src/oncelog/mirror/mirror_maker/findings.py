"""Findings about MirrorMaker 2's translation, and the rules that lead from facts to them. Pure.

A finding claims a fault, never MirrorMaker's ordinary imprecision: it translates a group to at most one offset past the
nearest sync, so a group that moves over reads some records twice (KAFKA-12468).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from oncelog.base.ids import TopicPartition
from oncelog.base.text import counted
from oncelog.mirror.mirror_maker.alignment import Reading
from oncelog.mirror.mirror_maker.sync_history import CheckpointHistory, SyncHistory


class Kind(StrEnum):
    """Kinds of findings, worst first."""

    skips_records = "skips-records"
    beyond_end = "beyond-end"
    other_record = "other-record"
    sync_beyond_end = "sync-beyond-end"
    before_start = "before-start"
    no_copy = "no-copy"
    no_checkpoint = "no-checkpoint"
    went_back = "went-back"
    stale_checkpoint = "stale-checkpoint"
    stale_syncs = "stale-syncs"
    reads_twice = "reads-twice"
    unreadable = "unreadable"


ORDER = {kind: index for index, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    text: str
    group: str | None = None
    topic: str | None = None
    """The source's topic, or the copy's if no source topic is known."""
    partition: int | None = None
    upstream_offset: int | None = None
    downstream_offset: int | None = None
    records: int | None = None
    """The records that a group loses or reads twice, where they were counted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """First and next offset of a log."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """A source partition that has syncs, and its copy."""

    source: TopicPartition
    target: TopicPartition
    history: SyncHistory
    source_bounds: Bounds
    target_bounds: Bounds
    are_records_equal: bool | None
    """True if the latest sync pairs equal records; None if one of them is gone."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group's checkpoint in a copy. ``committed`` is its offset at the source after the checkpoint was read."""

    group: str
    copy: CopyFacts
    checkpoint: CheckpointHistory
    committed: int | None
    checkpointed: Reading | None
    """A start at the checkpoint, compared with the position that it translates; None if it was not counted."""
    current: Reading | None
    """The same, compared with the position of now."""

    @property
    def position(self) -> int:
        """The source offset from which on the group has not read."""
        return self.checkpoint.latest.upstream if self.committed is None else self.committed


@dataclass(frozen=True, slots=True)
class Tolerance:
    """MirrorMaker's ``offset.lag.max``, and the age from which on a checkpoint should have been renewed."""

    offset_lag_max: int = 100
    stale_ms: int = 600_000


def copy_findings(copy: CopyFacts, tolerance: Tolerance) -> Iterator[Finding]:
    latest, source, target = copy.history.latest, copy.source, copy.target

    def finding(kind: Kind, text: str, records: int | None = None) -> Finding:
        return Finding(kind, text, None, source.topic, source.partition, latest.upstream, latest.downstream, records)

    if copy.are_records_equal is False:
        yield finding(
            Kind.other_record,
            f"the latest sync pairs offset {latest.upstream} of {source} with {latest.downstream} of {target}, but "
            "their records differ: every later translation of this partition is wrong",
        )
    for side, offset, bounds in (
        (source, latest.upstream, copy.source_bounds),
        (target, latest.downstream, copy.target_bounds),
    ):
        if offset >= bounds.end:
            yield finding(
                Kind.sync_beyond_end,
                f"the latest sync names offset {offset} of {side}, whose log ends at {bounds.end}: it lost records, "
                "or was deleted and created again",
            )
    for step in copy.history.steps_back:
        again = step.before[0] - step.after[0]
        copied = f"; {counted(again, 'offset')} were copied again" if again > 0 else ""
        yield finding(
            Kind.went_back,
            f"a sync {step.before[0]}→{step.before[1]} of {source} is followed by {step.after[0]}→{step.after[1]}"
            f"{copied}; MirrorMaker dropped all syncs before it",
            max(again, 0) or None,
        )
    behind = copy.target_bounds.end - 1 - latest.downstream
    if behind > 2 * tolerance.offset_lag_max:
        yield finding(
            Kind.stale_syncs,
            f"the latest sync is {counted(behind, 'offset')} behind the end of {target}: a group at the end of "
            f"{source} reads them again (MirrorMaker writes a sync after offset.lag.max={tolerance.offset_lag_max})",
            behind,
        )


def group_findings(facts: GroupFacts, tolerance: Tolerance, now_ms: int) -> Iterator[Finding]:
    checkpoint, copy = facts.checkpoint.latest, facts.copy
    start, target = checkpoint.downstream, copy.target

    def finding(kind: Kind, text: str, records: int | None = None) -> Finding:
        at = copy.source
        return Finding(kind, text, facts.group, at.topic, at.partition, checkpoint.upstream, start, records)

    if facts.checkpointed is not None and facts.checkpointed.skipped:
        lost, first = facts.checkpointed.skipped, facts.checkpointed.first_skipped
        yield finding(
            Kind.skips_records,
            f"the checkpoint sends the group from offset {checkpoint.upstream} to {start} of {target}, past "
            f"{counted(lost, 'record')} that it has not read, the first at offset {first} of the source",
            lost,
        )
    yield from (finding(*outside) for outside in _outside(start, target, copy.target_bounds))
    if (step := facts.checkpoint.step_back) is not None:
        yield finding(
            Kind.went_back,
            f"a checkpoint {step.before[0]}→{step.before[1]} is followed by {step.after[0]}→{step.after[1]}: the "
            "group went on at the source and back in the copy",
        )
    age_ms = now_ms - facts.checkpoint.at_ms
    if age_ms > tolerance.stale_ms:
        yield from (finding(Kind.stale_checkpoint, *stale) for stale in _stale(facts, age_ms // 60_000))
    repeated = 0 if facts.current is None else facts.current.repeated
    lag = max(0, copy.history.latest.upstream - facts.position)
    if repeated > 2 * (lag + tolerance.offset_lag_max):
        yield finding(
            Kind.reads_twice,
            f"the group reads {counted(repeated, 'record')} again from {start} of {target}, more than its distance "
            "from the latest sync explains: syncs between were compacted away, or are missing",
            repeated,
        )


def _stale(facts: GroupFacts, age_min: int) -> Iterator[tuple[str, int | None]]:
    checkpoint, history, current = facts.checkpoint.latest, facts.copy.history, facts.current
    due = history.translated(facts.position)
    here = f"the group is at offset {facts.position}, its checkpoint of {age_min} min ago at {checkpoint.upstream}"
    if current is not None and current.skipped and facts.position < checkpoint.upstream:
        yield (
            f"{here}: it was set back at the source, and would skip {counted(current.skipped, 'record')} in the copy",
            (current.skipped),
        )
    elif due is not None and due > checkpoint.downstream:
        text = f"{here}: the syncs allow {due} of {facts.copy.target} instead of {checkpoint.downstream}"
        yield text, None if current is None else current.repeated


def _outside(start: int, target: TopicPartition, bounds: Bounds) -> Iterator[tuple[Kind, str]]:
    reset = "the group begins by its auto.offset.reset"
    if start > bounds.end:
        yield Kind.beyond_end, f"the checkpoint is at {start} of {target}, whose log ends at {bounds.end}: {reset}"
    elif start < bounds.start:
        yield (
            Kind.before_start,
            f"the checkpoint is at {start} of {target}, whose log begins at {bounds.start}: {reset}",
        )


def missing_checkpoint(group: str, copy: CopyFacts, committed: int) -> Finding | None:
    """A finding if MirrorMaker could have translated the group's offset and has not."""
    if copy.history.nearest(committed) is None:
        return None
    size = copy.target_bounds.end - copy.target_bounds.start
    return Finding(
        Kind.no_checkpoint,
        f"the group is at offset {committed} of {copy.source} and has no checkpoint: in {copy.target} it begins by its "
        f"auto.offset.reset, at the first of {counted(size, 'offset')} or after the last",
        group,
        copy.source.topic,
        copy.source.partition,
        committed,
    )
