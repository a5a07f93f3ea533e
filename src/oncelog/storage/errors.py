"""Refusals of storage, and files and directories that it cannot use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.base.errors import ErrorCode

_BEFORE_THE_LOG: Final = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)


class AppendRefused(Exception):
    """An append was refused; the log and the producer state are as before.

    ``record_errors`` are (index in the batch, message) for the records that caused it, where single ones did.
    ``sent_to_client`` is True where Apache Kafka passes the message on to clients: it has words only for single records, and
    for a magic that does not exist. ``by_log`` is False where the bytes are refused for what they are, before any log
    is asked.
    """

    def __init__(
        self,
        error_code: ErrorCode,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
        *,
        by_log: bool = True,
        sent_to_client: bool = False,
    ) -> None:
        self.error_code = error_code
        self.message = message
        self.record_errors = list(record_errors)
        self.sent_to_client = sent_to_client or bool(record_errors)
        self.by_log = by_log and error_code not in _BEFORE_THE_LOG
        super().__init__(message)


class SyncFailed(Exception):
    """A sync that could not be left to a worker failed: the node must end, as after every failed sync. The page cache
    may have dropped the data; a retry would lie. No OSError, which would be taken for a disk that refuses."""


class UnexpectedOffset(AppendRefused):
    """A leader's batch does not follow the end of the log it is for."""

    def __init__(self, where: str, first_offset: int, last_offset: int, expected_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"Unexpected offset in append to {where}: the batch [{first_offset}, {last_offset}] begins before "
            f"{expected_offset}, where the log ends",
        )


class OffsetOutOfRange(Exception):
    """No such offset in the log: it begins at ``log_start_offset`` and ends before ``log_end_offset``."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        super().__init__(f"offset {offset} is not in [{log_start_offset}, {log_end_offset}]")


class CorruptFile(Exception):
    """A file beside the segments (index, snapshot, checkpoint) is not what it should be; it is rebuilt, never fatal."""


class UnusableDirectory(Exception):
    """The data directory cannot be used at all: written by a newer version, or of another cluster or node."""
