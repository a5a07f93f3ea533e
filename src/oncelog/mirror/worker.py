"""Does an instance's work on its slots: discovers topics, fetches, copies, commits, and moves groups.

A worker lasts as long as its assignment, positions and transactions are valid. Any failure ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from dataclasses import replace
from typing import Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import BrokerRefused, TransactionFailed
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.copier import Copier
from oncelog.mirror.errors import MirrorGap, SourceReplaced, TargetReplaced, TopicReplaced
from oncelog.mirror.group_sync import GroupSync
from oncelog.mirror.offset_map import MappedRun, OffsetMap
from oncelog.mirror.positions_topic import CopiedPartition, Gap, Positions, positions_topic
from oncelog.mirror.progress import Progress
from oncelog.mirror.refused_partitions import Trials
from oncelog.mirror.schema_sync import SchemaSync
from oncelog.mirror.settings import Begin, MirrorSettings, OnGap
from oncelog.mirror.topic_plan import PlannedTopic, partitions_of
from oncelog.mirror.topic_sync import TopicSync
from oncelog.mirror.work_assignment import Share

LOG: Final = logging.getLogger("oncelog.mirror")
POLL_MS: Final = 500
_PRUNE_MS: Final = 60_000
_FETCH: Final = FetchSettings(max_wait_ms=500, max_bytes=16 * MIB, partition_max_bytes=4 * MIB, old_formats=True)


class Mirroring(Protocol):
    """The engine as its worker sees it."""

    settings: MirrorSettings
    progress: Progress
    schemas: SchemaSync | None

    @property
    def slots(self) -> int:
        """The number of slots."""

    @property
    def is_stopping(self) -> bool:
        """True once it is to end."""

    @property
    def needs_goal(self) -> bool:
        """True while it is not known yet where the sources end."""

    def caught_up(self, positions: Positions, goal: dict[TopicPartition, int], standing: Set[TopicPartition]) -> None:
        """Stop, if that was asked for and every position is at its goal, but for partitions that stand."""

    def now_ms(self) -> int:
        """Wall time in milliseconds."""


class Worker:
    def __init__(
        self,
        engine: Mirroring,
        source: AsyncClient,
        target: AsyncClient,
        producer: AsyncTransactionalProducer,
        share: Share,
        positions: Positions,
        owned: tuple[int, ...],
    ) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._source = source
        self._target = target
        self._producer = producer
        self._share = share
        self._positions = positions
        self._owned = owned
        self._topics = TopicSync(engine.settings, source, target)
        engine.progress.refusals = {}
        engine.progress.topic_refusals = self._topics.refusals
        self._consumer = AsyncConsumer(source, replace(_FETCH, read_committed=engine.settings.read_committed))
        self._copier = Copier(
            producer,
            engine.settings,
            positions_topic(engine.settings.source.alias),
            engine.slots,
            lambda: share.metadata,
            engine.progress,
            engine.now_ms,
            None if engine.schemas is None else engine.schemas.sync,
        )
        self._trials = Trials(engine.settings, source, self._copier, self._topics, engine.progress, _FETCH)
        self._groups = GroupSync(engine.settings, source, target, self._copier)
        self._refresh_due_ms = 0
        self._groups_due_ms = 0
        self._prune_due_ms = loop_ms() + _PRUNE_MS

    async def close(self) -> None:
        await self._consumer.close()

    async def work(self) -> None:
        """Copy while the assignment is valid and the engine is not stopping, then finish the transaction."""
        while self._share.is_valid and not self._engine.is_stopping:
            try:
                await self._run_round()
            except TransactionFailed as error:
                await self._set_aside(error)
        # The final positions are stored even if no record was copied.
        self._copier.note_idle(list(self._positions.partitions.values()), now=True)
        try:
            if self._copier.is_open:
                await self._copier.commit()
        except TransactionFailed as error:
            await self._set_aside(error)
            if self._copier.is_open:
                await self._copier.commit()
        if self._engine.is_stopping and self._groups.is_wanted:
            await self._sync_groups()

    async def _run_round(self) -> None:
        if loop_ms() >= self._refresh_due_ms:
            await self._refresh()
            if self._engine.schemas is not None:
                await self._engine.schemas.sync()
            self._refresh_due_ms = loop_ms() + self._settings.refresh_interval_ms
        await self._fetch()
        if self._copier.is_open:
            await self._producer.poll()
        self._copier.note_idle(list(self._positions.partitions.values()))
        if self._copier.due_in_ms == 0:
            await self._copier.commit()
        if not self._copier.is_open:
            over = await self._trials.run_due(list(self._positions.partitions.values()))
            self._consumer.seek({copied.partition: copied.offsets.position for copied in over})
        if self._groups.is_wanted and loop_ms() >= self._groups_due_ms and not self._copier.is_open:
            await self._sync_groups()
        await self._check_goal()

    async def _set_aside(self, error: TransactionFailed) -> None:
        """Abort the transaction and leave the refused partitions to ``Trials``. Raises ``error`` if none is refused."""
        refusals = await self._copier.abandon()
        if not refusals:
            raise error
        self._consumer.drop([copied.partition for copied, _ in refusals])
        positions = {tp: copied.offsets.position for tp, copied in self._positions.partitions.items()}
        self._consumer.seek(
            {tp: position for tp, position in positions.items() if self._consumer.positions.of(tp) is not None}
        )
        for copied, refusal in refusals:
            self._trials.refuse(copied, refusal)

    async def _fetch(self) -> None:
        due = self._copier.due_in_ms
        wait_ms = POLL_MS if due is None else min(due, POLL_MS)
        if not len(self._consumer.positions):
            await asyncio.wait([self._share.news], timeout=wait_ms / 1000)
            return
        for fetched in await self._consumer.poll(wait_ms):
            await self._take(fetched)

    async def _take(self, fetched: Fetched) -> None:
        copied = self._positions.partitions[fetched.partition]
        topic = self._topics.plan.topics.get(fetched.partition.topic)
        if topic is None:
            return
        # The next refresh decides how to continue.
        if copied.is_replaced(fetched.topic_id):
            self._consumer.drop([fetched.partition])
            self._refresh_due_ms = 0
            return
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(copied)
        elif fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} of {self._settings.source.alias}")
        else:
            await self._copier.take(fetched, copied, self._topics.limits(copied.target))
            self._engine.progress.fetched(fetched)

    async def _sync_groups(self) -> None:
        await self._groups.sync(self._positions)
        self._engine.progress.groups = self._groups.rows
        self._groups_due_ms = loop_ms() + self._settings.groups_interval_ms

    async def _check_goal(self) -> None:
        """With ``until_caught_up``: record where the source ends, and stop there."""
        goal: dict[TopicPartition, int] = {}
        if self._engine.needs_goal:
            copied = self._positions.partitions
            latest = dict.fromkeys((tp for tp in copied if tp.topic in self._topics.plan.topics), LATEST)
            goal = await offsets_at(self._source, latest, read_committed=self._settings.read_committed)
        self._engine.caught_up(self._positions, goal, self._trials.standing(self._positions.partitions.values()))

    async def _refresh(self) -> None:
        """Find partitions, and fetch those that are new and ready at the target."""
        plan = await self._topics.refresh(self._owned, self._engine.slots)
        starts: dict[TopicPartition, int] = {}
        ours = partitions_of(plan, self._owned, self._engine.slots)
        self._consumer.drop(
            [partition for partition in self._positions.partitions if partition.topic not in plan.topics]
        )
        await self._clean_up()
        for partition in ours:
            topic = plan.topics[partition.topic]
            copied = self._positions.partitions.get(partition)
            if not self._topics.is_ready(topic, partition.partition):
                continue
            if copied is None:
                copied = await self._begin(topic, partition)
            elif copied.topic_id != topic.topic_id:
                copied = await self._begin_anew(topic, copied)
            elif copied.cluster != self._topics.source_cluster:
                raise SourceReplaced(self._settings.source.alias, copied.cluster, self._topics.source_cluster)
            elif copied.target_id not in ("", self._topics.target_id(topic.target)):
                copied = await self._begin_another_copy(topic, copied)
            if self._consumer.positions.of(partition) is None and not self._trials.resume(copied):
                starts[partition] = copied.offsets.position
        self._trials.keep(ours)
        if starts:
            self._consumer.seek(starts)
        self._engine.progress.cycles = plan.cycles
        self._engine.progress.owned(self._positions.partitions[tp] for tp in ours if tp in self._positions.partitions)

    async def _begin(self, topic: PlannedTopic, partition: TopicPartition) -> CopiedPartition:
        """Decide where a partition without a position begins at source and target."""
        time = EARLIEST if self._settings.begin is Begin.earliest else LATEST
        source = await offsets_at(self._source, {partition: time}, read_committed=self._settings.read_committed)
        copied = await self._new(topic, partition, source[partition])
        self._copier.begin_partition(copied)
        return copied

    async def _begin_anew(self, topic: PlannedTopic, copied: CopiedPartition) -> CopiedPartition:
        """The source topic was deleted and created again. Raises TopicReplaced if not configured."""
        if self._settings.on_gap is not OnGap.record:
            raise TopicReplaced(self._settings.source.alias, copied, topic.topic_id)
        LOG.warning(
            "topic %s of %s was created again: copying it from its beginning", topic.name, self._settings.source.alias
        )
        if self._copier.is_open:
            await self._copier.commit()
        partition = copied.partition
        self._positions.before.setdefault(partition, []).append(copied)
        self._consumer.drop([partition])
        first = (await offsets_at(self._source, {partition: EARLIEST}))[partition]
        anew = await self._new(topic, partition, first)
        self._copier.begin_partition(anew)
        return anew

    async def _begin_another_copy(self, topic: PlannedTopic, copied: CopiedPartition) -> CopiedPartition:
        """The copy was deleted and created again. Raises TargetReplaced if not configured."""
        if self._settings.on_gap is not OnGap.record:
            raise TargetReplaced(copied)
        LOG.warning("topic %s at the target was created again: copying it from the beginning", topic.target)
        if self._copier.is_open:
            await self._copier.commit()
        self._consumer.drop([copied.partition])
        self._copier.forget(copied, copied.keys())
        return await self._begin(topic, copied.partition)

    async def _clean_up(self) -> None:
        """Delete the state of topics that are gone on both sides and, at intervals, maps of records that the target has
        deleted.
        """
        for partition, copied in list(self._positions.partitions.items()):
            if self._settings.delete_topics and self._topics.is_gone(partition.topic):
                self._copier.forget(copied, copied.keys())
                del self._positions.partitions[partition]
        if loop_ms() < self._prune_due_ms or self._copier.is_open:
            return
        self._prune_due_ms = loop_ms() + _PRUNE_MS
        copies_by_target = {
            TopicPartition(TopicName(copy.target), copy.partition.partition): copy for copy in self._copies()
        }
        for target_partition, start in (
            await offsets_at(self._target, dict.fromkeys(copies_by_target, EARLIEST))
        ).items():
            self._copier.forget(copies_by_target[target_partition], copies_by_target[target_partition].prune(start))

    def _copies(self) -> list[CopiedPartition]:
        topics = self._topics.plan.topics
        candidates = [partition for partition in self._positions.partitions.values() if len(partition.chunk_firsts) > 1]
        return [
            copied
            for copied in candidates
            if copied.partition.topic in topics
            and self._topics.is_ready(topics[copied.partition.topic], copied.partition.partition)
        ]

    async def _new(self, topic: PlannedTopic, partition: TopicPartition, first: int) -> CopiedPartition:
        target_partition = TopicPartition(topic.target, partition.partition)
        end = (await offsets_at(self._target, {target_partition: LATEST}))[target_partition]
        offsets = OffsetMap(first, MappedRun(first, end, 0))
        copied = CopiedPartition(partition, topic.topic_id, topic.target, self._topics.source_cluster, offsets)
        copied.target_id = self._topics.target_id(topic.target)
        self._positions.partitions[partition] = copied
        return copied

    async def _out_of_range(self, copied: CopiedPartition) -> None:
        """Handle a position outside the source's log. Raises MirrorGap, unless gaps are to be recorded."""
        partition, position = copied.partition, copied.offsets.position
        first = (await offsets_at(self._source, {partition: EARLIEST}))[partition]
        end = (await offsets_at(self._source, {partition: LATEST}))[partition]
        if self._copier.is_open:
            await self._copier.commit()
        info = self._source.view.topics.get(partition.topic)
        if info is not None and copied.is_replaced(bytes(info.topic_id)):
            self._refresh_due_ms = 0
            return
        # The commit may have moved the position.
        position = copied.offsets.position
        if first <= position <= end:
            self._consumer.seek({partition: position})
            return
        if self._settings.on_gap is not OnGap.record or first < position:
            raise MirrorGap(self._settings.source.alias, partition, position, first, end)
        LOG.warning("%s", MirrorGap(self._settings.source.alias, partition, position, first, end))
        self._copier.record_gap(copied, Gap(partition, position, first))
        await self._copier.commit()
        self._consumer.seek({partition: first})
