"""APIs 83 to 87 (KIP-932): the state of share partitions, read and written at their share coordinator by brokers.

InitializeShareGroupState 0, ReadShareGroupState 0, WriteShareGroupState 0 and 1, DeleteShareGroupState 0,
ReadShareGroupStateSummary 0 and 1. A message without a group, topics or partitions gets an empty response, as from
Apache Kafka. A reply is durable: it shows nothing that a power cut could take back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.core.share_state.model import StateReply
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import KeepShareStates, NextSlice, Steps
from oncelog.handlers.share.state_messages import SharePartition, refused, requests_of, response_to

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not a broker: ClusterAction is needed",
    ErrorCode.INVALID_REQUEST: "a negative partition or epoch, a batch that ends before it begins, or a share "
    "partition that is read or written before it was initialized",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no topic has the id, or it has fewer partitions",
    ErrorCode.FENCED_LEADER_EPOCH: "a later leader of the partition has read the state",
    ErrorCode.FENCED_STATE_EPOCH: "the state was initialized in a later epoch",
    ErrorCode.NOT_COORDINATOR: "this broker does not lead the key's partition of __share_group_state",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator has not read its log within share.coordinator.write."
    "timeout.ms",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the state is not durable within share.coordinator.write.timeout.ms",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the state is too large for a record",
}

_CLUSTER_AUTHORIZATION_FAILED: Final = "Cluster authorization failed."

REQUESTS_PER_SLICE: Final = 250
"""Requests decided before other connections have their turn: each appends a record of its own."""


def handle(message: Any, context: Context) -> Steps[Any]:
    replies: dict[SharePartition, StateReply] = {}
    if not context.allows_cluster(Operation.CLUSTER_ACTION):
        denied = StateReply(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _CLUSTER_AUTHORIZATION_FAILED)
        replies = {
            (topic.topic_id, fields.partition): denied for topic in message.topics for fields in topic.partitions
        }
    elif message.group_id and message.topics and all(topic.partitions for topic in message.topics):
        requests = requests_of(message)
        for start in range(0, len(requests), REQUESTS_PER_SLICE):
            if start:
                yield NextSlice()
            part = requests[start : start + REQUESTS_PER_SLICE]
            answers = yield KeepShareStates(part)
            for request, answer in zip(part, answers, strict=True):
                reply = refused(request, answer.error_code) if isinstance(answer, CoordinatorRefusal) else answer
                replies[request.key.topic_id, request.key.partition] = reply
    return response_to(message, replies)
