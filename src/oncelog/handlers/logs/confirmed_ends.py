"""Answers of ListOffsets that depend on where a log ends: told only by a broker that leads still (invariant R7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilConfirmed
from oncelog.wire.messages.list_offsets import ListOffsetsPartitionResponse

_OFFSET_NOT_AVAILABLE_SINCE: Final = 5


def end_not_known(version: int) -> ErrorCode:
    """The error of a leader that cannot tell what may be read (KIP-207)."""
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= _OFFSET_NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE


def until_confirmed(
    answers: Mapping[TopicPartition, ListOffsetsPartitionResponse], asked_ms: int, context: Context
) -> Steps[None]:
    """Wait until it is certain that this broker led the partitions when their ends were read, at most
    ``oncelog.transaction.wait.ms`` from ``asked_ms`` on, and turn the answers of which it is not into errors."""
    asked = [each for each, answer in answers.items() if not answer.error_code and _has_followers(each, context)]
    if not asked:
        return
    deadline_ms = asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    unconfirmed: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed(asked, deadline_ms)
    for partition, error in unconfirmed.items():
        answer = answers[partition]
        answer.error_code = end_not_known(context.version) if error is ErrorCode.REQUEST_TIMED_OUT else error
        answer.old_style_offsets = []
        answer.timestamp = answer.offset = answer.leader_epoch = -1


def _has_followers(partition: TopicPartition, context: Context) -> bool:
    leader = context.partitions.leader_log(partition)
    return isinstance(leader, ErrorCode) or leader.replicas.has_followers
