"""DescribeProducers, version 0 (KIP-664): the producers that a replica knows, and their open transactions there.

An open transaction has the offset of its first record, −1 means none. Followers answer from their copy, as in Apache
Kafka: ``kafka-transactions find-hanging --broker-id`` queries all replicas of a broker.

Our own tags, which Apache Kafka's clients skip, have its transactional id, if known and visible to the requester, and
this broker's verdict once it has grown old (``base.transaction_verdicts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_OFFSET, TopicName, TopicPartition
from oncelog.core.controller.topic_names import name_refusal
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.ports import FollowerLog, LeaderLog
from oncelog.handlers.broker.time_slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages import describe_producers as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker has no replica of the partition",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
}


def handle(request: wire.DescribeProducersRequest, context: Context) -> Steps[wire.DescribeProducersResponse]:
    seen: set[tuple[str, int]] = set()
    response = wire.DescribeProducersResponse()
    budget = SliceBudget(context.partitions)
    for topic in request.topics:
        name = topic.name
        indexes = [index for index in dict.fromkeys(topic.partition_indexes) if (name, index) not in seen]
        seen.update((name, index) for index in indexes)
        error_code, message = _topic_refusal(name, context)
        answer = wire.TopicResponse(name=name)
        for index in indexes:
            if error_code is not ErrorCode.NONE:
                refused = wire.PartitionResponse(partition_index=index, error_code=error_code, error_message=message)
                answer.partitions.append(refused)
            else:
                answer.partitions.append(_producers(TopicPartition(TopicName(name), index), context))
            # A partition may have thousands of producers.
            if budget.spent(1 + len(answer.partitions[-1].active_producers)):
                yield NextSlice()
        response.topics.append(answer)
    return response


def _topic_refusal(name: str, context: Context) -> tuple[ErrorCode, str | None]:
    reason = name_refusal(name)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    if not context.allows_topic(Operation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    if TopicName(name) not in context.cluster.image.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    return ErrorCode.NONE, None


def _producers(partition: TopicPartition, context: Context) -> wire.PartitionResponse:
    replica: LeaderLog | FollowerLog | ErrorCode = context.partitions.leader_log(partition)
    if replica is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        replica = context.partitions.follower_log(partition)
    answer = wire.PartitionResponse(partition_index=partition.partition)
    if isinstance(replica, ErrorCode):
        answer.error_code = replica
        return answer
    for entry in replica.log.producers.entries.values():
        first_offset = entry.transaction_first_offset
        state = wire.ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
        )
        opened = None if first_offset is None else replica.log.transactions.get(partition, entry.producer_id)
        if opened is not None:
            state.verdict = opened.verdict
            name = opened.transactional_id
            if name is not None and context.allows_transactional_id(Operation.DESCRIBE, name):
                state.transactional_id = name
        answer.active_producers.append(state)
    return answer
