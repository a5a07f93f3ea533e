"""The files of a log that are not on disk yet."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.ports import Buffer, Files, OpenFile
from oncelog.storage.segment.segment import Segment


class FileAndDirectory:
    """A file that is new in its directory: its sync syncs the directory entry, too."""

    __slots__ = ("_directories", "_file", "_files")

    def __init__(self, file: OpenFile, files: Files, directories: Sequence[str]) -> None:
        self._file = file
        self._files = files
        self._directories = directories

    def size(self) -> int:
        return self._file.size()

    def append(self, chunks: Sequence[Buffer]) -> int:
        return self._file.append(chunks)

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        return self._file.read_cached(position, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()
        for directory in self._directories:
            self._files.sync_directory(directory)

    def close(self) -> None:
        self._file.close()


class UnsyncedFiles:
    """Sealed segments whose end is not durable, and new files whose name is not."""

    __slots__ = ("_cut", "_directory", "_files", "_first", "_new", "_sealed", "topic_file")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._sealed: list[tuple[int, list[OpenFile]]] = []
        self._new: list[int] = []
        """Offsets at which a file appeared in the directory."""
        self._first = True
        """True until the first sync: the directory may be new in the data directory, or unsynced by the last run."""
        self.topic_file: OpenFile | None = None
        """The file of the log's topic id, while it has to become durable with the first records."""
        self._cut: int | None = None
        """Offset of a truncation during the running sync."""

    def sealed(self, files: list[OpenFile], end_offset: int) -> None:
        """Keep a sealed segment's files, and the snapshot at its end, for the next sync."""
        self._sealed.append((end_offset, files))

    def file_appeared(self, offset: int) -> None:
        """Let the next sync make a name durable: a file that the record at ``offset`` needs was created or replaced."""
        self._new.append(offset)

    @property
    def is_new(self) -> bool:
        return self._first

    @property
    def has_sealed(self) -> bool:
        return bool(self._sealed)

    def files(self, active: Segment) -> list[OpenFile]:
        pending: list[OpenFile] = []
        for _, files in self._sealed:
            pending += files
        if self.topic_file is not None:
            pending.append(self.topic_file)
        pending += active.files_with_data()
        if self._first:
            pending[-1] = FileAndDirectory(pending[-1], self._files, (self._directory, ""))
        elif self._new:
            pending[-1] = FileAndDirectory(pending[-1], self._files, (self._directory,))
        return pending

    def start_sync(self) -> None:
        self._cut = None

    def still_valid_end(self, upto: int) -> int:
        """The offset up to which a sync of everything before ``upto`` counts: records appended after a truncation are
        not covered."""
        return upto if self._cut is None else min(upto, self._cut)

    def truncated(self, offset: int) -> None:
        """Drop files from ``offset`` on: their records have left the log, and the directory was synced."""
        self._cut = offset if self._cut is None else min(self._cut, offset)
        self._sealed = [(end, files) for end, files in self._sealed if end <= offset]
        self._new.clear()

    def synced(self, upto: int) -> None:
        if self._sealed:
            self._sealed = [(end, files) for end, files in self._sealed if end > upto]
        self._first = False
        if self.topic_file is not None:
            self.topic_file.close()
            self.topic_file = None
        if self._new:
            self._new = [base for base in self._new if base >= upto]
