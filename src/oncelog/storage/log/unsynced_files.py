"""The files of a log that are not on disk yet."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.ports import Buffer, Files, OpenFile
from oncelog.storage.segment.segment import Segment


class FileAndDirectory:
    """A file that is new in its directory: its sync makes the directory's entry durable too."""

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
    """Sealed segments whose end is not durable, and new ones whose name is not."""

    __slots__ = ("_cut", "_directory", "_files", "_first", "_new", "_sealed", "topic_file")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._sealed: list[tuple[int, list[OpenFile]]] = []
        self._new: list[int] = []
        """Offsets at which a file appeared in the directory."""
        self._first = True
        """True until the first sync: the directory may be new in the data directory, and the last run may not have
        synced what is in it."""
        self.topic_file: OpenFile | None = None
        """The file of the log's topic id, while it has to become durable with the first records."""
        self._cut: int | None = None
        """Offset to which the log was truncated since the sync that is under way began, if it was."""

    def sealed(self, files: list[OpenFile], end_offset: int) -> None:
        """Keep the files of a segment that does not grow any more, and the snapshot at its end, for the next sync."""
        self._sealed.append((end_offset, files))

    def file_appeared(self, offset: int) -> None:
        """Let the next sync make a name durable: a file that the record at ``offset`` needs was created or replaced."""
        self._new.append(offset)

    @property
    def is_new(self) -> bool:
        """True before the first sync."""
        return self._first

    @property
    def has_sealed(self) -> bool:
        """True if sealed segments are among them."""
        return bool(self._sealed)

    def files(self, active: Segment) -> list[OpenFile]:
        """The files that must be synced for the log to be durable up to its end."""
        found: list[OpenFile] = []
        for _, files in self._sealed:
            found += files
        if self.topic_file is not None:
            found.append(self.topic_file)
        found += active.files_with_data()
        if self._first:
            found[-1] = FileAndDirectory(found[-1], self._files, (self._directory, ""))
        elif self._new:
            found[-1] = FileAndDirectory(found[-1], self._files, (self._directory,))
        return found

    def start_sync(self) -> None:
        """Take note that a sync of all that is in the log begins."""
        self._cut = None

    def still_valid_end(self, upto: int) -> int:
        """The offset up to which the finished sync of all before ``upto`` counts: records that were appended in the
        place of truncated ones are not on disk by it."""
        return upto if self._cut is None else min(upto, self._cut)

    def truncated(self, offset: int) -> None:
        """Drop files from ``offset`` on: their records have left the log, and the directory was synced since."""
        self._cut = offset if self._cut is None else min(self._cut, offset)
        self._sealed = [(end, files) for end, files in self._sealed if end <= offset]
        self._new.clear()

    def synced(self, upto: int) -> None:
        """Drop the files of records before ``upto``: they are on disk."""
        if self._sealed:
            self._sealed = [(end, files) for end, files in self._sealed if end > upto]
        self._first = False
        if self.topic_file is not None:
            self.topic_file.close()
            self.topic_file = None
        if self._new:
            self._new = [base for base in self._new if base >= upto]
