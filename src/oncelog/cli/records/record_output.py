"""Records on stdout, for the commands that read topics."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.runtime.stop_signals import stop_signals_deferred

if TYPE_CHECKING:
    from oncelog.cli.records.format import Formatter
    from oncelog.client.machine.positions import Fetched
    from oncelog.client.machine.share.values import ShareRecord


class Sink:
    """Writes records to stdout and counts them, up to a maximum. Raises OSError."""

    def __init__(self, formatter: Formatter, count: int | None, read_committed: bool) -> None:
        self._formatter = formatter
        self._left = count
        self._read_committed = read_committed
        if (
            sys.__stdout__ is None
        ):  # closed by the caller: offsets of records that were never printed must not be committed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._output = sys.stdout.buffer

    def is_full(self) -> bool:
        """True once the maximum is reached."""
        return self._left == 0

    def write(self, fetched: Fetched, until: int | None = None) -> int:
        """Writes the records of one fetch and returns the offset after the last one."""
        from oncelog.client.machine.consumed_records import read_fetched

        formatter, write = self._formatter, self._output.write
        for record in read_fetched(fetched, read_committed=self._read_committed):
            if until is not None and record.offset >= until:
                return until
            if self._left is not None:
                if self._left == 0:
                    return record.offset
                self._left -= 1
            write(formatter(record))
        return fetched.next_offset

    def write_record(self, record: ShareRecord) -> None:
        """Writes one record of a share group."""
        if self._left is not None:
            self._left -= 1
        self._output.write(self._formatter(record))

    def deliver(self, fetched: Fetched, processed: Callable[[TopicPartition, int], object] | None) -> int:
        """Prints the records of one fetch, reports them as ``processed``, and returns the offset after the last one. A
        stop signal waits for both: otherwise printed records would stay uncommitted."""
        with stop_signals_deferred():
            done = self.write(fetched)
            self.flush()
            if processed is not None:
                processed(fetched.partition, done)
        return done

    def flush(self) -> None:
        self._output.flush()
