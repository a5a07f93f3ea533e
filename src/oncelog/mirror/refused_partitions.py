"""Copies partitions with a refused record, in transactions of their own. ``refusals`` has the rules."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import TransactionFailed
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.requests import LATEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.copier import Copier
from oncelog.mirror.errors import refusal_row
from oncelog.mirror.positions_topic import CopiedPartition
from oncelog.mirror.progress import Progress
from oncelog.mirror.refusals import BatchRefusal, Trial
from oncelog.mirror.settings import MirrorSettings
from oncelog.mirror.topic_sync import TopicSync

LOG: Final = logging.getLogger("oncelog.mirror")
_POLL_MS: Final = 1_000


class Trials:
    def __init__(
        self,
        settings: MirrorSettings,
        source: AsyncClient,
        copier: Copier,
        topics: TopicSync,
        progress: Progress,
        fetch: FetchSettings,
    ) -> None:
        self._settings = settings
        self._source = source
        self._copier = copier
        self._topics = topics
        self._progress = progress
        self._fetch = replace(fetch, max_wait_ms=0)
        self._trials: dict[TopicPartition, Trial] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._trials

    def standing(self, partitions: Iterable[CopiedPartition]) -> set[TopicPartition]:
        return {
            copied.partition
            for copied in partitions
            if copied.partition in self._trials and self._trials[copied.partition].stands(copied.offsets.position)
        }

    def resume(self, copied: CopiedPartition) -> bool:
        """Continue a refusal that an earlier worker stored; False without one."""
        if copied.refused is None:  # perhaps of an earlier incarnation of the topic
            self._forget(copied.partition)
            return False
        if copied.partition not in self._trials:
            self._trials[copied.partition] = Trial(copied.refused)
            LOG.warning("%s", self._show(copied))
        return True

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in set(self._trials).difference(partitions):
            self._forget(partition)

    def refuse(self, copied: CopiedPartition, refusal: BatchRefusal) -> None:
        """Record a refusal. It is stored in the positions topic with the next transaction."""
        trial = self._trials.setdefault(copied.partition, Trial(refusal.refused, refusal.is_exact))
        trial.refuse(refusal, loop_ms())
        trial.config = self._topics.config_of(copied.target)
        if copied.refused is None or copied.refused[:2] != trial.refused[:2]:
            copied.refused = trial.refused
            self._copier.begin_partition(copied)
            if trial.is_exact:
                LOG.warning("%s", self._show(copied))
        self._show(copied)

    async def run_due(self, partitions: Iterable[CopiedPartition]) -> list[CopiedPartition]:
        """Try to continue the partitions that are due. Returns those whose refusal is over. No transaction may be open.
        Raises ClientError.
        """
        over = []
        for copied in partitions:
            trial = self._trials.get(copied.partition)
            if trial is None or copied.partition.topic not in self._topics.plan.topics:
                continue
            if trial.config != self._topics.config_of(copied.target):
                # Rule 3: a changed configuration may accept the record.
                trial.due_ms = 0
            if trial.is_due(copied.offsets.position, loop_ms()) and not self._copier.is_open:
                await self._attempt(copied, trial)
                if copied.partition not in self._trials:
                    over.append(copied)
        return over

    async def _attempt(self, copied: CopiedPartition, trial: Trial) -> None:
        fetched = await self._fetched(copied, trial)
        if fetched is None:
            return
        trial_end = trial.end_offset(copied.offsets.position)
        limits = self._topics.limits(copied.target)
        largest = min(limits.max_batch_bytes, trial.limit_bytes)
        fetched = fetched._replace(next_offset=min(fetched.next_offset, trial_end))
        try:
            await self._copier.take(fetched, copied, replace(limits, max_batch_bytes=largest, end_offset=trial_end))
            await self._copier.flush()
            is_over = trial.passed(fetched.next_offset)
            copied.refused = None if is_over else trial.refused
            if not self._copier.is_open:
                self._copier.begin_partition(copied)
            await self._copier.commit()
        except TransactionFailed:
            refusals = await self._copier.abandon()
            if not refusals:
                raise
            self.refuse(*refusals[0])
            return
        if is_over:
            self._over(copied)

    async def _fetched(self, copied: CopiedPartition, trial: Trial) -> Fetched | None:
        """The records from the position on; None if there are none or they are late."""
        partition, position = copied.partition, copied.offsets.position
        committed = self._settings.read_committed
        end = (await offsets_at(self._source, {partition: LATEST}, read_committed=committed))[partition]
        if position >= end:
            self._over(copied)
            return None
        async with AsyncConsumer(self._source, self._fetch) as consumer:
            await consumer.assign({partition: position})
            for fetched in await consumer.poll(_POLL_MS):
                if not fetched.error_code and not copied.is_replaced(fetched.topic_id):
                    return fetched
                self._over(copied)  # the worker meets the same error or topic id, and knows what it means
                return None
        trial.not_before_ms = loop_ms() + _POLL_MS
        return None

    def _over(self, copied: CopiedPartition) -> None:
        self._forget(copied.partition)
        LOG.info("%s of %s is copied again", copied.partition, self._settings.source.alias)
        if copied.refused is not None:
            copied.refused = None
            self._copier.begin_partition(copied)

    def _forget(self, partition: TopicPartition) -> None:
        self._trials.pop(partition, None)
        self._progress.refusals.pop(partition, None)

    def _show(self, copied: CopiedPartition) -> str:
        target = TopicPartition(TopicName(copied.target), copied.partition.partition)
        trial = self._trials[copied.partition]
        row = refusal_row(self._settings.source.alias, copied.partition, target, trial.refused)
        self._progress.refusals[copied.partition] = row
        return row.text
