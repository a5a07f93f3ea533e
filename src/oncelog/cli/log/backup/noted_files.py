"""The files of one broker, noted while it stands still: their names and sizes, and open descriptors."""

# An open file stays readable when retention or compaction removes it, so a note taken in a moment can be copied at
# leisure. Logs only grow at their end, and other files are replaced by new ones: the first ``size`` bytes stay. Files
# beyond the limit of descriptors are opened later, if they are still there.

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.base.ids import partition_of_directory
from oncelog.base.text import counted
from oncelog.cli.log.backup.manifest import BackupError
from oncelog.listening.descriptors import limit
from oncelog.runtime.data.broker_hold import BrokerHold, HeldState, NotHeld
from oncelog.runtime.data.data_directory import TREE_FILE
from oncelog.runtime.data.disk_files import LOCK_FILE, DirectoryInUse, DiskFiles
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.file_names import (
    CLEANED,
    DELETE_DIRECTORY,
    DELETED,
    LOG,
    META_PROPERTIES,
    STRAY_DIRECTORY,
    SWAP,
    TEMPORARY,
    is_marked_directory,
)
from oncelog.storage.meta_properties import MetaProperties, read_meta_properties

_OF_THE_PROCESS: Final = (LOCK_FILE, TREE_FILE, "flight-recording")
"""Beginnings of names in a data directory that are not copied: locks, the tree (copied by SQLite), recordings."""


UNOPENED: Final = -1
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class NotedFile(NamedTuple):
    path: str
    """Below the data directory."""
    size: int
    modified_ns: int
    source: tuple[int, int]
    """Device and inode."""
    descriptor: int
    """``UNOPENED``: opened when it is copied."""

    def is_log(self) -> bool:
        return self.path.endswith(LOG)


class BrokerFiles:
    """The data directory of one broker. A running one can be held; a stopped one is locked until ``close``."""

    def __init__(self, directory: Path, most_open: int) -> None:
        """``most_open`` files are kept open. Raises BackupError."""
        self.directory = directory
        self._most_open = most_open
        self._open = 0
        self.hold: BrokerHold | None = None
        self.state: HeldState | None = None
        self.notes: dict[str, NotedFile] = {}
        if not (directory / META_PROPERTIES).exists():
            raise BackupError(f"{directory} is not the data directory of a broker: it has no {META_PROPERTIES}")
        self._files = DiskFiles(directory)
        try:
            self.properties = self._properties()
            self._lock_or_connect()
        except BaseException:
            self.close()
            raise

    def _properties(self) -> MetaProperties:
        try:
            properties = read_meta_properties(self._files)
        except UnusableDirectory as error:
            raise BackupError(f"{self.directory}: {error}") from None
        assert properties is not None
        return properties

    def _lock_or_connect(self) -> None:
        try:
            self._files.lock()
        except DirectoryInUse:
            try:
                self.hold = BrokerHold(self.directory / LOCK_FILE)
                self.state = self.hold.state()
            except NotHeld as error:
                raise BackupError(
                    f"a broker runs on {self.directory}, and {error}; stop it, or run this command beside it"
                ) from None

    def note(self) -> None:
        """Note the files as they are now, and open those that are not open yet. Raises BackupError."""
        before, self.notes = self.notes, {}
        for directory in ("", *self._partition_directories()):
            with suppress(FileNotFoundError):  # deleted in between; cannot happen while the broker is held
                for entry in self._entries(directory):
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    self._note(path, entry, before.get(path))
        kept = {note.descriptor for note in self.notes.values()}
        self._close(note for note in before.values() if note.descriptor not in kept)

    def _partition_directories(self) -> Iterator[str]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                name = entry.name
                is_deleted = is_marked_directory(name) and name.endswith(DELETE_DIRECTORY)
                is_log = partition_of_directory(name) is not None or name.endswith(STRAY_DIRECTORY)
                if is_log and not is_deleted and entry.is_dir(follow_symlinks=False):
                    yield name

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        with os.scandir(self.directory / directory) as scanned:
            entries = [entry for entry in scanned if entry.is_file(follow_symlinks=False)]
        if not directory:
            return [entry for entry in entries if not entry.name.startswith(_OF_THE_PROCESS) and _is_kept(entry.name)]
        # Unfinished files of a compaction matter only beside those that it was about to swap in.
        is_swapping = any(entry.name.endswith(SWAP) for entry in entries)
        return [entry for entry in entries if _is_kept(entry.name) or (is_swapping and entry.name.endswith(CLEANED))]

    def _note(self, path: str, entry: os.DirEntry[str], before: NotedFile | None) -> None:
        status = entry.stat(follow_symlinks=False)
        source = (status.st_dev, status.st_ino)
        descriptor = UNOPENED
        if before is not None and before.source == source:
            descriptor = before.descriptor
        if descriptor == UNOPENED and self._open < self._most_open:
            descriptor = os.open(self.directory / path, _FLAGS)
            self._open += 1
            status = os.fstat(descriptor)
            source = (status.st_dev, status.st_ino)
        self.notes[path] = NotedFile(path, status.st_size, status.st_mtime_ns, source, descriptor)

    @contextmanager
    def opened(self, note: NotedFile) -> Iterator[int]:
        """The descriptor of a noted file. Raises BackupError if it was not kept open and is gone."""
        if note.descriptor != UNOPENED:
            yield note.descriptor
            return
        for suffix in ("", DELETED):
            with suppress(FileNotFoundError):
                descriptor = os.open(self.directory / (note.path + suffix), _FLAGS)
                try:
                    status = os.fstat(descriptor)
                    if (status.st_dev, status.st_ino) == note.source:
                        yield descriptor
                        return
                finally:
                    os.close(descriptor)
        raise BackupError(
            f"{self.directory / note.path} was removed or replaced before it was copied, and this process may not keep "
            f"more than {counted(limit(), 'file')} open: raise the limit with ulimit -Hn, and run the command again"
        )

    def close(self) -> None:
        self._close(self.notes.values())
        self.notes = {}
        if self.hold is not None:
            self.hold.close()
        self._files.close()

    def _close(self, notes: Iterable[NotedFile]) -> None:
        for note in notes:
            if note.descriptor != UNOPENED:
                os.close(note.descriptor)
                self._open -= 1


def _is_kept(name: str) -> bool:
    return not name.endswith((CLEANED, DELETED, TEMPORARY))
