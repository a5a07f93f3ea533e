"""The journal of the SQLite tree: the table ``change``, one row per commit, written in the commit's transaction.

Positions increase by one, and the newest row is never removed, because it holds the tree's position. A commit
occasionally removes the oldest rows beyond a number of rows and of bytes.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from oncelog.coordination.change_codec import DamagedJournal, decode_changes, encode_changes
from oncelog.ports import Change, CommittedChange

KEPT_CHANGES: Final = 2_000
KEPT_BYTES: Final = 16 << 20
_TRIM_EVERY: Final = 128
_LARGE_BYTES: Final = 1 << 20
"""A commit of this size trims at once."""


def position_of(database: sqlite3.Connection) -> int:
    """Position of the last commit; 0 before the first."""
    (position,) = database.execute("SELECT max(position) FROM change").fetchone()
    return position or 0


def write_change(database: sqlite3.Connection, token: str, session_id: int, changes: list[Change]) -> CommittedChange:
    """Add a commit to the journal, inside its transaction."""
    change = CommittedChange(position_of(database) + 1, token, tuple(changes))
    data = encode_changes(changes)
    database.execute("INSERT INTO change VALUES (?, ?, ?, ?)", (change.position, token, session_id, data))
    if change.position % _TRIM_EVERY == 0 or len(data) >= _LARGE_BYTES:
        _trim(database, change.position)
    return change


def changes_between(database: sqlite3.Connection, after: int, until: int) -> list[CommittedChange]:
    """The commits after ``after`` up to ``until``. Trimmed and unreadable ones are missing: followers see a gap."""
    rows = database.execute(
        "SELECT position, token, changes FROM change WHERE position > ? AND position <= ? ORDER BY position",
        (after, until),
    )
    changes = []
    for position, token, data in rows:
        with suppress(DamagedJournal):
            changes.append(CommittedChange(position, token, decode_changes(data)))
    return changes


def has_token(database: sqlite3.Connection, token: str) -> bool:
    """True if the journal has a commit with this token."""
    return database.execute("SELECT 1 FROM change WHERE token=? LIMIT 1", (token,)).fetchone() is not None


def _trim(database: sqlite3.Connection, newest: int) -> None:
    rows = database.execute(
        "SELECT position, length(changes) FROM change WHERE position > ? ORDER BY position DESC",
        (newest - KEPT_CHANGES,),
    )
    size, first = 0, newest
    for position, length in rows:
        size += length
        if size > KEPT_BYTES:
            break
        first = position
    database.execute("DELETE FROM change WHERE position < ?", (first,))
