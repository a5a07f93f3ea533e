"""Translates group offsets on demand, from source to target or back; shows them, and commits them on request.

The rules of ``offset_map`` and ``group_sync`` apply; without ``force`` no group with an offset of its own is moved, and
never one with members. Back at the source, a group only moves forward.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.mirror.group_sync import consumer_groups, has_members
from oncelog.mirror.positions_topic import CopiedPartition, Positions
from oncelog.mirror.progress import GroupOffsetRow, GroupState
from oncelog.mirror.settings import Cluster
from oncelog.mirror.stored_positions import stored_positions


async def translate(
    source: Cluster, target: Cluster, groups: re.Pattern[str], *, back: bool, apply: bool, force: bool
) -> list[GroupOffsetRow]:
    """The rows of all groups whose names match; with ``apply``, after committing. Raises ClientError."""
    async with (
        AsyncClient(source.bootstrap_servers, config=source.config) as at_source,
        AsyncClient(target.bootstrap_servers, config=target.config) as at_target,
    ):
        positions = await stored_positions(at_target, source.alias)
        from_, to = (at_target, at_source) if back else (at_source, at_target)
        rows: list[GroupOffsetRow] = []
        for group in await consumer_groups(from_):
            if groups.fullmatch(group) and not group.startswith("oncelog-mirror-"):
                rows += await _translate_group(group, positions, from_, to, back=back, apply=apply, force=force)
        return rows


async def _translate_group(
    group: str, positions: Positions, from_: AsyncClient, to: AsyncClient, *, back: bool, apply: bool, force: bool
) -> list[GroupOffsetRow]:
    pairs = _pairs(positions, back)
    source_offsets = {
        partition: committed
        for partition, committed in (await committed_offsets(from_, group)).items()
        if partition in pairs
    }
    other_offsets = await committed_offsets(to, group) if source_offsets else {}
    in_use = bool(source_offsets) and await has_members(to, group)
    rows: list[GroupOffsetRow] = []
    moves: dict[TopicPartition, Committed] = {}
    for partition, committed in sorted(source_offsets.items()):
        copied, other = pairs[partition]
        translated = (copied.offsets.to_source if back else copied.offsets.to_target)(committed.offset)
        now = other_offsets[other].offset if other in other_offsets else None
        state = _state(copied, group, translated, now, back=back, force=force)
        if in_use and state is GroupState.movable:
            state = GroupState.taken
        if apply and state is GroupState.movable and translated is not None:
            moves[other] = Committed(translated, -1, committed.metadata)
            now, state = translated, GroupState.synced
        rows.append(
            GroupOffsetRow(
                group, partition.topic, partition.partition, committed.offset, other.topic, translated, now, state
            )
        )
    await commit_offsets(to, group, moves)
    return rows


def _pairs(positions: Positions, back: bool) -> Mapping[TopicPartition, tuple[CopiedPartition, TopicPartition]]:
    """Partitions that groups read from, each with its copy and the partition on the other side."""
    pairs = {}
    for source, copied in positions.partitions.items():
        target = TopicPartition(TopicName(copied.target), source.partition)
        pairs[target if back else source] = copied, (source if back else target)
    return pairs


def _state(
    copied: CopiedPartition, group: str, translated: int | None, now: int | None, *, back: bool, force: bool
) -> GroupState:
    if translated is None:
        return GroupState.ahead
    if now == translated:
        return GroupState.synced
    if now is None or force:
        return GroupState.movable
    if back:
        return GroupState.movable if translated > now else GroupState.moved_on
    return GroupState.movable if now == copied.groups.get(group) else GroupState.moved_on
