"""Translates the offsets of the source's groups, and commits them for the groups of the same name at the target.

1. Only offsets within the copied range are translated, by the maps of the partitions that this instance owns.
2. A group that has moved on at the target is left alone for good: it is moved only while it has no members and its
   offset there is the one that the mirror committed last (stored in the positions topic), or none.
3. Rule 2 is checked while the new offsets are pending in a transaction. A consumer that starts meanwhile waits for the
   outcome; one that commits meanwhile comes later in the offsets log and wins. However long the mirror pauses in
   between, no group is moved back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from oncelog.admin.groups import describe_group, list_groups
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.errors import BrokerRefused, TransactionFailed
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import committed_offsets
from oncelog.mirror.copier import Copier, GroupMove
from oncelog.mirror.positions_topic import Positions
from oncelog.mirror.progress import GroupOffsetRow, GroupState
from oncelog.mirror.settings import MirrorSettings

LOG: Final = logging.getLogger("oncelog.mirror")
_RETRY_MS: Final = 60_000
"""The pause before refused groups are retried."""
_REFUSALS: Final = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Refusals that concern one group; others may still be committed."""


class GroupSync:
    """Translates and commits offsets, one round for each call of ``sync``."""

    def __init__(self, settings: MirrorSettings, source: AsyncClient, target: AsyncClient, copier: Copier) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._copier = copier
        self._refused: dict[str, str] = {}
        self._retry_due_ms = 0
        self.rows: list[GroupOffsetRow] = []

    @property
    def is_wanted(self) -> bool:
        return self._settings.groups is not None

    async def sync(self, positions: Positions) -> None:
        """Commit what changed since the last round, in one transaction."""
        rows: list[GroupOffsetRow] = []
        moves: list[GroupMove] = []
        refused: dict[str, str] = {}
        for group in await consumer_groups(self._source):
            if not self._settings.wants_group(group):
                continue
            try:
                moves += await self._plan_moves(group, positions, rows)
            except BrokerRefused as error:
                if error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise
                refused[group] = str(error)
        fresh = [move for move in moves if move.group not in self._refused]
        if fresh and (news := await self._commit(fresh)):
            refused |= news
            self._retry_due_ms = loop_ms() + _RETRY_MS
        refused |= await self._retry_refused([move for move in moves if move.group in self._refused])
        for group in refused.keys() - self._refused.keys():
            LOG.warning("offsets of group %r are not translated: %s", group, refused[group])
        self._refused = refused
        self.rows = [replace(row, state=GroupState.refused) if row.group in refused else row for row in rows]

    async def _retry_refused(self, moves: Sequence[GroupMove]) -> dict[str, str]:
        """Retry refused groups, each in its own transaction, at intervals. Returns those still refused."""
        groups = dict.fromkeys(move.group for move in moves)
        if loop_ms() < self._retry_due_ms:
            return {group: self._refused[group] for group in groups}
        refused = await self._commit_each(groups, moves)
        self._retry_due_ms = loop_ms() + _RETRY_MS
        return refused

    async def _commit_each(self, groups: Iterable[str], moves: Sequence[GroupMove]) -> dict[str, str]:
        refused: dict[str, str] = {}
        for group in groups:
            refused |= await self._commit([move for move in moves if move.group == group])
        return refused

    async def _commit(self, moves: Sequence[GroupMove]) -> dict[str, str]:
        """Commit all in one transaction, or each group in its own if one is refused. Returns the refused groups."""
        try:
            done = await self._copier.commit_groups(moves, lambda: self._are_ours(moves))
        except TransactionFailed as error:
            if error.code not in _REFUSALS:
                raise
            await self._copier.abandon()
            groups = list(dict.fromkeys(move.group for move in moves))
            if len(groups) == 1:
                return {groups[0]: str(error)}
            return await self._commit_each(groups, moves)
        if done:
            for move in moves:
                move.copied.groups[move.group] = move.to.offset
        return {}

    async def _plan_moves(self, group: str, positions: Positions, rows: list[GroupOffsetRow]) -> list[GroupMove]:
        moves = []
        source_offsets = await committed_offsets(self._source, group)
        ours = {
            partition: committed for partition, committed in source_offsets.items() if partition in positions.partitions
        }
        changed = any(
            positions.partitions[partition].offsets.to_target(our.offset)
            != positions.partitions[partition].groups.get(group)
            for partition, our in ours.items()
        )
        target_offsets = await committed_offsets(self._target, group) if ours else {}
        in_use = changed and await has_members(self._target, group)
        for partition, committed in ours.items():
            copied = positions.partitions[partition]
            translated = copied.offsets.to_target(committed.offset)
            target = TopicPartition(TopicName(copied.target), partition.partition)
            at = target_offsets[target].offset if target in target_offsets else None
            before = copied.groups.get(group)
            state = GroupState.synced
            if translated is None:
                state = GroupState.ahead
            elif at is not None and (at != before if before is not None else at != translated):
                state = GroupState.moved_on
            elif at != translated:
                if in_use:
                    state = GroupState.taken
                else:
                    moves.append(GroupMove(group, copied, Committed(translated, -1, committed.metadata)))
                    at = translated
            rows.append(
                GroupOffsetRow(
                    group, partition.topic, partition.partition, committed.offset, copied.target, translated, at, state
                )
            )
        return moves

    async def _are_ours(self, moves: Sequence[GroupMove]) -> bool:
        for group in dict.fromkeys(move.group for move in moves):
            if await has_members(self._target, group):
                return False
            target_offsets = await committed_offsets(self._target, group)
            for move in moves:
                if move.group == group and move.target in target_offsets:
                    before = move.copied.groups.get(group)
                    if target_offsets[move.target].offset != before:
                        return False
        return True


async def consumer_groups(client: AsyncClient) -> list[str]:
    return [row.group for row in await list_groups(client) if row.protocol_type in ("", "consumer")]


async def has_members(client: AsyncClient, group: str) -> bool:
    """True if the group, of either protocol, has members or waits for them."""
    try:
        described = await describe_group(client, group)
    except BrokerRefused as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    return bool(described.members) or described.state not in ("Empty", "")
