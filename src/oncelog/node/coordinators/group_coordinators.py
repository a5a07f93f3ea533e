"""The group coordinators of this broker: shards of ``__consumer_offsets``."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import LeaderEpoch, ProducerId
from oncelog.core.groups.model import Decision, GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.node.coordinators.hosted_shard import HostedShard
from oncelog.node.coordinators.loading import ApplyBatch, group_replayer
from oncelog.node.coordinators.runner import Coordinators
from oncelog.node.deadlines import Deadlines
from oncelog.node.partitions.group_commit import GroupCommit
from oncelog.node.requests.tasks import Runnable
from oncelog.records.builder import build_batch
from oncelog.records.record import Record

_BASE_SEQUENCE: Final = 0
"""Of every batch of transactional offsets, as in Apache Kafka: coordinators number nothing, and nobody checks it."""
_OF_PRODUCERS: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
"""What the log says of a producer is told as it is."""


class GroupCoordinators(Coordinators[GroupShard]):
    """See ``coordinators``. ``append_timeout_ms`` is ``offsets.commit.timeout.ms``."""

    def __init__(
        self,
        settings: GroupSettings,
        append_timeout_ms: int,
        deadlines: Deadlines,
        runnable: Runnable,
        durability: GroupCommit,
    ) -> None:
        super().__init__(append_timeout_ms, deadlines, runnable, durability)
        self._settings = settings

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> GroupShard:
        return GroupShard(partition, self._settings)

    def _replayer(self, shard: GroupShard) -> ApplyBatch:
        return group_replayer(shard)

    def _write(self, led: HostedShard[GroupShard], decision: Decision, now_ms: int) -> None:
        """See the base class; a decision in a transaction is a batch of its producer."""
        producer = decision.producer
        if producer is None:
            super()._write(led, decision, now_ms)
            return
        batch = build_batch(
            [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(decision.records)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=_BASE_SEQUENCE,
            transactional=True,
        )
        led.log.append(
            memoryview(batch),
            now_ms=now_ms,
            leader_epoch=led.leader_epoch,
            internal=True,
            verified=True,
            transactional_id=producer.transactional_id,
        )
        for key, value in decision.records:
            led.shard.apply(key, value, producer_id=producer.producer_id)

    def _told(self, error_code: ErrorCode) -> ErrorCode:
        return error_code if error_code in _OF_PRODUCERS else super()._told(error_code)

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None:
        """A marker was written to a partition of ``__consumer_offsets``: its pending offsets become visible or go.
        A shard that is being loaded will read the marker from its log."""
        led = self._led.get(partition)
        if led is not None and led.shard.is_loaded:
            led.shard.apply_end_transaction(producer_id, committed=committed)
