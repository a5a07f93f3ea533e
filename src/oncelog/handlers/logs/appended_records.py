"""Waiting for appended records that are on their way to the disk. Not an API.

Under ``log.sync.policy=commit`` a Produce with acks=1 is answered before its records can be read. Who was told of them
and asks where the log ends must not be answered with an end before them: the answer waits for the end as it was when
the question came, and no longer. Nobody waits where nothing is on its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicPartition
from oncelog.handlers.broker.waits import Steps, UntilDurable

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context


LEAST_WAIT_MS: Final = 500
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
