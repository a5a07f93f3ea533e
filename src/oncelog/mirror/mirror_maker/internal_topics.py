"""Finds MirrorMaker 2's internal topics and copies by their names, and reads the topics to their ends.

``mm2-offset-syncs.TARGET.internal`` is at the source, or with ``offset-syncs.topic.location=target`` as
``mm2-offset-syncs.SOURCE.internal`` at the target; ``SOURCE.checkpoints.internal`` is at the target. The separator is a
setting (``replication.policy.separator``), so it is taken from the names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.mirror_maker.internal_records import parse_checkpoint, parse_heartbeat, parse_offset_sync
from oncelog.mirror.mirror_maker.sync_history import CheckpointHistory, SyncHistory
from oncelog.mirror.stored_positions import read_to_end
from oncelog.records.errors import CorruptBatch

_SYNCS: Final = re.compile(r"mm2-offset-syncs(?P<separator>[._-]+)(?P<alias>.+)(?P=separator)internal")
_CHECKPOINTS: Final = re.compile(r"(?P<alias>.+?)(?P<separator>[._-]+)checkpoints(?P=separator)internal")
_SEPARATOR: Final = re.compile(r"[._-]+")
HEARTBEATS: Final = "heartbeats"
_LAST_HEARTBEATS: Final = 100
_KEPT_UNREADABLE: Final = 20


class InternalTopics(NamedTuple):
    syncs: TopicName
    are_syncs_at_target: bool
    checkpoints: TopicName | None
    """None if the target has no such topic: then no group has a translated offset."""


@dataclass(slots=True)
class MirrorMakerState:
    """The contents of the internal topics, as far as they concern one source."""

    syncs: dict[TopicPartition, SyncHistory] = field(default_factory=dict)
    checkpoints: dict[tuple[str, TopicPartition], CheckpointHistory] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def add_unreadable(self, place: str, error: CorruptBatch) -> None:
        if len(self.unreadable) < _KEPT_UNREADABLE:
            self.unreadable.append(f"{place}: {error}")


def find_internal_topics(
    source_topics: Collection[str], target_topics: Collection[str], source: str, target: str
) -> InternalTopics:
    """Raises ClientError if no topic of offset syncs fits the aliases, or several do."""
    at_source = {match["alias"]: name for name in source_topics if (match := _SYNCS.fullmatch(name))}
    at_target = {match["alias"]: name for name in target_topics if (match := _SYNCS.fullmatch(name))}
    checkpoints = [
        name for name in target_topics if (match := _CHECKPOINTS.fullmatch(name)) and match["alias"] == source
    ]
    only = TopicName(min(checkpoints)) if checkpoints else None
    if source in at_target and (target not in at_source or not target):
        return InternalTopics(TopicName(at_target[source]), True, only)
    if target:
        at_source = {alias: name for alias, name in at_source.items() if alias == target}
    if len(at_source) == 1:
        return InternalTopics(TopicName(next(iter(at_source.values()))), False, only)
    if at_source:
        raise ClientError(
            f"MirrorMaker copies {source!r} to {', '.join(sorted(at_source))}: name the target as one of them with "
            "--target ALIAS=HOST:PORT"
        )
    raise ClientError(
        f"no offset syncs of MirrorMaker: the source has no topic mm2-offset-syncs.{target or 'ALIAS'}.internal, the "
        f"target no mm2-offset-syncs.{source}.internal; give both clusters their aliases of MirrorMaker's "
        "configuration with --source ALIAS=… and --target ALIAS=…"
    )


def copy_of(topic: str, alias: str, target_topics: Collection[str]) -> TopicName | None:
    """The topic at the target that has the copies: ``a.orders``, else ``orders`` (IdentityReplicationPolicy)."""
    for name in sorted(target_topics):
        middle = name.removeprefix(alias).removesuffix(topic)
        if len(name) == len(alias) + len(middle) + len(topic) and _SEPARATOR.fullmatch(middle):
            return TopicName(name)
    return TopicName(topic) if topic in target_topics else None


async def read_state(source: AsyncClient, target: AsyncClient, topics: InternalTopics) -> MirrorMakerState:
    """Read both topics. Raises ClientError."""
    state = MirrorMakerState()
    syncs_client = target if topics.are_syncs_at_target else source
    async for record in read_to_end(syncs_client, [TopicPartition(topics.syncs, 0)], read_committed=False):
        try:
            sync = parse_offset_sync(record.key, record.value)
        except CorruptBatch as error:
            state.add_unreadable(f"{topics.syncs} at offset {record.offset}", error)
            continue
        if sync is not None:
            state.syncs.setdefault(sync.partition, SyncHistory()).add(sync)
    if topics.checkpoints is not None:
        await _read_checkpoints(target, topics.checkpoints, state)
    return state


async def _read_checkpoints(target: AsyncClient, topic: TopicName, state: MirrorMakerState) -> None:
    # A MirrorMaker that died may have left a transaction open.
    async for record in read_to_end(target, [TopicPartition(topic, 0)], wait_for_open=False):
        try:
            checkpoint = parse_checkpoint(record.key, record.value)
        except CorruptBatch as error:
            state.add_unreadable(f"{topic} at offset {record.offset}", error)
            continue
        if checkpoint is None:
            continue
        key = checkpoint.group, checkpoint.partition
        if (history := state.checkpoints.get(key)) is None:
            state.checkpoints[key] = CheckpointHistory(checkpoint, record.timestamp)
        else:
            history.add(checkpoint, record.timestamp)


async def last_heartbeat_ms(target: AsyncClient, alias: str, target_topics: Collection[str]) -> int | None:
    """The time of the newest heartbeat that was copied from the source, else of those that MirrorMaker emits at the
    target for it; None without any."""
    copied = [name for name in target_topics if name.startswith(alias) and copy_of(HEARTBEATS, alias, [name])]
    for topic in (*copied, *(name for name in target_topics if name == HEARTBEATS)):
        partition = TopicPartition(TopicName(topic), 0)
        start = (await offsets_at(target, {partition: EARLIEST}))[partition]
        end = (await offsets_at(target, {partition: LATEST}))[partition]
        times = []
        starts = {partition: max(start, end - _LAST_HEARTBEATS)}
        async for record in read_to_end(target, [partition], starts, read_committed=False):
            with suppress(CorruptBatch):
                heartbeat = parse_heartbeat(record.key, record.value)
                if heartbeat is not None and (topic != HEARTBEATS or heartbeat.source == alias):
                    times.append(heartbeat.at_ms)
        if times:
            return max(times)
    return None
