"""One source mirrored to one target by one instance: the loop that looks for topics, fetches, copies and commits.

A life of the engine: the producer is initialised, which ends whatever an earlier life of this instance left open; the
share of slots is settled; their positions are read; then it copies until the share changes, something fails, or it is
to end. What can pass (a broker that is gone, a transaction that failed) costs a life and begins the next one from what
the positions topic says. What cannot is raised, in one line that says what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import AsyncClient, loop_ms, wall_ms
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.offsets import list_offsets
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import (
    BrokerRefused,
    ClientError,
    ProducerFenced,
    ProducerUnusable,
    TransactionFailed,
    UnknownTopic,
)
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.retry import Backoff
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.mirror.administration import EARLIEST, LATEST, create_topic
from oncelog.mirror.copier import Copier
from oncelog.mirror.errors import MirrorGap, SourceReplaced, TargetReplaced, TopicReplaced
from oncelog.mirror.group_sync import GroupSync
from oncelog.mirror.offset_map import MappedRun, OffsetMap
from oncelog.mirror.positions import SLOTS, CopiedPartition, Gap, Positions, positions_topic
from oncelog.mirror.progress import Progress
from oncelog.mirror.settings import Begin, Cluster, MirrorSettings, OnGap
from oncelog.mirror.share import Share
from oncelog.mirror.stored_positions import read_positions
from oncelog.mirror.topic_plan import PlannedTopic, partitions_of
from oncelog.mirror.topic_sync import TopicSync

LOG: Final = logging.getLogger("oncelog.mirror")
_POLL_MS: Final = 500
_PRUNE_MS: Final = 60_000
_FETCH: Final = FetchSettings(max_wait_ms=500, max_bytes=16 * MIB, partition_max_bytes=4 * MIB, old_formats=True)


class Engine:
    """Mirrors until ``stop`` is called, or (``until_caught_up``) what was there at the beginning is copied."""

    def __init__(
        self,
        settings: MirrorSettings,
        *,
        until_caught_up: bool = False,
        now_ms: Callable[[], int] = wall_ms,
        entropy: random.Random | None = None,
    ) -> None:
        """``now_ms`` is wall time, ``entropy`` the chance in pauses between attempts."""
        self.settings = settings
        self._entropy = entropy or random.Random()
        self.progress = Progress(settings.source.alias)
        self._topic = positions_topic(settings.source.alias)
        self._until_caught_up = until_caught_up
        self._now_ms = now_ms
        self._stopping = asyncio.Event()
        self._slots = SLOTS
        self._goal: dict[TopicPartition, int] | None = None

    def stop(self) -> None:
        """Bring the open transaction to its end, then return from ``run``."""
        self._stopping.set()

    async def run(self) -> None:
        """Mirror. Raises ClientError for what does not pass."""
        source_to, target_to = self.settings.source, self.settings.target
        backoff, attempt = Backoff(200, 5000), 0
        async with self._client(source_to) as source, self._client(target_to) as target:
            while not self._stopping.is_set():
                copied = self.progress.transactions
                try:
                    await self._live(source, target)
                except ClientError as error:
                    if not _may_pass(error, source, target):
                        raise
                    attempt = 0 if self.progress.transactions > copied else attempt + 1
                    self.progress.failed(error)
                    LOG.warning("mirror of %s: %s; going on from what is committed", source_to.alias, error)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(backoff.delay_ms(attempt) / 1000):
                            await self._stopping.wait()

    def _client(self, to: Cluster) -> AsyncClient:
        return AsyncClient(to.bootstrap_servers, config=to.config, entropy=self._entropy, now_ms=self._now_ms)

    async def _live(self, source: AsyncClient, target: AsyncClient) -> None:
        """One life: see the module."""
        settings = self.settings
        await self._ensure_positions(target)
        transaction = TransactionSettings(settings.transactional_id, settings.transaction_timeout_ms)
        producer = AsyncTransactionalProducer(
            target, transaction, ProducerSettings(batch_bytes=16 * 1024), buffer_bytes=settings.buffer_bytes
        )
        share = Share(target, settings, self._topic)
        ended = False
        try:
            async with producer:
                await producer.initialize()
                while not self._stopping.is_set():
                    owned = await share.settle(_POLL_MS)
                    if owned is None:
                        continue
                    positions = await read_positions(target, self._topic, owned, self._slots)
                    worker = _Worker(self, source, target, producer, share, positions, owned)
                    try:
                        await worker.work()
                    finally:
                        await worker.close()
                    share.release()
            ended = True
        finally:
            await (share.leave() if ended else share.close())

    async def _ensure_positions(self, target: AsyncClient) -> None:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 * 1024 * 1024)}
        await create_topic(target, self._topic, SLOTS, self.settings.replication_factor, configs)
        self._slots = len((await target.topic(self._topic)).partitions)

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self._slots

    @property
    def is_stopping(self) -> bool:
        """True once ``stop`` was called."""
        return self._stopping.is_set()

    def caught_up(self, positions: Positions, goal: dict[TopicPartition, int]) -> None:
        """Stop, if that was asked for and every position is at its goal."""
        if not self._until_caught_up:
            return
        if self._goal is None:
            self._goal = goal
        at = {partition: copied.offsets.position for partition, copied in positions.partitions.items()}
        if all(at.get(partition, end) >= end for partition, end in self._goal.items()):
            self.stop()

    @property
    def needs_goal(self) -> bool:
        """True while it is not known yet where the sources end."""
        return self._until_caught_up and self._goal is None

    def now_ms(self) -> int:
        """Wall time in milliseconds."""
        return self._now_ms()


class _Worker:
    """The work on one share, until it is over."""

    def __init__(
        self,
        engine: Engine,
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
        self._consumer = AsyncConsumer(source, replace(_FETCH, read_committed=engine.settings.read_committed))
        self._copier = Copier(
            producer,
            engine.settings,
            positions_topic(engine.settings.source.alias),
            engine.slots,
            lambda: share.metadata,
            engine.progress,
            engine.now_ms,
        )
        self._groups = GroupSync(engine.settings, source, target, self._copier)
        self._refresh_due_ms = 0
        self._groups_due_ms = 0
        self._prune_due_ms = loop_ms() + _PRUNE_MS

    async def close(self) -> None:
        await self._consumer.close()

    async def work(self) -> None:
        """Copy while the share is valid and the engine is not to stop; then bring the transaction to its end."""
        while self._share.is_valid and not self._engine.is_stopping:
            if loop_ms() >= self._refresh_due_ms:
                await self._refresh()
                self._refresh_due_ms = loop_ms() + self._settings.refresh_interval_ms
            await self._fetch()
            if self._copier.is_open:
                await self._producer.poll()
            self._copier.note_idle(list(self._positions.partitions.values()))
            if self._copier.due_in_ms == 0:
                await self._commit()
            if self._groups.is_wanted and loop_ms() >= self._groups_due_ms and not self._copier.is_open:
                await self._sync_groups()
            await self._check_goal()
        self._copier.note_idle(list(self._positions.partitions.values()), now=True)
        if self._copier.is_open:
            await self._commit()
        if self._engine.is_stopping and self._groups.is_wanted:
            await self._sync_groups()

    async def _fetch(self) -> None:
        due = self._copier.due_in_ms
        wait_ms = _POLL_MS if due is None else min(due, _POLL_MS)
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
        if copied.topic_id and any(fetched.topic_id) and fetched.topic_id.hex() != copied.topic_id:
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

    async def _commit(self) -> None:
        await self._copier.commit()

    async def _sync_groups(self) -> None:
        await self._groups.sync(self._positions)
        self._engine.progress.groups = self._groups.rows
        self._groups_due_ms = loop_ms() + self._settings.groups_interval_ms

    async def _check_goal(self) -> None:
        """With ``until_caught_up``: note where the source ends, and stop when that is reached."""
        goal: dict[TopicPartition, int] = {}
        if self._engine.needs_goal:
            copied = self._positions.partitions
            wanted = dict.fromkeys((one for one in copied if one.topic in self._topics.plan.topics), LATEST)
            goal = await list_offsets(self._source, wanted, read_committed=self._settings.read_committed)
        self._engine.caught_up(self._positions, goal)

    async def _refresh(self) -> None:
        """Look for topics and partitions, and fetch those that are new and ready at the target."""
        plan = await self._topics.refresh(self._owned, self._engine.slots)
        starts: dict[TopicPartition, int] = {}
        wanted = partitions_of(plan, self._owned, self._engine.slots)
        self._consumer.drop([one for one in self._positions.partitions if one.topic not in plan.topics])
        await self._clean_up()
        for partition in wanted:
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
            if self._consumer.positions.of(partition) is None:
                starts[partition] = copied.offsets.position
        if starts:
            self._consumer.seek(starts)
        self._engine.progress.cycles = plan.cycles
        self._engine.progress.owned(
            self._positions.partitions[one] for one in wanted if one in self._positions.partitions
        )

    async def _begin(self, topic: PlannedTopic, partition: TopicPartition) -> CopiedPartition:
        """A partition that has no position yet: where it begins, here and there."""
        time = EARLIEST if self._settings.begin is Begin.earliest else LATEST
        source = await list_offsets(self._source, {partition: time}, read_committed=self._settings.read_committed)
        copied = await self._new(topic, partition, source[partition])
        self._copier.begin_partition(copied)
        return copied

    async def _begin_anew(self, topic: PlannedTopic, copied: CopiedPartition) -> CopiedPartition:
        """A partition whose topic was deleted and made anew at the source. Raises TopicReplaced if not wanted."""
        if self._settings.on_gap is not OnGap.record:
            raise TopicReplaced(self._settings.source.alias, copied, topic.topic_id)
        LOG.warning(
            "topic %s of %s was made anew: copying it from its beginning", topic.name, self._settings.source.alias
        )
        if self._copier.is_open:
            await self._commit()
        partition = copied.partition
        self._positions.before.setdefault(partition, []).append(copied)
        self._consumer.drop([partition])
        first = (await list_offsets(self._source, {partition: EARLIEST}))[partition]
        anew = await self._new(topic, partition, first)
        self._copier.begin_partition(anew)
        return anew

    async def _begin_another_copy(self, topic: PlannedTopic, copied: CopiedPartition) -> CopiedPartition:
        """A partition whose copy was deleted and made anew at the target. Raises TargetReplaced if not wanted."""
        if self._settings.on_gap is not OnGap.record:
            raise TargetReplaced(copied)
        LOG.warning("topic %s at the target was made anew: copying it from the beginning", topic.target)
        if self._copier.is_open:
            await self._commit()
        self._consumer.drop([copied.partition])
        self._copier.forget(copied, copied.keys())
        return await self._begin(topic, copied.partition)

    async def _clean_up(self) -> None:
        """Delete what is known of topics that are gone on both sides, and now and then maps of what the target has
        deleted."""
        for partition, copied in list(self._positions.partitions.items()):
            if self._settings.delete_topics and self._topics.is_gone(partition.topic):
                self._copier.forget(copied, copied.keys())
                del self._positions.partitions[partition]
        if loop_ms() < self._prune_due_ms or self._copier.is_open:
            return
        self._prune_due_ms = loop_ms() + _PRUNE_MS
        known = {TopicPartition(TopicName(one.target), one.partition.partition): one for one in self._copies()}
        for there, start in (await list_offsets(self._target, dict.fromkeys(known, EARLIEST))).items():
            self._copier.forget(known[there], known[there].prune(start))

    def _copies(self) -> list[CopiedPartition]:
        """The copies that are at the target and have more than one map record."""
        topics = self._topics.plan.topics
        found = [one for one in self._positions.partitions.values() if len(one.chunk_firsts) > 1]
        return [
            one
            for one in found
            if one.partition.topic in topics
            and self._topics.is_ready(topics[one.partition.topic], one.partition.partition)
        ]

    async def _new(self, topic: PlannedTopic, partition: TopicPartition, first: int) -> CopiedPartition:
        there = TopicPartition(topic.target, partition.partition)
        end = (await list_offsets(self._target, {there: LATEST}))[there]
        offsets = OffsetMap(first, MappedRun(first, end, 0))
        copied = CopiedPartition(partition, topic.topic_id, topic.target, self._topics.source_cluster, offsets)
        copied.target_id = self._topics.target_id(topic.target)
        self._positions.partitions[partition] = copied
        return copied

    async def _out_of_range(self, copied: CopiedPartition) -> None:
        """The position is no longer in the source's log. Raises MirrorGap, unless gaps are to be recorded."""
        partition, position = copied.partition, copied.offsets.position
        first = (await list_offsets(self._source, {partition: EARLIEST}))[partition]
        end = (await list_offsets(self._source, {partition: LATEST}))[partition]
        if self._copier.is_open:
            await self._commit()
        info = self._source.view.topics.get(partition.topic)
        if info is not None and copied.topic_id and bytes(info.topic_id).hex() != copied.topic_id:
            self._refresh_due_ms = 0
            return
        position = copied.offsets.position
        if first <= position <= end:
            self._consumer.seek({partition: position})
            return
        if self._settings.on_gap is not OnGap.record or first < position:
            raise MirrorGap(self._settings.source.alias, partition, position, first, end)
        LOG.warning("%s", MirrorGap(self._settings.source.alias, partition, position, first, end))
        self._copier.record_gap(copied, Gap(partition, position, first))
        await self._commit()
        self._consumer.seek({partition: first})


def _may_pass(error: ClientError, source: AsyncClient, target: AsyncClient) -> bool:
    """True if another life may succeed after ``error``."""
    if isinstance(error, ProducerFenced) or (
        isinstance(error, BrokerRefused) and error.code == ErrorCode.FENCED_INSTANCE_ID
    ):
        return False
    if isinstance(error, UnknownTopic):
        return True  # deleted a moment ago, here or there: the next look at the topics shows it
    if isinstance(error, TransactionFailed | ProducerUnusable):
        return error.code not in _FINAL
    return source.may_pass(error) and target.may_pass(error)  # a cluster that was never reached is a wrong address


_FINAL: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_VERSION,
)
