"""The tree in one SQLite database: the embedded default, for a cluster of one machine.

``SqliteTree`` owns the database file; each ``session()`` of it is one ``ports.Coordination``. The rules:

1. A commit is one transaction: all operations or none, on disk when ``commit`` returns (WAL, ``synchronous=FULL``).
2. One process has the file (exclusive lock); a second one is refused. What is left of ephemeral nodes by a process
   that died is removed when the file is opened, because no session can have outlived it.
3. A file that is damaged, or that is not ours, is refused with ``TreeUnusable`` before anything is written to it:
   topics are facts that cannot be rebuilt from elsewhere, so guessing would lose data.

Calls may come from any thread, one is carried out at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog.base.tree import ABSENT, TreeUnavailable
from oncelog.coordination.changes import ChangeStream, Listener
from oncelog.coordination.paths import changed_paths, check_path, parent_of
from oncelog.ports import ANY_VERSION, Change, Check, Conflict, Create, Delete, Operation, SessionLost, Set, TreeNode

APPLICATION_ID: Final = 0x6F6E636C
"""Marks the database as ours (``oncl``), in SQLite's own header field."""
FORMAT_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE node (
    path TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, session INTEGER
) WITHOUT ROWID
"""
_NOTHING_WRITTEN: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
"""After these the file is as before; after an I/O error nobody knows what is on disk."""
_AFTER_SLASH: Final = "0"  # the character that follows "/": everything below p lies between p + "/" and p + "0"


class TreeUnusable(Exception):
    """The database cannot be used; the message names the file and says why."""


class SqliteTree:
    """A tree of versioned nodes in the SQLite database at ``path``, created when it does not exist."""

    def __init__(self, path: Path | str) -> None:
        self._path = str(path)
        self._lock = threading.Lock()
        self._stream = ChangeStream()
        self._last_session = 0
        self._sessions: set[int] = set()
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0.0)
        except sqlite3.Error as error:
            raise TreeUnusable(f"cannot open {self._path}: {error}") from error
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            self._database.close()
            reason = "another process uses it" if "locked" in str(error) else str(error)
            raise TreeUnusable(f"cannot open {self._path}: {reason}") from error
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise TreeUnusable(f"{self._path} is damaged: {error}") from error
        except TreeUnusable:
            self._database.close()
            raise

    def _prepare(self) -> None:
        execute = self._database.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (format_version,) = execute("PRAGMA user_version").fetchone()
        (objects,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if objects and application_id != APPLICATION_ID:
            raise TreeUnusable(f"{self._path} is a database of another program")
        if format_version > FORMAT_VERSION:
            raise TreeUnusable(f"{self._path} has format {format_version}, this version knows {FORMAT_VERSION}")
        (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise TreeUnusable(f"{self._path} is damaged: {verdict}")
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        execute("BEGIN EXCLUSIVE")
        if not objects:
            execute(_SCHEMA)
            execute(f"PRAGMA application_id={APPLICATION_ID}")
            execute(f"PRAGMA user_version={FORMAT_VERSION}")
        execute("DELETE FROM node WHERE session IS NOT NULL")
        execute("COMMIT")

    def session(self) -> SqliteSession:
        """A new session; its ephemeral nodes live until it is closed or the process ends."""
        return SqliteSession(self, self.begin_session())

    def begin_session(self) -> int:
        """The id of a new session."""
        with self._lock:
            self._last_session += 1
            self._sessions.add(self._last_session)
            return self._last_session

    def close(self) -> None:
        """Close the file. Sessions must not be used afterwards."""
        with self._lock:
            self._database.close()

    def end_session(self, session_id: int) -> None:
        """Remove a session's ephemeral nodes; it commits nothing any more."""
        with self._lock:
            self._stream.follow(session_id, 0, None)
            self._sessions.discard(session_id)
            rows = self._database.execute("SELECT path FROM node WHERE session=? ORDER BY path", (session_id,))
            gone = [path for (path,) in rows]
            if gone:
                self._database.execute("DELETE FROM node WHERE session=?", (session_id,))
                self._stream.append("", [Change(path, None, ABSENT) for path in gone])

    def _commit(self, session_id: int, operations: Sequence[Operation], token: str) -> int:
        with self._lock:
            if session_id not in self._sessions:
                raise SessionLost("the session has ended")
            try:
                self._database.execute("BEGIN IMMEDIATE")
                for operation in operations:
                    self._carry_out(session_id, operation)
                changes = [self._now(path) for path in changed_paths(operations)]
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode in _NOTHING_WRITTEN:
                    raise TreeUnavailable(f"cannot write {self._path}: {error}") from error
                raise
            return self._stream.append(token, changes)

    def _now(self, path: str) -> Change:
        row = self._database.execute("SELECT value, version FROM node WHERE path=?", (path,)).fetchone()
        return Change(path, None, ABSENT) if row is None else Change(path, *row)

    def _carry_out(self, session_id: int, operation: Operation) -> None:
        check_path(operation.path)
        if isinstance(operation, Create):
            done = self._create(session_id, operation)
        elif isinstance(operation, Set):
            done = self._change(
                "UPDATE node SET value=?, version=version+1 WHERE path=?", operation, bytes(operation.value)
            )
        elif isinstance(operation, Delete):
            done = not self._has_children(operation.path) and self._change("DELETE FROM node WHERE path=?", operation)
        else:
            done = self._stands(operation)
        if not done:
            raise Conflict(operation)

    def _create(self, session_id: int, operation: Create) -> bool:
        parent = parent_of(operation.path)
        execute = self._database.execute
        if parent and execute("SELECT 1 FROM node WHERE path=? AND session IS NULL", (parent,)).fetchone() is None:
            return False
        owner = session_id if operation.ephemeral else None
        cursor = execute(
            "INSERT OR IGNORE INTO node (path, value, version, session) VALUES (?, ?, 0, ?)",
            (operation.path, bytes(operation.value), owner),
        )
        return cursor.rowcount == 1

    def _change(self, statement: str, operation: Set | Delete, *values: bytes) -> bool:
        if operation.expected_version == ANY_VERSION:
            return self._database.execute(statement, (*values, operation.path)).rowcount == 1
        arguments = (*values, operation.path, operation.expected_version)
        return self._database.execute(statement + " AND version=?", arguments).rowcount == 1

    def _stands(self, operation: Check) -> bool:
        row = self._database.execute("SELECT version FROM node WHERE path=?", (operation.path,)).fetchone()
        return row is not None and operation.expected_version in (ANY_VERSION, row[0])

    def _has_children(self, path: str) -> bool:
        below = (path + "/", path + _AFTER_SLASH)
        row = self._database.execute("SELECT 1 FROM node WHERE path > ? AND path < ? LIMIT 1", below).fetchone()
        return row is not None

    def _read(self, path: str) -> TreeNode | None:
        with self._lock:
            row = self._database.execute("SELECT value, version FROM node WHERE path=?", (path,)).fetchone()
        return None if row is None else TreeNode(path, row[0], row[1])

    def _below(self, path: str) -> list[TreeNode]:
        start = "" if path == "/" else path
        with self._lock:
            rows = self._database.execute(
                "SELECT path, value, version FROM node WHERE path > ? AND path < ? ORDER BY path",
                (start + "/", start + _AFTER_SLASH),
            ).fetchall()
        return [TreeNode(below, value, version) for below, value, version in rows]


class SqliteSession:
    """One session of a ``SqliteTree``: the embedded adapter of ``ports.Coordination``."""

    def __init__(self, tree: SqliteTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id

    def read(self, path: str) -> TreeNode | None:
        """One node, or None."""
        check_path(path)
        return self._tree._read(path)

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; empty when the node does not exist."""
        skip = 1 if path == "/" else len(path) + 1
        return [node.path[skip:] for node in self._tree._below(path) if "/" not in node.path[skip:]]

    def subtree(self, path: str) -> list[TreeNode]:
        """All nodes below ``path``, itself excluded, in path order."""
        return self._tree._below(path)

    def position(self) -> int:
        """Position of the last committed change."""
        with self._tree._lock:
            return self._tree._stream.position

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        """Carry out all operations, durably, or none; the position of the change. Raises Conflict, TreeUnavailable,
        SessionLost."""
        return self._tree._commit(self._session_id, operations, token)

    def was_committed(self, token: str) -> bool:
        """True if the commit of that name was carried out."""
        with self._tree._lock:
            return self._tree._stream.has(token)

    def follow(self, after: int, listener: Listener | None) -> None:
        """Be told of every change after a position, own ones included; None ends it. The tree's lock is held during the
        call: the listener hands the change on and returns."""
        with self._tree._lock:
            self._tree._stream.follow(self._session_id, after, listener)

    def renew(self) -> None:
        """Begin a new session in place of this one, which ends if it has not."""
        self._tree.end_session(self._session_id)
        self._session_id = self._tree.begin_session()

    def close(self) -> None:
        """End the session; its ephemeral nodes disappear."""
        self._tree.end_session(self._session_id)
