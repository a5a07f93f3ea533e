"""Sessions of the SQLite tree, each with a lock file that shows other processes whether its owner is alive.

1. The owner holds ``flock`` on the file from before the session's row is committed until after it is removed. The
   kernel releases the lock when the process dies: a process that gets the lock knows that the owner is dead.
2. A paused process keeps its lock, but stops stamping the file. A stamp unchanged for the session's time-out, by the
   observer's clock, ends the session. An observer that was paused itself starts to measure again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BEATS: Final = 6
"""Stamps per time-out."""
_STOOD_STILL: Final = 3
"""An observer that has not polled for 1/n of a time-out was paused itself."""


def lock_path(database: Path, session_id: int) -> Path:
    return database.with_name(f"{database.name}.session-{session_id:016x}")


@dataclass(slots=True, eq=False)
class OwnSession:
    session_id: int
    path: Path
    has_row: bool = False
    """True once its first commit has inserted it into the table."""
    _descriptor: int | None = None

    def lock(self) -> None:
        """Create and lock the file, before others can see the session's row. Raises OSError."""
        if self._descriptor is None:
            # O_EXCL: a session id is never reused.
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def beat(self) -> None:
        if self._descriptor is not None:
            os.utime(self._descriptor)

    def release(self) -> None:
        """Release the lock, after the session's row is gone."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self.path.unlink(missing_ok=True)
            os.close(descriptor)


class _OtherSession:
    """A session of another process, or one left behind by a dead process."""

    def __init__(self, path: Path, timeout_s: float, now_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._stamp_ns = -1
        self._stamped_s = self._polled_s = now_s
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = None  # released

    def has_ended(self, now_s: float) -> bool:
        """True if the owner is dead or has been paused for the time-out."""
        if self._descriptor is None or self._is_unlocked(self._descriptor):
            return True
        stamp_ns = os.fstat(self._descriptor).st_mtime_ns
        if stamp_ns != self._stamp_ns or now_s - self._polled_s > self._timeout_s / _STOOD_STILL:
            self._stamp_ns, self._stamped_s = stamp_ns, now_s
        self._polled_s = now_s
        return now_s - self._stamped_s > self._timeout_s

    def _is_unlocked(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self, *, remove: bool) -> None:
        if remove:
            with suppress(OSError):  # a leftover empty file is harmless: ids are never reused
                self._path.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclass(slots=True)
class OtherSessions:
    """The sessions in the table that do not belong to this tree object. Used by one thread at a time."""

    database: Path
    _watched: dict[int, _OtherSession] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._watched)

    def watch(self, rows: Iterable[tuple[int, int]], now_s: float) -> None:
        """Watch exactly the sessions of these rows (id, time-out in milliseconds)."""
        current = dict(rows)
        for session_id in self._watched.keys() - current.keys():
            self._watched.pop(session_id).close(remove=False)
        for session_id, timeout_ms in current.items():
            if session_id not in self._watched:
                path = lock_path(self.database, session_id)
                self._watched[session_id] = _OtherSession(path, timeout_ms / 1000, now_s)

    def ended(self, now_s: float) -> list[int]:
        """Ids of ended sessions, repeated until ``forget``."""
        return [session_id for session_id, other in self._watched.items() if other.has_ended(now_s)]

    def forget(self, session_id: int) -> None:
        self._watched.pop(session_id).close(remove=True)

    def close(self) -> None:
        self.watch((), 0.0)
