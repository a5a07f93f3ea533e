"""The tree's position read on the loop's thread: no lock of this process, and no wait for a commit of any other."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from oncelog.coordination.sqlite.journal import position_of


class NewestPosition:
    """Used by one thread, beside those that write and follow."""

    def __init__(self, path: Path) -> None:
        # Never creates the file: it may have been moved.
        self._address = f"{path.absolute().as_uri()}?mode=rw"
        self._database: sqlite3.Connection | None = None
        self._data_version = -1
        self._position = 0

    def read(self) -> int | None:
        """The position of the last commit of any process; None if it cannot be read at once."""
        try:
            if self._database is None:
                # A time-out of 0: a file that is being recovered is not waited for.
                self._database = sqlite3.connect(
                    self._address, uri=True, isolation_level=None, check_same_thread=False, timeout=0
                )
            # Another version means that a commit has been made since; the journal's read takes three times as long.
            (data_version,) = self._database.execute("PRAGMA data_version").fetchone()
            if data_version != self._data_version:
                self._position, self._data_version = position_of(self._database), data_version
        except sqlite3.Error:
            return None
        return self._position

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
