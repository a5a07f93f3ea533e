"""The cluster's metadata in a backup: the SQLite file of its tree, copied as of one moment while brokers use it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from oncelog.base.ids import BrokerId
from oncelog.base.private_files import FILE_MODE
from oncelog.base.units import INT64_MAX
from oncelog.cli.log.backup.manifest import BackupError
from oncelog.coordination.sqlite.database import BUSY_S
from oncelog.coordination.sqlite.tree import SqliteTree, TreeUnusable
from oncelog.core.controller.image import layout
from oncelog.ports import Set, TreeUnavailable

SKIPPED_PRODUCER_IDS: Final = 1 << 32
"""A restored cluster does not give out ids that the original gave out after the backup, if it was fewer than these."""


class TreeSnapshot:
    """Raises BackupError, as all methods."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # The mode refuses to create a file.
            self._database = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def pin(self) -> None:
        """Read the file as of now from here on, whatever is committed later."""
        try:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._database.execute("BEGIN")
            self._database.execute("SELECT count(*) FROM node").fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def brokers(self, parent: str) -> set[int]:
        """The ids of the nodes below ``parent``: registered or recorded brokers."""
        rows = self._database.execute("SELECT path FROM node WHERE path GLOB ?", (f"{parent}/*",)).fetchall()
        names: Iterable[str] = (path[len(parent) + 1 :] for (path,) in rows)
        return {int(name) for name in names if name.isdecimal()}

    def cluster_id(self) -> str | None:
        row = self._database.execute("SELECT value FROM node WHERE path=?", (layout.CLUSTER_ID,)).fetchone()
        try:
            return None if row is None else layout.read_cluster_id(layout.CLUSTER_ID, row[0])
        except layout.DamagedFact as error:
            raise BackupError(f"{self.path}: {error}") from None

    def copy_to(self, target: Path) -> None:
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
            with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                copy.execute("PRAGMA synchronous=OFF")  # the backup syncs all of its files at the end
                self._database.backup(copy)
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def close(self) -> None:
        self._database.close()

    def _failure(self, error: sqlite3.Error) -> BackupError:
        return BackupError(f"cannot read the cluster's metadata in {self.path}: {error}")


def skip_producer_ids(path: Path) -> None:
    """Let a restored tree begin with producer ids far behind its own. Raises BackupError."""
    try:
        with closing(SqliteTree(path)) as tree, closing(tree.session()) as session:
            node = session.read(layout.PRODUCER_ID_BLOCK)
            if node is None:
                return
            _, last = layout.read_producer_id_block(node.path, node.value)
            skipped = last + SKIPPED_PRODUCER_IDS
            if skipped < INT64_MAX // 2:
                value = layout.producer_id_block_value(BrokerId(-1), last + 1, skipped)
                session.commit([Set(node.path, value, node.version)])
    except (TreeUnusable, TreeUnavailable, layout.DamagedFact) as error:
        raise BackupError(f"the backup's metadata of the cluster cannot be used: {error}") from None
