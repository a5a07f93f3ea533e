"""This broker's share coordinators: shards of ``__share_group_state`` (KIP-932).

Requests come from the leaders of share partitions and from group coordinators: from this broker as messages, from
others as APIs 83 to 87. A request waits while its shard loads; Apache Kafka has it come again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import SHARE_GROUP_STATE, LeaderEpoch, Offset, TopicId, TopicPartition
from oncelog.core.share_state.settings import SETTING_KEYS, ShareStateSettings
from oncelog.node.brokers.messages import BrokerMessages, Cancel, ChangeShareState, OnAnswer
from oncelog.node.coordinators.hosted_shards import HostedShard
from oncelog.node.coordinators.runner import Coordinators, CoordinatorServices

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.share_state.model import ShareStateDecision, StateRequest
    from oncelog.core.share_state.shard import ShareStateShard
    from oncelog.handlers.broker.shares import LedSharePartition
    from oncelog.handlers.broker.waits import KeepShareStates
    from oncelog.node.coordinators.log_batches import ApplyBatch
    from oncelog.node.kernel.tasks import Task


def share_state_settings(config: BrokerConfig) -> ShareStateSettings:
    return ShareStateSettings(**{field: int(config.get(key)) for field, key in SETTING_KEYS.items()})


class ShareStateCoordinators(Coordinators["ShareStateShard", "ShareStateDecision"]):
    """See ``runner``."""

    topic = SHARE_GROUP_STATE
    subject = "the state of share partition"
    remedy = "Lower share.partition.max.record.locks of its group."

    def __init__(self, settings: ShareStateSettings, services: CoordinatorServices, messages: BrokerMessages) -> None:
        super().__init__(services._replace(append_timeout_ms=settings.write_timeout_ms))
        self._settings = settings
        self.write_count = 0
        """Decisions that wrote records (Kafka's write-total)."""
        self.pruned_offsets: dict[int, Offset] = {}
        """Log starts that pruning has set, by partition (Kafka's last-pruned-offset)."""
        messages.set_receiver(ChangeShareState, self._receive)

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> ShareStateShard:
        from oncelog.core.share_state.shard import ShareStateShard

        return ShareStateShard(partition, self._settings, self._partition_count_of)

    def recorded(self) -> Iterator[LedSharePartition]:
        """The share partitions of this broker's shards, as their next leaders will begin with them."""
        from oncelog.core.share.model import ShareSettings, ShareState, StateBatch
        from oncelog.core.share.partition import SharePartition
        from oncelog.handlers.broker.shares import LedSharePartition

        for hosted in self._hosted.values():
            for key, state in hosted.shard.states().items() if hosted.shard.is_loaded else ():
                topic = self._metadata.image.topic_of_id(key.topic_id)
                if topic is None:
                    continue
                led = LedSharePartition(key, TopicPartition(topic.name, key.partition), LeaderEpoch(state.leader_epoch))
                # Not known before the first write: there are no batches then.
                start = Offset(max(0, state.start_offset))
                batches = [StateBatch(*batch) for batch in state.batches]
                led.machine = SharePartition(ShareState(state.state_epoch, start, -1, batches), ShareSettings())
                yield led

    def _partition_count_of(self, topic_id: TopicId) -> int:
        topic = self._metadata.image.topic_of_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _decide(self, shard: ShareStateShard, wait: StateRequest, token: int, now_ms: int) -> ShareStateDecision:
        return shard.decide(wait, now_ms)

    def _load_wait_ms(self) -> int:
        return self._settings.write_timeout_ms

    def _replayer(self, shard: ShareStateShard) -> ApplyBatch:
        from oncelog.node.coordinators.log_batches import share_state_replayer

        return share_state_replayer(shard)

    def _write(self, hosted: HostedShard[ShareStateShard], decision: ShareStateDecision, now_ms: int) -> None:
        super()._write(hosted, decision, now_ms)
        self.write_count += 1

    def _apply(self, shard: ShareStateShard, decision: ShareStateDecision, base_offset: Offset) -> None:
        for index, (key, value) in enumerate(decision.records):
            shard.apply(key, value, Offset(base_offset + index))

    def _visible_end_offset(self, hosted: HostedShard[ShareStateShard], decision: ShareStateDecision) -> Offset | None:
        # Every reply shows the present state, a refusal its epochs.
        return None if hosted.log is None else hosted.log.log_end_offset

    def _follow_up(self, hosted: HostedShard[ShareStateShard], decision: ShareStateDecision, now_ms: int) -> None:
        if decision.prune_before is not None:
            log = self._log(hosted)
            # The snapshots that make older records redundant have to be durable first.
            prune = partial(self._prune, hosted, decision.prune_before)
            self._group_commit.when_durable(log, log.log_end_offset, prune)

    def _prune(self, hosted: HostedShard[ShareStateShard], before: Offset) -> None:
        log = self._log(hosted)
        if not hosted.is_led or before <= log.log_start_offset:
            return
        try:
            self._partitions.persist_log_starts({hosted.partition: before})
        except OSError:
            return  # the disk's health is watched elsewhere; later snapshots prune more
        log.raise_log_start(before)
        self._partitions.readable_changed(hosted.partition)
        self.pruned_offsets[hosted.shard.partition] = before

    def _resign(self, index: int) -> None:
        super()._resign(index)
        self.pruned_offsets.pop(index, None)

    def topics_deleted(self, topics: Collection[TopicId]) -> None:
        now_ms = self._deadlines.now_ms
        for hosted in self._hosted.values():
            if hosted.shard.is_loaded:
                self._carry_out(hosted, hosted.shard.topics_deleted(topics), None, now_ms)

    def park(self, task: Task, wait: KeepShareStates) -> None:
        self.decide_each(task, ((request.key.coordinator_key, request) for request in wait.requests))

    def _receive(self, message: ChangeShareState, on_answer: OnAnswer) -> Cancel:
        return self.ask(message.request.key.coordinator_key, message.request, on_answer)
