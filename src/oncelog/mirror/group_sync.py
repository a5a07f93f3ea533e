"""Offsets of the source's groups, translated and committed for the groups of the same name at the target.

Rules:
1. Only offsets up to what is copied are translated, by the maps of the partitions that this instance owns.
2. A group that has gone on at the target is left alone, for good: it is ours to move only while it has no members and
   its offset there is the one that the mirror committed last (which the positions topic has), or it has none.
3. Rule 2 is checked while the new offsets are pending in a transaction. A consumer that begins meanwhile waits for the
   decision, and one that commits meanwhile comes later in the log of offsets and wins. So however long the mirror is
   stopped between its question and its answer, nobody is taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
"""The pause before groups that the target refused are tried again."""
_REFUSALS: Final = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Answers to offsets of one group; others may be committed."""


class GroupSync:
    """Translates and commits; one round a call of ``sync``."""

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
        """Commit what has changed since the last round, all of it in one transaction."""
        rows: list[GroupOffsetRow] = []
        moves: list[GroupMove] = []
        refused: dict[str, str] = {}
        for group in await consumer_groups(self._source):
            if not self._settings.wants_group(group):
                continue
            try:
                moves += await self._look_at(group, positions, rows)
            except BrokerRefused as error:
                if error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise
                refused[group] = str(error)
        fresh = [move for move in moves if move.group not in self._refused]
        if fresh and (news := await self._commit(fresh)):
            refused |= news
            self._retry_due_ms = loop_ms() + _RETRY_MS
        refused |= await self._try_again([move for move in moves if move.group in self._refused])
        for group in refused.keys() - self._refused.keys():
            LOG.warning("offsets of group %r are not translated: %s", group, refused[group])
        self._refused = refused
        self.rows = [replace(row, state=GroupState.refused) if row.group in refused else row for row in rows]

    async def _try_again(self, moves: Sequence[GroupMove]) -> dict[str, str]:
        """Commit groups that were refused before, each in its own transaction, now and then; the refused groups."""
        groups = dict.fromkeys(move.group for move in moves)
        if loop_ms() < self._retry_due_ms:
            return {group: self._refused[group] for group in groups}
        refused: dict[str, str] = {}
        for group in groups:
            refused |= await self._commit([move for move in moves if move.group == group])
        self._retry_due_ms = loop_ms() + _RETRY_MS
        return refused

    async def _commit(self, moves: Sequence[GroupMove]) -> dict[str, str]:
        """Commit all in one transaction, or each group in its own if the target refuses one; the refused groups."""
        try:
            done = await self._copier.commit_groups(moves, lambda: self._are_ours(moves))
        except TransactionFailed as error:
            if error.code not in _REFUSALS:
                raise
            await self._copier.abandon()
            groups = list(dict.fromkeys(move.group for move in moves))
            if len(groups) == 1:
                return {groups[0]: str(error)}
            refused: dict[str, str] = {}
            for group in groups:
                refused |= await self._commit([move for move in moves if move.group == group])
            return refused
        if done:
            for move in moves:
                move.copied.groups[move.group] = move.to.offset
        return {}

    async def _look_at(self, group: str, positions: Positions, rows: list[GroupOffsetRow]) -> list[GroupMove]:
        moves = []
        found = await committed_offsets(self._source, group)
        ours = {p: one for p, one in found.items() if p in positions.partitions}
        changed = any(
            positions.partitions[p].offsets.to_target(our.offset) != positions.partitions[p].groups.get(group)
            for p, our in ours.items()
        )
        there = await committed_offsets(self._target, group) if ours else {}
        taken = changed and await has_members(self._target, group)
        for partition, committed in ours.items():
            copied = positions.partitions[partition]
            translated = copied.offsets.to_target(committed.offset)
            target = TopicPartition(TopicName(copied.target), partition.partition)
            at = there[target].offset if target in there else None
            before = copied.groups.get(group)
            state = GroupState.synced
            if translated is None:
                state = GroupState.ahead
            elif at is not None and (at != before if before is not None else at != translated):
                state = GroupState.moved_on
            elif at != translated:
                if taken:
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
        """True if every group is still to be moved; asked while the new offsets are pending."""
        for group in dict.fromkeys(move.group for move in moves):
            if await has_members(self._target, group):
                return False
            there = await committed_offsets(self._target, group)
            for move in moves:
                if move.group == group and move.target in there:
                    before = move.copied.groups.get(group)
                    if there[move.target].offset != before:
                        return False
        return True


async def consumer_groups(client: AsyncClient) -> list[str]:
    """Names of all consumer groups, of every coordinator."""
    return [row.group for row in await list_groups(client) if row.protocol_type in ("", "consumer")]


async def has_members(client: AsyncClient, group: str) -> bool:
    """True if the group has members, of either protocol, or is waiting for them."""
    try:
        described = await describe_group(client, group)
    except BrokerRefused as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    return bool(described.members) or described.state not in ("Empty", "")
