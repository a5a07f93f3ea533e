"""The end of a log for clients: returned once it is readable and its leader certain to lead (invariant R7).

Under ``log.sync.policy=commit`` acks=1 is answered before its records are readable. Their client must not get an end
before them, so the request waits for the end as it was on arrival, and no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicPartition
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilConfirmed, UntilDurable
from oncelog.wire.messages.list_offsets import ListOffsetsPartitionResponse

MIN_WAIT_MS: Final = 500
"""A disk is waited for at least this long, even if the request allows less: nearly every sync ends by then, and a
consumer's Fetch waits as long by default."""


def until_readable(ends: Mapping[TopicPartition, Offset], deadline_ms: int, context: Context) -> Steps[None]:
    """Wait until everything before ``ends`` is readable, the leadership is lost, or ``deadline_ms``. Resolve the logs
    again.
    """
    missing = _missing(ends, context)
    while missing and context.now_ms < deadline_ms:
        yield UntilDurable(missing, deadline_ms, holds_connection=True)
        missing = _missing(missing, context)


def _missing(ends: Mapping[TopicPartition, Offset], context: Context) -> dict[TopicPartition, Offset]:
    return {partition: end for partition, end in ends.items() if _is_missing(partition, end, context)}


def _is_missing(partition: TopicPartition, end: Offset, context: Context) -> bool:
    leader = context.partitions.leader_log(partition)
    return not isinstance(leader, ErrorCode) and leader.log.high_watermark < end <= leader.log.log_end_offset


_OFFSET_NOT_AVAILABLE_SINCE: Final = 5


def end_unknown_error(version: int) -> ErrorCode:
    """The error of a leader that does not know the readable end (KIP-207)."""
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= _OFFSET_NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE


def until_confirmed(
    answers: Mapping[TopicPartition, ListOffsetsPartitionResponse], asked_ms: int, context: Context
) -> Steps[None]:
    """Wait for proof that this broker led the partitions when their ends were read, at most
    ``oncelog.transaction.wait.ms`` after ``asked_ms``. Answers without it become errors.
    """
    unproven = [
        partition
        for partition, answer in answers.items()
        if not answer.error_code and _has_followers(partition, context)
    ]
    if not unproven:
        return
    deadline_ms = asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    unconfirmed: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed(unproven, deadline_ms)
    for partition, error in unconfirmed.items():
        answer = answers[partition]
        answer.error_code = end_unknown_error(context.version) if error is ErrorCode.REQUEST_TIMED_OUT else error
        answer.old_style_offsets = []
        answer.timestamp = answer.offset = answer.leader_epoch = -1


def _has_followers(partition: TopicPartition, context: Context) -> bool:
    leader = context.partitions.leader_log(partition)
    return isinstance(leader, ErrorCode) or leader.replicas.has_followers
