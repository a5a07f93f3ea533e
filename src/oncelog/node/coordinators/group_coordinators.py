"""This broker's group coordinators: shards of ``__consumer_offsets``."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, LeaderEpoch, Offset, ProducerId
from oncelog.core.groups.settings import SETTING_KEYS, GroupSettings
from oncelog.node.cluster.group_settings import LimitsOfGroups, ShareSettingsOfGroups
from oncelog.node.coordinators.group_topics import GroupTopics
from oncelog.node.coordinators.hosted_shards import HostedShard
from oncelog.node.coordinators.runner import Coordinators, CoordinatorServices
from oncelog.node.kernel.events import Report

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.groups.member_quota import MemberMemory
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard
    from oncelog.handlers.broker.waits import Coordinate
    from oncelog.node.coordinators.log_batches import ApplyBatch
    from oncelog.node.kernel.tasks import Task

# Errors of the log about a producer, which its client gets unchanged.
_PRODUCER_ERRORS: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
_WARNING_AGAIN_MS: Final = 600_000


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Settings by the names that the shard uses, in its units."""
    return GroupSettings(**{field: int(config.get(key)) * factor for field, (key, factor) in SETTING_KEYS.items()})


class GroupCoordinators(Coordinators["GroupShard", "GroupDecision"]):
    """Implements ``handlers.broker.ports.Groups``; see ``runner``."""

    topic = CONSUMER_OFFSETS
    subject = "group"
    remedy = "Let its members subscribe to fewer topics or commit fewer offsets at once, or divide them into groups."

    def __init__(self, settings: GroupSettings, services: CoordinatorServices) -> None:
        super().__init__(services)
        self._settings = settings
        self._limits = LimitsOfGroups(services.metadata, services.outbox)
        self.share_settings = ShareSettingsOfGroups(services.metadata, services.outbox)
        self._topics = GroupTopics(services.metadata)
        self.rebalances: Counter[str] = Counter()
        """Rebalances by protocol since the broker's start."""
        self._warned_ms: int | None = None

    @cached_property
    def _member_memory(self) -> MemberMemory:
        from oncelog.core.groups.member_quota import MemberMemory

        return MemberMemory()

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> GroupShard:
        from oncelog.core.groups.shard import GroupShard

        return GroupShard(
            partition,
            self._settings,
            self._member_memory,
            self._limits.of,
            self._topics,
            self.rebalances,
            self.share_settings.of,
        )

    def _decide(self, shard: GroupShard, wait: Coordinate, token: int, now_ms: int) -> GroupDecision:
        return wait.decide(shard, token, now_ms)

    def _replayer(self, shard: GroupShard) -> ApplyBatch:
        from oncelog.node.coordinators.log_batches import group_replayer

        return group_replayer(shard)

    def _write(self, hosted: HostedShard[GroupShard], decision: GroupDecision, now_ms: int) -> None:
        producer = decision.producer
        if producer is None:
            super()._write(hosted, decision, now_ms)
            return
        # The records are a batch of the producer's transaction.
        from oncelog.node.coordinators.log_batches import transactional_batch_of
        from oncelog.storage.log.append import append_batch

        append_batch(
            self._log(hosted),
            transactional_batch_of(decision.records, now_ms, producer),
            now_ms=now_ms,
            leader_epoch=hosted.leader_epoch,
            internal=True,
            verified=True,
            transactional_id=producer.transactional_id,
        )
        for key, value in decision.records:
            hosted.shard.apply(key, value, producer_id=producer.producer_id)

    def _follow_up(self, hosted: HostedShard[GroupShard], decision: GroupDecision, now_ms: int) -> None:
        if decision.follow_up is not None:
            decision.follow_up(now_ms)
        if decision.warning is not None:
            self._warn(decision.warning, now_ms)

    def _warn(self, warning: str, now_ms: int) -> None:
        # Each such group looks for room every half minute.
        if self._warned_ms is None or now_ms - self._warned_ms >= _WARNING_AGAIN_MS:
            self._warned_ms = now_ms
            self._outbox.effects.append(Report("warning", warning))

    def _visible_end_offset(self, hosted: HostedShard[GroupShard], decision: GroupDecision) -> Offset | None:
        return self._log(hosted).log_end_offset if decision.waits_for_pending else None

    def _error_for_client(self, error_code: ErrorCode) -> ErrorCode:
        return error_code if error_code in _PRODUCER_ERRORS else super()._error_for_client(error_code)

    def park(self, task: Task, wait: Coordinate) -> None:
        self.decide(task, wait.group_id, wait)

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None:
        """A marker was written to a partition of ``__consumer_offsets``: its pending offsets become visible or are
        dropped."""
        hosted = self._hosted.get(partition)
        # A shard that is still loading will read the marker from its log.
        if hosted is not None and hosted.shard.is_loaded:
            hosted.shard.apply_end_transaction(producer_id, committed=committed)
