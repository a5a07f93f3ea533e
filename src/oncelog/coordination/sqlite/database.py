"""The SQLite file of the tree: its tables, how several processes open it, and which files are rejected.

See docs/internals/cluster-tree.md for tables and formats. A file that is damaged, foreign or newer is rejected before
anything is written to it: topics cannot be rebuilt from elsewhere, so guessing would lose data.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

APPLICATION_ID: Final = 0x6F6E636C
"""Marks the database as ours (``oncl``) in SQLite's header field."""
FORMAT_VERSION: Final = 2
BUSY_S: Final = 2.0
"""How long a commit waits for commits of other processes, which take milliseconds."""
_RESTORE: Final = "restore it from a backup (oncelog log restore)"

_NODE: Final = """
CREATE TABLE node (
    path TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, session INTEGER
) WITHOUT ROWID
"""
_CHANGE: Final = """
CREATE TABLE change (
    position INTEGER PRIMARY KEY NOT NULL, token TEXT NOT NULL, session INTEGER NOT NULL, changes BLOB NOT NULL
)
"""
_SESSION: Final = "CREATE TABLE session (id INTEGER PRIMARY KEY NOT NULL, timeout_ms INTEGER NOT NULL)"


class TreeUnusable(Exception):
    """The tree cannot be used; the message has its path and the reason."""


def open_database(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Returns a connection for writes and one for reads. Creates or upgrades the file. Raises TreeUnusable."""
    kind = network_file_system(path.parent)
    if kind is not None:
        raise TreeUnusable(
            f"cannot open {path}: it is on a network file system ({kind}); use a local disk or ZooKeeper"
        )
    connections: list[sqlite3.Connection] = []
    try:
        with _one_process_at_a_time(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the tree contains credentials
            connections.append(_connect(path))
            _prepare(connections[0], path)
            connections.append(_connect(path))
            connections[1].execute("SELECT count(*) FROM session").fetchone()
    except BaseException as error:
        for connection in connections:
            connection.close()
        if isinstance(error, OSError):
            raise TreeUnusable(f"cannot open {path}: {error.strerror}") from error
        if isinstance(error, sqlite3.OperationalError):
            reason = "another process uses it alone" if "locked" in str(error) else str(error)
            raise TreeUnusable(f"cannot open {path}: {reason}") from error
        if isinstance(error, sqlite3.DatabaseError):
            raise TreeUnusable(f"{path} is damaged: {error}; {_RESTORE}") from error
        raise
    return connections[0], connections[1]


@contextmanager
def _one_process_at_a_time(path: Path) -> Iterator[None]:
    """Serialize creating, upgrading and switching to the write-ahead log between processes."""
    descriptor = os.open(f"{path}.opening", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    execute = database.execute
    (application_id,) = execute("PRAGMA application_id").fetchone()
    (format_version,) = execute("PRAGMA user_version").fetchone()
    (objects,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
    if objects and application_id != APPLICATION_ID:
        raise TreeUnusable(f"cannot open {path}: it is a database of another program")
    if format_version > FORMAT_VERSION:
        raise TreeUnusable(
            f"cannot open {path}: it has format {format_version}, and this version of oncelog supports formats up to "
            f"{FORMAT_VERSION}; start the broker with the version that wrote it"
        )
    # A damaged file must be rejected before anything is written.
    (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise TreeUnusable(f"{path} is damaged: {verdict}; {_RESTORE}")
    execute("PRAGMA journal_mode=WAL")
    # A commit must be on disk when it returns.
    execute("PRAGMA synchronous=FULL")
    if format_version < FORMAT_VERSION:
        _upgrade(database, is_new=not objects)


def _upgrade(database: sqlite3.Connection, *, is_new: bool) -> None:
    """Create the tables of a new file, or add those that format 1 lacks."""
    execute = database.execute
    execute("BEGIN IMMEDIATE")
    if is_new:
        execute(_NODE)
        execute(f"PRAGMA application_id={APPLICATION_ID}")
    else:
        # Format 1 allowed one process, and it is dead: a live one would hold the file's lock.
        execute("DELETE FROM node WHERE session IS NOT NULL")
    execute(_CHANGE)
    execute(_SESSION)
    execute(f"PRAGMA user_version={FORMAT_VERSION}")
    execute("COMMIT")


# Only Linux has this file; elsewhere the kind of file system is unknown and nothing is rejected.
MOUNTS: Final = Path("/proc/self/mountinfo")
_OVER_A_NETWORK: Final = (
    *("afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs"),
    *("pvfs2", "smb3", "smbfs", "vboxsf", "fuse.davfs2", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
)


def network_file_system(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the network file system of ``directory``; None if it is local or unknown."""
    try:
        device = os.stat(directory).st_dev
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split(" ")[2:3] == [number]:
            name = kind.split(" ")[0]
            return name if name in _OVER_A_NETWORK else None
    return None
