"""Decides how to continue a partition with a record that the target refuses. Pure.

Everything before the record is copied, nothing behind it. Until the target accepts it, the partition is copied in
transactions of its own, so that a refusal aborts no other partition.

1. The records before the refused one are copied first.
2. If the target did not say which record of a batch it refuses, the next attempt's batches are an eighth as large, down
   to one record.
3. The refused record is retried alone, after growing pauses, and at once if the topic's configuration changed. Once it
   is accepted, the records behind it are tried. The refusal is over when all fetched records are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import INT64_MAX
from oncelog.client.machine.pending_batch import Failed
from oncelog.client.machine.producer import ABOUT_RECORDS
from oncelog.client.machine.retry import Backoff
from oncelog.mirror.framing import Frame, Run

REFUSALS: Final = ABOUT_RECORDS | {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""Errors about a batch's topic or records; other partitions may still be copied."""
_ABOUT_TOPIC: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors that any record of the topic would get: smaller batches do not help."""
_PAUSES: Final = Backoff(2_000, 60_000)
_SHRINK_FACTOR: Final = 8
_LONGEST_MESSAGE: Final = 500


class Refused(NamedTuple):
    """The source offset of the first refused record, and the target's error."""

    offset: int
    code: int
    message: str | None


class BatchRefusal(NamedTuple):
    """A refusal of one batch. If it is not exact, the refused record is somewhere before ``frame_end``."""

    refused: Refused
    is_exact: bool
    frame_bytes: int
    frame_end: int


def refusal_of(failed: Failed, frame: Frame) -> BatchRefusal | None:
    if failed.error_code not in REFUSALS:
        return None
    last = frame.runs[-1]
    index = min(failed.refused, default=0)
    message = None if failed.message is None else failed.message[:_LONGEST_MESSAGE]
    refused = Refused(_offset_at(frame.runs, index), failed.error_code, message)
    is_exact = bool(failed.refused) or frame.records == 1 or failed.error_code in _ABOUT_TOPIC
    return BatchRefusal(refused, is_exact, len(frame.batch), last.first + last.records)


def _offset_at(runs: tuple[Run, ...], index: int) -> int:
    for run in runs:
        if index < run.records:
            return run.first + index
        index -= run.records
    return runs[0].first


@dataclass(slots=True)
class Trial:
    """The attempts to continue a partition from a refused record."""

    refused: Refused
    is_exact: bool = True
    limit_bytes: int = INT64_MAX
    """The largest batch in the next attempt."""
    frame_end: int = INT64_MAX
    attempts: int = 0
    """Attempts with the refused record alone."""
    due_ms: int = 0
    """The time of the next attempt with the refused record."""
    not_before_ms: int = 0
    """The source did not answer, and is not fetched from before this time."""
    config: object = None
    """The configuration of the target's topic when the record was refused."""

    def is_due(self, position: int, now_ms: int) -> bool:
        will_fail = self.is_exact and position >= self.refused.offset
        return now_ms >= self.not_before_ms and (now_ms >= self.due_ms or not will_fail)

    def stands(self, position: int) -> bool:
        """True if everything before the refused record is copied, and the record was refused again."""
        return self.is_exact and self.attempts > 0 and position >= self.refused.offset

    def end_offset(self, position: int) -> int:
        """The source offset where the next attempt ends, exclusive."""
        if position < self.refused.offset:
            return self.refused.offset
        return self.refused.offset + 1 if self.is_exact else self.frame_end

    def passed(self, next_offset: int) -> bool:
        """The target accepted everything before ``next_offset``. Returns True if the refusal is over."""
        if next_offset <= self.refused.offset:
            return False
        is_over = not self.is_exact and self.frame_end == INT64_MAX
        self.refused = self.refused._replace(offset=next_offset)
        self.is_exact, self.frame_end, self.attempts = False, INT64_MAX, 0
        return is_over

    def refuse(self, refusal: BatchRefusal, now_ms: int) -> None:
        is_same = self.is_exact and refusal.is_exact and refusal.refused.offset == self.refused.offset
        self.refused, self.is_exact = refusal.refused, refusal.is_exact
        self.frame_end = INT64_MAX if refusal.is_exact else refusal.frame_end
        if not refusal.is_exact:
            # A refusal of the whole topic is exact and needs no search.
            self.limit_bytes = max(1, min(self.limit_bytes, refusal.frame_bytes) // _SHRINK_FACTOR)
        self.attempts = self.attempts + 1 if is_same else int(refusal.is_exact)
        self.due_ms = now_ms + _PAUSES.delay_ms(max(0, self.attempts - 1))
