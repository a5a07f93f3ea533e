"""Refusals of storage, and unusable files and directories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.base.errors import ErrorCode

_BEFORE_THE_LOG: Final = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)


class AppendRefused(Exception):
    """An append was refused; log and producer state are unchanged.

    ``record_errors``: (index in the batch, message) of single bad records. ``sent_to_client``: the client gets the
    message, as from Apache Kafka only for single records and an unknown magic. ``by_log`` is False if the bytes are
    refused before any log is involved.
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


# No OSError, which would count as a full disk. A retry would lie: the page cache may have dropped the data.
class SyncFailed(Exception):
    """A sync outside a worker failed: the node must end, as after every failed sync."""


class UnexpectedOffset(AppendRefused):
    """A leader's batch does not follow the end of this log."""

    def __init__(self, log: str, first_offset: int, last_offset: int, expected_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        super().__init__(
            ErrorCode.INVALID_RECORD,
            f"Unexpected offset in append to {log}: the batch [{first_offset}, {last_offset}] begins before "
            f"{expected_offset}, where the log ends",
        )


class OffsetOutOfRange(Exception):
    """The log, from ``log_start_offset`` to before ``log_end_offset``, has no such offset."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        super().__init__(f"offset {offset} is not in [{log_start_offset}, {log_end_offset}]")


class CorruptFile(Exception):
    """A file beside the segments (index, snapshot, checkpoint) is damaged; it is rebuilt, never fatal."""


class UnusableDirectory(Exception):
    """The data directory cannot be used: it has a newer format, or belongs to another cluster or node."""


class UnknownVersion(UnusableDirectory):
    """``without_it``: the effect of removing the file."""

    def __init__(self, path: str, version: int | str, supported: int | str, without_it: str) -> None:
        super().__init__(
            f"{path} has version {version}, and this version of oncelog reads {supported}: start the broker with the "
            f"version that wrote it, or remove the file ({without_it})"
        )
