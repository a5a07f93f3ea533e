"""The tree in one SQLite database that the processes of a host share: the embedded default.

``SqliteTree`` is one process's use of the file; each ``session()`` is one ``ports.Coordination``.
docs/internals/cluster-tree.md explains commits, following and the end of sessions.

All calls are thread-safe. Commits hold ``_writing``, which may wait for the disk and for other processes; reads and
deliveries hold ``_reading``, which waits for neither. A thread never takes ``_writing`` while it holds ``_reading``.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.base.tree import ABSENT, TreeUnavailable
from oncelog.coordination.commit_order import Ended, Followers, Listener
from oncelog.coordination.paths import changed_paths, check_path
from oncelog.coordination.sqlite import database
from oncelog.coordination.sqlite.database import TreeUnusable as TreeUnusable
from oncelog.coordination.sqlite.database import open_database
from oncelog.coordination.sqlite.journal import changes_between, has_token, position_of, write_change
from oncelog.coordination.sqlite.operations import execute_operation, node_now, nodes_below
from oncelog.coordination.sqlite.sessions import BEATS, OtherSessions, OwnSession, lock_path
from oncelog.coordination.sqlite.write_queue import WriteQueue
from oncelog.ports import Change, CommittedChange, Conflict, Operation, SessionLost, TreeNode

if TYPE_CHECKING:
    from oncelog.coordination.sqlite.newest_position import NewestPosition


class Watcher:
    """Calls ``poll`` in its own thread from ``start`` to ``stop``; ``poll`` returns the pause in seconds."""

    def __init__(self, poll: Callable[[], float]) -> None:
        self._poll = poll
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="oncelog-tree", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop, after a poll in progress."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = self._poll()


SESSION_TIMEOUT_MS: Final = 18_000
# Pauses between two polls for other processes' commits: for a second after a change, since changes come in bursts;
# while nothing changes; and without other processes. A poll costs 70 µs: polling every 5 ms took 1.5 % of a core of an
# idle broker.
_BUSY_S: Final = 0.005
_QUIET_S: Final = 0.02
_ALONE_S: Final = 0.025
_STAYS_BUSY_S: Final = 1.0
_NOTHING_WRITTEN: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
"""Errors that leave the file unchanged; after an I/O error the state on disk is unknown."""
_PRIMARY_CODE: Final = 0xFF

T = TypeVar("T")


class SqliteTree:
    """``path`` is created if it does not exist."""

    def __init__(self, path: Path | str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Raises TreeUnusable."""
        self._path = Path(path)
        self._timeout_ms = session_timeout_ms
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._followers = Followers()
        self._own: dict[int, OwnSession] = {}
        self._others = OtherSessions(self._path)
        self._data_version = -1
        self._next_beat_s = 0.0
        self._busy_until_s = 0.0
        self._is_closed = False
        self._writer, self._reader = open_database(self._path)
        self._turns = WriteQueue(self._path, database.BUSY_S)
        self._delivered = position_of(self._reader)
        self._watcher = Watcher(self._poll)
        self._poll()  # ends sessions of dead processes before the first read

    def session(self) -> SqliteSession:
        """Begin a session; its ephemeral nodes live until it is closed or its process ends."""
        return SqliteSession(self, self.begin_session())

    def begin_session(self) -> int:
        """Returns the id of a new session. Other processes see it with its first commit."""
        session_id = int.from_bytes(os.urandom(7), "big")  # never reused: a paused process may come back
        with self._reading:
            self._own[session_id] = OwnSession(session_id, lock_path(self._path, session_id))
        self._watcher.start()
        return session_id

    def end_session(self, session_id: int) -> None:
        """Close a session of this process and remove its ephemeral nodes. Raises TreeUnavailable; any process's next
        poll then removes the nodes."""
        with self._reading:
            self._followers.remove(session_id)
            own_session = self._own.pop(session_id, None)
        if own_session is not None:
            try:
                if own_session.has_row:
                    self.expire(session_id)
            finally:
                own_session.release()

    def expire(self, session_id: int) -> None:
        """End any session: remove its row and its ephemeral nodes. Raises TreeUnavailable."""

        def work() -> CommittedChange | None:
            execute = self._writer.execute
            if execute("DELETE FROM session WHERE id=?", (session_id,)).rowcount == 0:
                return None  # another process has ended it
            rows = execute("SELECT path FROM node WHERE session=? ORDER BY path", (session_id,)).fetchall()
            if not rows:
                return None
            execute("DELETE FROM node WHERE session=?", (session_id,))
            return write_change(self._writer, "", session_id, [Change(path, None, ABSENT) for (path,) in rows])

        with self._writing:
            change = self._transaction(work)
        if change is not None:
            with self._reading:
                self._deliver(change)

    def close(self) -> None:
        """Close the file. Open sessions become unusable and end as if the process had died."""
        self._watcher.stop()
        with self._writing, self._reading:
            for own_session in self._own.values():
                own_session.release()
            self._own.clear()
            self._others.close()
            self._turns.close()
            self._is_closed = True
            if "newest_position" in self.__dict__:
                self.newest_position.close()
            self._reader.close()
            self._writer.close()

    def position_at_once(self) -> int | None:
        return None if self._is_closed else self.newest_position.read()

    @cached_property
    def newest_position(self) -> NewestPosition:
        from oncelog.coordination.sqlite.newest_position import NewestPosition  # a broker alone never asks

        return NewestPosition(self._path)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._reading:
            yield self._reader

    def _commit(self, session_id: int, operations: Sequence[Operation], token: str) -> int:
        def work() -> CommittedChange:
            self._enter(own_session)
            for operation in operations:
                if not execute_operation(self._writer, session_id, operation):
                    raise Conflict(operation)
            changes = [node_now(self._writer, path) for path in changed_paths(operations)]
            return write_change(self._writer, token, session_id, changes)

        with self._writing:
            own_session = self._own.get(session_id)
            if own_session is None:
                raise SessionLost("the session has ended")
            change = self._transaction(work)
            own_session.has_row = True
        with self._reading:
            self._deliver(change)
        return change.position

    def _enter(self, own_session: OwnSession | None) -> None:
        """Raise SessionLost if the session has ended; insert its row at the first commit."""
        assert own_session is not None
        execute = self._writer.execute
        if not own_session.has_row:
            own_session.lock()
            execute("INSERT INTO session VALUES (?, ?)", (own_session.session_id, self._timeout_ms))
        elif execute("SELECT 1 FROM session WHERE id=?", (own_session.session_id,)).fetchone() is None:
            raise SessionLost(
                "another process ended the session because this process was paused for longer than the session time-out"
            )

    def _transaction(self, work: Callable[[], T]) -> T:
        with self._turns.turn():
            return self._in_turn(work)

    def _in_turn(self, work: Callable[[], T]) -> T:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            result = work()
            self._writer.execute("COMMIT")
        except BaseException as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            if (
                isinstance(error, sqlite3.OperationalError)
                and error.sqlite_errorcode & _PRIMARY_CODE in _NOTHING_WRITTEN
            ):
                raise TreeUnavailable(f"cannot write {self._path}: {error}") from error
            raise
        return result

    def _deliver(self, own_session: CommittedChange | None = None) -> None:
        """Deliver pending commits in order, with ``_reading`` held; ``own_session`` is a commit of this process."""
        # The usual case: no other process has committed in between.
        if own_session is not None and own_session.position == self._delivered + 1:
            self._delivered = own_session.position
            self._followers.deliver(own_session)
        elif own_session is None or own_session.position > self._delivered:
            newest = position_of(self._reader)
            changes = changes_between(self._reader, self._delivered, newest) if self._followers else ()
            self._delivered = newest
            for change in changes:
                self._followers.deliver(change)

    def _follow(self, session_id: int, after: int, listener: Listener | None, ended: Ended | None) -> None:
        with self._reading:
            if listener is None:
                self._followers.remove(session_id)
                return
            self._followers.add(session_id, after, listener, ended)
            if session_id not in self._own:
                self._followers.end(session_id)
                return
            if after < self._delivered:
                for change in changes_between(self._reader, after, self._delivered):
                    listener(change)

    def _poll(self) -> float:
        """Look for other processes' commits and dead sessions. Runs in the watcher's thread, once in the opening
        thread.
        """
        now_s = time.monotonic()
        try:
            with self._reading:
                (version,) = self._reader.execute("PRAGMA data_version").fetchone()
                if version != self._data_version:
                    self._others.watch(self._changed(), now_s)
                    self._data_version = version
                    self._busy_until_s = now_s + _STAYS_BUSY_S
            for session_id in self._others.ended(now_s):
                self.expire(session_id)
                self._others.forget(session_id)
            self._beat(now_s)
        except (sqlite3.Error, TreeUnavailable):
            pass  # the next commit reports it to the node; the next poll tries again
        if not self._others:
            return _ALONE_S
        return _BUSY_S if now_s < self._busy_until_s else _QUIET_S

    def _changed(self) -> list[tuple[int, int]]:
        """Deliver new commits and end own sessions without a row. Returns the rows of all others."""
        with_rows = [
            own_session for own_session in self._own.values() if own_session.has_row
        ]  # read before the rows: a session that commits in between must not look ended
        rows = self._reader.execute("SELECT id, timeout_ms FROM session").fetchall()
        living = {session_id for session_id, _ in rows}
        for own_session in with_rows:
            if own_session.session_id not in living:
                del self._own[own_session.session_id]
                own_session.release()
                self._followers.end(own_session.session_id)
        self._deliver()
        return [(session_id, timeout_ms) for session_id, timeout_ms in rows if session_id not in self._own]

    def _beat(self, now_s: float) -> None:
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self._timeout_ms / 1000 / BEATS
            with self._reading:
                for own_session in self._own.values():
                    own_session.beat()


class SqliteSession:
    """The embedded adapter of ``ports.Coordination``."""

    def __init__(self, tree: SqliteTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id

    def read(self, path: str) -> TreeNode | None:
        check_path(path)
        with self._tree.reading() as reader:
            row = reader.execute("SELECT value, version FROM node WHERE path=?", (path,)).fetchone()
        return None if row is None else TreeNode(path, row[0], row[1])

    def children(self, path: str) -> list[str]:
        skip = 1 if path == "/" else len(path) + 1
        return [node.path[skip:] for node in self.subtree(path) if "/" not in node.path[skip:]]

    def subtree(self, path: str) -> list[TreeNode]:
        with self._tree.reading() as reader:
            return nodes_below(reader, path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        with self._tree.reading() as reader:
            # One transaction, so that nodes and position match.
            reader.execute("BEGIN")
            try:
                return position_of(reader), nodes_below(reader, "/")
            finally:
                reader.execute("COMMIT")

    def position(self) -> int:
        with self._tree.reading() as reader:
            return position_of(reader)

    def position_at_once(self) -> int | None:
        return self._tree.position_at_once()

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        return self._tree._commit(self._session_id, operations, token)

    def was_committed(self, token: str) -> bool:
        with self._tree.reading() as reader:
            return has_token(reader, token)

    def follow(self, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        # Listeners run with a lock held: they hand the change on and return.
        self._tree._follow(self._session_id, after, listener, ended)

    def renew(self) -> None:
        self._tree.end_session(self._session_id)
        self._session_id = self._tree.begin_session()

    def close(self) -> None:
        with suppress(TreeUnavailable):  # another process ends it later, like a dead one's
            self._tree.end_session(self._session_id)
