"""The audit log of administrative aborts: ``audit.jsonl`` in the data directory, one JSON object per line.

A record is in the page cache before any later effect of the node is carried out, and on disk soon after (a worker
syncs). Rotation never splits a record. If the disk refuses one, the error and the record go to the operator's log and
the broker continues: the abort has already happened. ``audit_repeats`` counts repeated records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog.node.access.audit_repeats import INTERVAL_S, AuditLimiter
from oncelog.ports import Files, OpenFile
from oncelog.runtime.workers import Workers

if TYPE_CHECKING:
    from oncelog.node.kernel.events import Audit

FILE_NAME: Final = "audit.jsonl"
KEPT: Final = 10
"""Number of rotated files; ``audit.jsonl.1`` is the newest."""
_LOG: Final = logging.getLogger("oncelog.audit")


class AuditLog:
    """Appends records. ``max_bytes`` is read before each; ``later(seconds, callback)`` is the loop's timer."""

    def __init__(
        self,
        files: Files,
        workers: Workers,
        max_bytes: Callable[[], int],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._files = files
        self._workers = workers
        self._max_bytes = max_bytes
        self._file: OpenFile | None = None
        self._sync_queued = False
        self._later = later
        self._repeats = AuditLimiter()
        self._is_counting = False

    def write(self, effect: Audit) -> None:
        """Append a record and queue its sync, or only count it if it repeats another."""
        if self._repeats.should_write(effect):
            self._append(effect)
        if not self._is_counting:
            self._is_counting = True
            self._later(INTERVAL_S, self._interval_over)

    def write_repeats(self) -> None:
        for effect in self._repeats.counted():
            self._append(effect)

    def _interval_over(self) -> None:
        self._is_counting = False
        self.write_repeats()

    def _append(self, effect: Audit) -> None:
        line = effect.record.line()
        # The broker's log has every record, too.
        _LOG.info("%s", line.decode().rstrip())
        try:
            file = self._opened(len(line))
            file.append((line,))
        except OSError as error:
            _LOG.error("the audit log cannot be written (%s); the record is: %s", error, line.decode().rstrip())
            return
        if not self._sync_queued:  # one sync covers all records before it: log data needs the same workers
            self._sync_queued = True
            self._workers.submit(lambda: self._sync(file))

    def _opened(self, size_bytes: int) -> OpenFile:
        file = self._file
        if file is None:
            file = self._files.open(FILE_NAME, create=True)
            if file.size() and file.read(file.size() - 1, 1) != b"\n":
                file.append((b"\n",))  # a power cut has torn the last line
        if file.size() and file.size() + size_bytes > self._max_bytes():
            self._sync_now(file)  # the queued sync may run after the rotation
            file.close()
            self._rotate()
            file = self._files.open(FILE_NAME, create=True)
        self._file = file
        return file

    def _rotate(self) -> None:
        self._file = None
        for number in range(KEPT, 0, -1):
            older = f"{FILE_NAME}.{number}"
            newer = FILE_NAME if number == 1 else f"{FILE_NAME}.{number - 1}"
            if self._files.size(newer) is not None:
                self._files.rename(newer, older)

    def _sync(self, file: OpenFile) -> Callable[[], None]:
        self._sync_queued = False  # first, so that later records queue another sync
        self._sync_now(file)
        return lambda: None

    def _sync_now(self, file: OpenFile) -> None:
        try:
            file.sync()
            self._files.sync_directory("")
        except OSError as error:
            _LOG.error("the audit log cannot be synced: %s", error)
