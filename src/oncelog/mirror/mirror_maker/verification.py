"""Verifies MirrorMaker 2's translation of group offsets: reads its topics, compares them with records of both sides.

The internal topics are read before the logs' ends, and the groups' offsets last: a mirror that goes on meanwhile never
looks like a fault. Copies are read at read_committed, as a group that moves over would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.groups import log_bounds
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, wall_ms
from oncelog.client.programs.group import committed_offsets
from oncelog.mirror.group_sync import consumer_groups
from oncelog.mirror.mirror_maker.alignment import reading
from oncelog.mirror.mirror_maker.findings import (
    ORDER,
    Bounds,
    CopyFacts,
    Finding,
    GroupFacts,
    Kind,
    Tolerance,
    copy_findings,
    group_findings,
    missing_checkpoint,
)
from oncelog.mirror.mirror_maker.internal_topics import (
    HEARTBEATS,
    MirrorMakerState,
    copy_of,
    find_internal_topics,
    last_heartbeat_ms,
    read_state,
)
from oncelog.mirror.mirror_maker.sync_history import CheckpointHistory
from oncelog.mirror.mirror_maker.windows import Windows, read_fingerprints
from oncelog.mirror.settings import Cluster
from oncelog.mirror.topic_sync import topic_configs

EXCLUDED_GROUPS: Final = re.compile("console-consumer-.*|connect-.*|__.*")
"""Groups that MirrorMaker leaves out by default (``groups.exclude``)."""


@dataclass(frozen=True, slots=True)
class CopyRow:
    topic: str
    partition: int
    target: str
    syncs: int
    upstream_offset: int
    downstream_offset: int
    source_end: int
    target_end: int
    are_records_equal: bool | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group's checkpoint in one partition, and what a fail-over at this moment would mean."""

    group: str
    topic: str
    partition: int
    target: str
    committed: int | None
    """The group's offset at the source."""
    upstream_offset: int
    downstream_offset: int
    committed_at_target: int | None
    records_lost: int | None
    """None if the records around the checkpoint were not compared, like the next one."""
    records_read_twice: int | None


@dataclass(slots=True)
class MirrorMakerReport:
    source: str
    offset_syncs: str
    checkpoints: str | None
    heartbeat_ms: int | None
    copies: list[CopyRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selection:
    topics: re.Pattern[str]
    groups: re.Pattern[str] | None = None
    """None for the groups that MirrorMaker copies by default."""
    most_records: int = 100_000
    """Records read on each side for one checkpoint."""
    tolerance: Tolerance = field(default_factory=Tolerance)

    def includes_group(self, group: str) -> bool:
        if self.groups is None:
            return EXCLUDED_GROUPS.fullmatch(group) is None
        return self.groups.fullmatch(group) is not None


async def verify_mirror_maker(
    source: Cluster, target: Cluster, selection: Selection, report_progress: Callable[[int, int | None], None]
) -> MirrorMakerReport:
    """Raises ClientError."""
    async with (
        AsyncClient(source.bootstrap_servers, config=source.config) as at_source,
        AsyncClient(target.bootstrap_servers, config=target.config) as at_target,
    ):
        run = _Verification(at_source, at_target, source.alias, selection)
        return await run.run(target.alias, report_progress)


class _Verification:
    def __init__(self, source: AsyncClient, target: AsyncClient, alias: str, selection: Selection) -> None:
        self._source, self._target, self._alias, self._selection = source, target, alias, selection
        self._windows = Windows(source, target, selection.most_records)
        self._copies: dict[TopicPartition, CopyFacts] = {}
        """Copies by the target's partition."""
        self._untimed: set[str] = set()
        """Copies whose brokers set the records' times, which then differ from the source's."""
        self._report: MirrorMakerReport

    async def run(self, target_alias: str, report_progress: Callable[[int, int | None], None]) -> MirrorMakerReport:
        target_topics = {str(name) for name in await self._target.all_topics(0)}
        source_topics = {str(name) for name in await self._source.all_topics(0)}
        topics = find_internal_topics(source_topics, target_topics, self._alias, target_alias)
        heartbeat = await last_heartbeat_ms(self._target, self._alias, target_topics)
        self._report = MirrorMakerReport(self._alias, topics.syncs, topics.checkpoints, heartbeat)
        state = await read_state(self._source, self._target, topics)
        self._report.findings += (Finding(Kind.unreadable, text) for text in state.unreadable)
        await self._judge_copies(state, source_topics, target_topics)
        selected = {
            key: history
            for key, history in sorted(state.checkpoints.items())
            if self._selection.includes_group(key[0]) and self._is_in_scope(key[1], target_topics)
        }
        await self._judge_groups(selected, report_progress)
        self._report.findings.sort(key=lambda finding: (ORDER[finding.kind], -(finding.records or 0)))
        return self._report

    def _is_in_scope(self, target: TopicPartition, target_topics: set[str]) -> bool:
        if target in self._copies:
            return True
        # Without syncs the source's topic is unknown: --topics may name the copy, too.
        return target.topic not in target_topics and self._selection.topics.fullmatch(target.topic) is not None

    async def _judge_copies(self, state: MirrorMakerState, source_topics: set[str], target_topics: set[str]) -> None:
        pairs = {}
        for partition in sorted(state.syncs):
            if (
                partition.topic in source_topics
                and partition.topic != HEARTBEATS
                and self._selection.topics.fullmatch(partition.topic)
            ):
                copy = copy_of(partition.topic, self._alias, target_topics)
                if copy is None:
                    self._report.findings.append(_no_copy(partition, f"the target has no copy of {partition.topic}"))
                else:
                    pairs[partition] = TopicPartition(copy, partition.partition)
        source_bounds = await _bounds(self._source, list(pairs))
        target_bounds = await _bounds(self._target, list(pairs.values()))
        configs = await topic_configs(self._target, {partition.topic for partition in pairs.values()})
        self._untimed = {
            topic
            for topic, rows in configs.items()
            if (row := rows.get("message.timestamp.type")) is not None and row.value == "LogAppendTime"
        }
        for source, target in pairs.items():
            if source not in source_bounds or target not in target_bounds:
                continue
            history = state.syncs[source]
            facts = CopyFacts(source, target, history, source_bounds[source], target_bounds[target], None)
            equal = await self._are_equal(facts)
            facts = CopyFacts(source, target, history, source_bounds[source], target_bounds[target], equal)
            self._copies[target] = facts
            self._report.copies.append(_copy_row(facts))
            self._report.findings += copy_findings(facts, self._selection.tolerance)

    async def _are_equal(self, copy: CopyFacts) -> bool | None:
        latest, with_time = copy.history.latest, copy.target.topic not in self._untimed
        sides = (
            (self._source, copy.source, latest.upstream, copy.source_bounds),
            (self._target, copy.target, latest.downstream, copy.target_bounds),
        )
        digests = []
        for client, partition, offset, bounds in sides:
            end = min(offset + 1, bounds.end)
            records = await read_fingerprints(
                client, partition, max(offset, bounds.start), end, read_committed=False, with_time=with_time
            )
            digests += [record.digest for record in records]
        return digests[0] == digests[1] if len(digests) == 2 else None

    async def _judge_groups(
        self,
        checkpoints: Mapping[tuple[str, TopicPartition], CheckpointHistory],
        report_progress: Callable[[int, int | None], None],
    ) -> None:
        by_source = {copy.source: copy for copy in self._copies.values()}
        partitions: dict[str, list[TopicPartition]] = {
            group: [] for group in await consumer_groups(self._source) if self._selection.includes_group(group)
        }
        for group, partition in checkpoints:
            partitions.setdefault(group, []).append(partition)
        for index, group in enumerate(sorted(partitions)):
            report_progress(index, len(partitions))
            at_source = {at: value.offset for at, value in (await committed_offsets(self._source, group)).items()}
            at_target = {at: value.offset for at, value in (await committed_offsets(self._target, group)).items()}
            for partition in sorted(partitions[group]):
                await self._judge_group(group, partition, checkpoints[group, partition], at_source, at_target)
            for partition, offset in sorted(at_source.items()):
                copy = by_source.get(partition)
                if copy is None or (group, copy.target) in checkpoints:
                    continue
                if missing := missing_checkpoint(group, copy, offset):
                    self._report.findings.append(missing)

    async def _judge_group(
        self,
        group: str,
        target: TopicPartition,
        checkpoint: CheckpointHistory,
        at_source: Mapping[TopicPartition, int],
        at_target: Mapping[TopicPartition, int],
    ) -> None:
        copy = self._copies.get(target)
        if copy is None:
            text = f"the checkpoint of group {group!r} names {target.topic}, a topic that the target does not have"
            self._report.findings.append(_no_copy(target, text, group))
            return
        latest, committed = checkpoint.latest, at_source.get(copy.source)
        position = latest.upstream if committed is None else committed
        pairs = await self._windows.pairs(
            copy, max(position, latest.upstream), latest.downstream, with_time=target.topic not in self._untimed
        )
        checkpointed = None if pairs is None else reading(pairs, latest.upstream, latest.downstream)
        current = None if pairs is None else reading(pairs, position, latest.downstream)
        facts = GroupFacts(group, copy, checkpoint, committed, checkpointed, current)
        self._report.findings += group_findings(facts, self._selection.tolerance, wall_ms())
        self._report.groups.append(
            GroupRow(
                group,
                copy.source.topic,
                copy.source.partition,
                target.topic,
                committed,
                latest.upstream,
                latest.downstream,
                at_target.get(target),
                None if current is None else current.skipped,
                None if current is None else current.repeated,
            )
        )


def _no_copy(partition: TopicPartition, text: str, group: str | None = None) -> Finding:
    return Finding(Kind.no_copy, text, group, partition.topic, partition.partition)


async def _bounds(client: AsyncClient, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """The bounds of the partitions that exist."""
    starts, ends = await log_bounds(client, partitions)
    return {partition: Bounds(start, ends[partition]) for partition, start in starts.items()}


def _copy_row(copy: CopyFacts) -> CopyRow:
    latest = copy.history.latest
    return CopyRow(
        copy.source.topic,
        copy.source.partition,
        copy.target.topic,
        copy.history.count,
        latest.upstream,
        latest.downstream,
        copy.source_bounds.end,
        copy.target_bounds.end,
        copy.are_records_equal,
    )
