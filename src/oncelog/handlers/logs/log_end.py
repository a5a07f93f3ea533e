"""The end of a log, told only when it can be read and its leader is certain to lead (invariant R7).

Under ``log.sync.policy=commit`` a Produce with acks=1 is answered before its records can be read. A client that was
told of them and asks where the log ends must not be answered with an end before them: the answer waits for the end as
it was when the question came, and no longer. Nothing waits where nothing is on its way to the disk.
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
"""Least time that a disk is waited for, also where the request gives less time: by then nearly every sync is over,
and it is what a consumer's Fetch waits as a rule."""


def until_readable(ends: Mapping[TopicPartition, Offset], deadline_ms: int, context: Context) -> Steps[None]:
    """Wait until all before ``ends`` can be read, or ``deadline_ms``; not for partitions that are led here no more.
    Logs have to be asked for again afterwards."""
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
        answer.error_code = end_unknown_error(context.version) if error is ErrorCode.REQUEST_TIMED_OUT else error
        answer.old_style_offsets = []
        answer.timestamp = answer.offset = answer.leader_epoch = -1


def _has_followers(partition: TopicPartition, context: Context) -> bool:
    leader = context.partitions.leader_log(partition)
    return isinstance(leader, ErrorCode) or leader.replicas.has_followers
