"""Executes the operations of a commit on the tables of the SQLite tree, inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Final

from oncelog.base.tree import ABSENT
from oncelog.coordination.paths import check_path, parent_of
from oncelog.ports import ANY_VERSION, Change, Check, Create, Delete, Operation, Set, TreeNode

_AFTER_SLASH: Final = "0"  # the character after "/": all paths below p lie between p + "/" and p + "0"


def execute_operation(database: sqlite3.Connection, session_id: int, operation: Operation) -> bool:
    """Execute one operation. Returns False, without a change, if the tree is not in the expected state."""
    check_path(operation.path)
    if isinstance(operation, Create):
        return _create(database, session_id, operation)
    if isinstance(operation, Set):
        statement = "UPDATE node SET value=?, version=version+1 WHERE path=?"
        return _change(database, statement, operation, bytes(operation.value))
    if isinstance(operation, Delete):
        return not _has_children(database, operation.path) and _change(
            database, "DELETE FROM node WHERE path=?", operation
        )
    return _version_matches(database, operation)


def node_now(database: sqlite3.Connection, path: str) -> Change:
    row = database.execute("SELECT value, version FROM node WHERE path=?", (path,)).fetchone()
    return Change(path, None, ABSENT) if row is None else Change(path, *row)


def nodes_below(database: sqlite3.Connection, path: str) -> list[TreeNode]:
    start = "" if path == "/" else path
    rows = database.execute(
        "SELECT path, value, version FROM node WHERE path > ? AND path < ? ORDER BY path",
        (start + "/", start + _AFTER_SLASH),
    ).fetchall()
    return [TreeNode(below, value, version) for below, value, version in rows]


def _create(database: sqlite3.Connection, session_id: int, operation: Create) -> bool:
    parent = parent_of(operation.path)
    execute = database.execute
    if parent and execute("SELECT 1 FROM node WHERE path=? AND session IS NULL", (parent,)).fetchone() is None:
        return False
    owner = session_id if operation.ephemeral else None
    cursor = execute(
        # An existing node is a conflict, reported by the row count.
        "INSERT OR IGNORE INTO node (path, value, version, session) VALUES (?, ?, 0, ?)",
        (operation.path, bytes(operation.value), owner),
    )
    return cursor.rowcount == 1


def _change(database: sqlite3.Connection, statement: str, operation: Set | Delete, *values: bytes) -> bool:
    if operation.expected_version == ANY_VERSION:
        return database.execute(statement, (*values, operation.path)).rowcount == 1
    arguments = (*values, operation.path, operation.expected_version)
    return database.execute(statement + " AND version=?", arguments).rowcount == 1


def _version_matches(database: sqlite3.Connection, operation: Check) -> bool:
    row = database.execute("SELECT version FROM node WHERE path=?", (operation.path,)).fetchone()
    return row is not None and operation.expected_version in (ANY_VERSION, row[0])


def _has_children(database: sqlite3.Connection, path: str) -> bool:
    below = (path + "/", path + _AFTER_SLASH)
    row = database.execute("SELECT 1 FROM node WHERE path > ? AND path < ? LIMIT 1", below).fetchone()
    return row is not None
