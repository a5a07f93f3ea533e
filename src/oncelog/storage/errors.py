"""What storage refuses, and what it cannot go on with."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.errors import ErrorCode


class AppendRefused(Exception):
    """An append was refused; the log and the producer state are as before.

    ``record_errors`` are (index in the batch, message) for the records that caused it, where single ones did.
    """

    def __init__(self, error_code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        self.error_code = error_code
        self.message = message
        self.record_errors = list(record_errors)
        super().__init__(message)


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
