"""Which log a request about a partition goes to, and why none: shared by the handlers that read logs (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_LEADER_EPOCH, TopicPartition
from oncelog.handlers.support.context import Broker

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


def led_log(
    broker: Broker, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
) -> PartitionLog | ErrorCode:
    """The log of a partition that this broker leads, or the error to answer.

    ``current_leader_epoch`` is what the client believes (−1: it does not say): an older one is fenced, a newer one
    unknown here.
    """
    log = broker.log(partition)
    if log is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if exists(broker, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if current_leader_epoch != NO_LEADER_EPOCH:
        leader_epoch = broker.leader_epoch(partition)
        if current_leader_epoch < leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return log


def exists(broker: Broker, partition: TopicPartition) -> bool:
    """Whether the cluster has such a partition."""
    topic = broker.image.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)
