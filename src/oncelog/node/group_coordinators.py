"""The group coordinators of this broker: shards of ``__consumer_offsets``."""

from __future__ import annotations

from oncelog.base.ids import LeaderEpoch, ProducerId
from oncelog.core.groups.model import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.node.coordinators import Coordinators
from oncelog.node.deadlines import Deadlines
from oncelog.node.durability import Durability
from oncelog.node.replaying import ApplyBatch, group_replayer
from oncelog.node.tasks import Runnable


class GroupCoordinators(Coordinators[GroupShard]):
    """See ``coordinators``. ``append_timeout_ms`` is ``offsets.commit.timeout.ms``."""

    def __init__(
        self,
        settings: GroupSettings,
        append_timeout_ms: int,
        deadlines: Deadlines,
        runnable: Runnable,
        durability: Durability,
    ) -> None:
        super().__init__(append_timeout_ms, deadlines, runnable, durability)
        self._settings = settings

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> GroupShard:
        return GroupShard(partition, self._settings)

    def _replayer(self, shard: GroupShard) -> ApplyBatch:
        return group_replayer(shard)

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None:
        """A marker was written to a partition of ``__consumer_offsets``: its pending offsets become visible or go.
        A shard that is being loaded will read the marker from its log."""
        led = self._led.get(partition)
        if led is not None and led.shard.is_loaded:
            led.shard.apply_end_transaction(producer_id, committed=committed)
