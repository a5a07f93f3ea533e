"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320): the end of a leader epoch in this log.

It tells consumers after a change of leader whether the records they read still exist. Returns the largest epoch not
above the requested one, and the offset after its last record; −1 and −1 if unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages import offset_for_leader_epoch as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is older",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
}


def handle(request: wire.OffsetForLeaderEpochRequest, context: Context) -> wire.OffsetForLeaderEpochResponse:
    """Brokers may query every topic, other clients those that they may describe."""
    is_broker = context.allows_cluster_silently(Operation.CLUSTER_ACTION)
    response = wire.OffsetForLeaderEpochResponse()
    for topic in request.topics:
        allowed = is_broker or context.allows_topic(Operation.DESCRIBE, topic.topic)
        result = wire.OffsetForLeaderTopicResult(topic=topic.topic)
        for partition in topic.partitions:
            if allowed:
                answer = _end_of_epoch(TopicName(topic.topic), partition, context)
            else:
                answer = _failed(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _end_of_epoch(topic: TopicName, query: wire.OffsetForLeaderPartition, context: Context) -> wire.EpochEndOffset:
    partition = TopicPartition(topic, query.partition)
    leader = context.partitions.leader_log(partition, query.current_leader_epoch)
    if isinstance(leader, ErrorCode):
        return _failed(query, leader)
    epoch, end_offset = leader.log.epoch_end_offset(query.leader_epoch, leader.leader_epoch)
    return wire.EpochEndOffset(partition=query.partition, leader_epoch=epoch, end_offset=end_offset)


def _failed(query: wire.OffsetForLeaderPartition, error_code: ErrorCode) -> wire.EpochEndOffset:
    return wire.EpochEndOffset(partition=query.partition, error_code=error_code)
