"""A fair write lock between the processes of a SQLite tree, whose own lock has no queue.

A commit holds ``flock`` on a file before it asks SQLite. Waiting processes share a second lock meanwhile. A process
that finds the second lock taken after its commit pauses for longer than the others' retry interval. The kernel releases
both locks when a process dies. Without contention the queue costs two system calls.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oncelog.base.tree import TreeUnavailable

_ASK_AGAIN_S: Final = 0.0005
_STAY_AWAY_S: Final = 0.0015


class WriteQueue:
    """This process's place in the queue. Used by one thread at a time."""

    def __init__(self, database: Path, wait_s: float) -> None:
        """Raises OSError."""
        self._database = database
        self._wait_s = wait_s
        self._not_before_s = 0.0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._writing = os.open(f"{database}.writing", flags, 0o600)
        try:
            self._waiting = os.open(f"{database}.waiting", flags, 0o600)
        except OSError:
            os.close(self._writing)
            raise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the right to write. Raises TreeUnavailable."""
        pause_s = self._not_before_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        if not _lock(self._writing, fcntl.LOCK_EX):
            self._wait()
        try:
            yield
        finally:
            fcntl.flock(self._writing, fcntl.LOCK_UN)
            # Free: no other process waits.
            if _lock(self._waiting, fcntl.LOCK_EX):
                fcntl.flock(self._waiting, fcntl.LOCK_UN)
            else:
                self._not_before_s = time.monotonic() + _STAY_AWAY_S

    def close(self) -> None:
        os.close(self._writing)
        os.close(self._waiting)

    def _wait(self) -> None:
        deadline_s = time.monotonic() + self._wait_s
        is_seen = False
        try:
            while True:
                is_seen = is_seen or _lock(self._waiting, fcntl.LOCK_SH)
                if _lock(self._writing, fcntl.LOCK_EX):
                    return
                if time.monotonic() > deadline_s:
                    raise TreeUnavailable(
                        f"cannot write {self._database}: another process has held the write lock for {self._wait_s:g} s"
                    )
                time.sleep(_ASK_AGAIN_S)
        finally:
            if is_seen:
                fcntl.flock(self._waiting, fcntl.LOCK_UN)


def _lock(descriptor: int, kind: int) -> bool:
    """Try to lock without waiting. Returns True on success."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
