"""One segment of a log: its file of batches and the three indexes beside it.

Only the newest segment grows, and only at its end. Its offset and time index live in memory and are written at its
sealing, at checkpoints and at shutdown. Indexes of sealed segments are read on demand and dropped under
:class:`IndexBudget`. No file is opened before it is needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from oncelog.base.units import MIB, MINUTE_MS
from oncelog.ports import Buffer, Files, OpenFile
from oncelog.records.batch import HEADER_SIZE, BatchHeader
from oncelog.records.latest_timestamp import hides_timestamps, latest_timestamp
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import LOG, OFFSET_INDEX, SEGMENT_FILES, TIME_INDEX, TRANSACTION_INDEX, segment_file
from oncelog.storage.index.offset_index import OffsetIndex, load_offset_index
from oncelog.storage.index.time_index import NO_TIMESTAMP, TimeIndex, load_time_index
from oncelog.storage.index.transaction_index import ENTRY_SIZE, AbortedTransaction, load_transaction_index
from oncelog.storage.segment.batch_scan import LOOKUP_CHUNK, SCAN_CHUNK, iter_batches
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.index_builder import IndexBuilder

_MAX_INDEX_BYTES: Final = 64 * MIB
"""The largest valid index; a larger file is damaged."""
_HEADERS_CHUNK: Final = 4 << 10
"""Bytes of a read for headers alone: the rest of large batches is skipped."""
_USUAL_DELAY_MS: Final = MINUTE_MS
"""From a record's timestamp to its append."""


class Segment:
    """``size_bytes``: length of the valid part of the file."""

    __slots__ = (
        "_aborted",
        "_budget",
        "_bytes_since_index_entry",
        "_damaged",
        "_directory",
        "_file",
        "_files",
        "_index_written",
        "_max_timestamp",
        "_offset_index",
        "_sealed",
        "_suffix",
        "_time_index",
        "_time_index_written",
        "_transaction_file",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "size_bytes",
        "timestamps_checked",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, size_bytes: int, budget: IndexBudget, suffix: str = ""
    ) -> None:
        self._files = files
        self._directory = directory
        self._budget = budget
        self._suffix = suffix
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = -1
        self.first_timestamp: int | None = None
        """Max timestamp of the first batch, for ``segment.ms``; None if unknown."""
        # Older versions believed headers that contradict themselves (latest_timestamp).
        self.timestamps_checked = False
        """True if the largest timestamp is that of the records."""
        self._file: OpenFile | None = None
        self._transaction_file: OpenFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self._bytes_since_index_entry = 0
        self._index_written = self._time_index_written = 0
        self._sealed = True
        self._damaged = False

    def __repr__(self) -> str:
        return f"Segment({self._directory}/{self.base_offset}, {self.size_bytes} bytes)"

    def path(self, extension: str) -> str:
        return f"{self._directory}/{segment_file(self.base_offset, extension, self._suffix)}"

    @property
    def file(self) -> OpenFile:
        if self._file is None:
            self._file = self._files.open(self.path(LOG))
        return self._file

    def begin(self, now_ms: int) -> None:
        self._file = self._files.open(self.path(LOG), create=True)
        self.created_ms = now_ms
        self.timestamps_checked = True
        self.start_growing(OffsetIndex(self.base_offset), TimeIndex(self.base_offset), (NO_TIMESTAMP, -1), [])

    def start_growing(
        self,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        max_timestamp: tuple[int, int],
        aborted: list[AbortedTransaction],
    ) -> None:
        """Hold the state for appends, with nothing of it written yet."""
        self._budget.forget(self)
        self._offset_index, self._time_index, self._aborted = offset_index, time_index, aborted
        self._max_timestamp = max_timestamp
        self._index_written = self._time_index_written = -1
        self._sealed = False
        self._damaged = False

    def unseal(self) -> None:
        """Let the newest segment grow again after a clean start."""
        self.start_growing(self.offset_index, self.time_index, self.max_timestamp, self.aborted)
        self._index_written = len(self.offset_index.data)
        self._time_index_written = len(self.time_index.data)

    def append(self, data: Buffer, last_offset: int, timestamp: int, index_interval_bytes: int) -> int:
        """Returns the position of the batches. ``timestamp`` is their latest."""
        position = self.file.append((data,))
        self.index_appended(position, len(data), last_offset, timestamp, index_interval_bytes)
        return position

    def index_appended(
        self, position: int, size: int, last_offset: int, timestamp: int, index_interval_bytes: int
    ) -> None:
        """The batch is in the file already."""
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp[0]:
            self._max_timestamp = (timestamp, last_offset)
        if self._bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*self.max_timestamp)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size
        self.size_bytes = position + size

    def add_aborted(self, entry: AbortedTransaction) -> bool:
        """Add to the transaction index, in memory and in the file; True if the file is new."""
        file = self._transaction_file or self._files.open(self.path(TRANSACTION_INDEX), create=True)
        file.append((entry.encode(),))
        new = self._transaction_file is None
        self._transaction_file = file
        self.aborted.append(entry)
        return new

    def remove_last_aborted(self) -> None:
        """Remove the last entry: its marker could not be written."""
        self.aborted.pop()
        assert self._transaction_file is not None
        self._transaction_file.truncate(self._transaction_file.size() - ENTRY_SIZE)

    def rewrite_aborted(self) -> None:
        path = self.path(TRANSACTION_INDEX)
        if not self.aborted and self._files.size(path) is None:
            return
        self._transaction_file = self._files.open(path, create=True)
        self._transaction_file.truncate(0)
        self._transaction_file.append([entry.encode() for entry in self.aborted])

    def files_with_data(self) -> list[OpenFile]:
        """The files to sync for the segment's records to be durable, with aborted transactions."""
        files = [self.file]
        if self._transaction_file is not None:
            files.append(self._transaction_file)
        if self._sealed:
            files += [
                self._files.open(path)
                for extension in (OFFSET_INDEX, TIME_INDEX)
                if self._files.size(path := self.path(extension)) is not None
            ]
        return files

    def is_full(self, more_bytes: int, segment_bytes: int, index_bytes: int) -> bool:
        if self.size_bytes > segment_bytes - more_bytes:
            return True
        return len(self.offset_index) >= index_bytes // 8 or len(self.time_index) >= index_bytes // 12 - 1

    def has_room_in_indexes(self, entries: int, index_bytes: int) -> bool:
        """True if both indexes have room for ``entries`` more."""
        return (
            len(self.offset_index) + entries < index_bytes // 8
            and len(self.time_index) + entries < index_bytes // 12 - 1
        )

    def write_indexes(self) -> None:
        """Write the index entries that the files lack, with the largest timestamp at the end."""
        if self._sealed or (not self.size_bytes and self._index_written < 0):
            return
        self.time_index.append(*self.max_timestamp)
        self._index_written = self._write_index(OFFSET_INDEX, self.offset_index.data, self._index_written)
        self._time_index_written = self._write_index(TIME_INDEX, self.time_index.data, self._time_index_written)

    def seal(self) -> None:
        """Indexes are written and may be dropped."""
        self.write_indexes()
        self._sealed = True
        self._budget.used(self)

    def _write_index(self, extension: str, data: bytearray, written: int) -> int:
        if written == len(data):
            return written
        file = self._files.open(self.path(extension), create=True)
        if written < 0 or file.size() != written:
            file.truncate(0)
            written = 0
        file.append((data[written:],))
        return len(data)

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; empty (and to be rebuilt) if its file is damaged or missing."""
        if self._offset_index is None:
            self._load_indexes()
        elif self._sealed:
            self._budget.used(self)
        return self._offset_index  # type: ignore[return-value]  # just loaded

    @property
    def time_index(self) -> TimeIndex:
        """The time index, as :attr:`offset_index`."""
        if self._time_index is None:
            self._load_indexes()
        return self._time_index  # type: ignore[return-value]  # just loaded

    @property
    def aborted(self) -> list[AbortedTransaction]:
        if self._aborted is None:
            self._aborted = self._load_aborted()
        return self._aborted

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """Largest timestamp and the last offset of its batch; (−1, …) without one."""
        if self._max_timestamp is None:
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    @property
    def needs_index(self) -> bool:
        """An index file is damaged: lookups are slow until the rebuild."""
        return self._damaged

    def batches(self, position: int = 0, *, chunk_size: int = LOOKUP_CHUNK) -> Iterator[tuple[int, BatchHeader]]:
        return iter_batches(self.file, position, self.size_bytes, chunk_size)

    def start_of(self, offset: int) -> int:
        """The start position of a search for ``offset``: from the index, or 0 if the indexed batch is not there."""
        claimed, position = self.offset_index.entry_before(offset)
        if position and not self._ends_with(claimed, position):
            self._distrust_index()
            return 0
        return position

    def bound_from(self, position: int) -> int | None:
        """An offset that batches before ``position`` do not reach; None if the index has none."""
        entry = self.offset_index.entry_from(position)
        if entry is None or self._ends_with(*entry):
            return None if entry is None else entry[0]
        self._distrust_index()
        return None

    def find(self, offset: int, from_position: int = 0) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at or after ``offset``, or None."""
        for position, header in self.batches(max(from_position, self.start_of(offset))):
            if header.last_offset >= offset:
                return position, header
        return None

    def next_offset(self) -> int:
        """The offset after the last batch: the next segment's base, or the log's end."""
        last_offset, position = self.offset_index.last()
        following = self.base_offset if not self.size_bytes else last_offset
        for _, header in self.batches(position, chunk_size=SCAN_CHUNK):
            following = header.next_offset
        return following

    def ends_whole(self) -> bool:
        """True if the file ends with its last batch. Readers cannot pass other bytes."""
        position = self.offset_index.last()[1] if self.size_bytes else 0
        for at, header in self.batches(position, chunk_size=SCAN_CHUNK):
            position = at + header.size_bytes
        return position == self.size_bytes

    def first_batch_timestamp(self) -> int:
        """Max timestamp of the first batch, −1 if the segment is empty."""
        if self.first_timestamp is None:
            for _, header in self.batches():
                self.first_timestamp = header.max_timestamp
                if self.first_timestamp < 0 and hides_timestamps(header):
                    self.first_timestamp = min(header.base_timestamp, self._files.modified_ms(self.path(LOG)))
                break
            else:
                return NO_TIMESTAMP
        return self.first_timestamp

    def largest_timestamp(self) -> int:
        """The timestamp for retention: the largest of the records, or the file's if they have none."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path(LOG))

    def may_hide(self, timestamp: int) -> bool:
        """True if headers may hide records at or after ``timestamp``: the largest timestamp is earlier, the file was
        written later."""
        if self.timestamps_checked or self.max_timestamp[0] >= timestamp:
            return False
        return self._files.modified_ms(self.path(LOG)) >= timestamp

    def seems_to_hide(self) -> bool:
        """True if the file was written long after its largest timestamp."""
        return self.may_hide(self._files.modified_ms(self.path(LOG)) - _USUAL_DELAY_MS)

    def true_max_timestamp(self, max_bytes: int) -> Generator[None, None, tuple[int, int]]:
        """The correct :attr:`max_timestamp`, from all headers and the records of batches with an impossible one. Pauses
        after some megabytes. Changes nothing, so a worker can take it."""
        largest = self.time_index.last()
        done = 0
        for position, header in self.batches(chunk_size=_HEADERS_CHUNK):
            latest = header.max_timestamp
            if hides_timestamps(header):
                data = self.file.read(position, header.size_bytes)
                latest = latest_timestamp(data, 0, header, max_bytes)
            if latest > largest[0]:
                largest = (latest, header.last_offset)
            done += header.size_bytes
            if done >= SCAN_CHUNK:
                done = 0
                yield
        return largest

    def set_true_max_timestamp(self, largest: tuple[int, int]) -> None:
        """Apply the result of :meth:`true_max_timestamp`; appends since then are counted already."""
        self.timestamps_checked = True
        if largest[0] > self.max_timestamp[0]:
            self._max_timestamp = largest

    def index_bytes(self) -> int:
        offsets = 0 if self._offset_index is None else len(self._offset_index.data)
        return offsets + (0 if self._time_index is None else len(self._time_index.data))

    def forget_indexes(self) -> None:
        if self._sealed:
            self._offset_index = self._time_index = None
            if self._file is not None:
                self._file.close()

    def replace_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Install rebuilt indexes, in memory and on disk. No effect on a growing segment."""
        if not self._sealed:
            return
        self._budget.forget(self)
        self._offset_index, self._time_index, self._damaged = offset_index, time_index, False
        self._write_index(OFFSET_INDEX, offset_index.data, -1)
        self._write_index(TIME_INDEX, time_index.data, -1)
        self._budget.used(self)

    def _load_indexes(self) -> None:
        self._offset_index, self._time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        if self.size_bytes:
            try:
                offsets = load_offset_index(self._content(OFFSET_INDEX), self.base_offset, self.size_bytes)
                self._check_last_entry(offsets)
                self._offset_index = offsets
                self._time_index = load_time_index(self._content(TIME_INDEX), self.base_offset)
            except (CorruptFile, FileNotFoundError):
                self._damaged = True
        if self._sealed:
            self._budget.used(self)

    def _check_last_entry(self, index: OffsetIndex) -> None:
        """Check the last entry, where a torn write would show. Raises CorruptFile."""
        if len(index) and not self._ends_with(*index.last()):
            raise CorruptFile(
                "offset index has offset {} at position {}, where no batch ends with it".format(*index.last())
            )

    def _ends_with(self, offset: int, position: int) -> bool:
        """True if the batch at ``position`` ends with ``offset``, as an index entry claims."""
        for _, header in iter_batches(self.file, position, self.size_bytes, HEADER_SIZE):
            return header.last_offset == offset
        return False

    def _distrust_index(self) -> None:
        """Drop an index with a wrong entry: lookups do without until the rebuild after the segment's sealing."""
        self._offset_index, self._index_written, self._damaged = OffsetIndex(self.base_offset), -1, True

    def _load_aborted(self) -> list[AbortedTransaction]:
        path = self.path(TRANSACTION_INDEX)
        if self._files.size(path) is None:
            return []
        self._transaction_file = self._files.open(path)
        return load_transaction_index(self._content(TRANSACTION_INDEX), self.base_offset)

    def _content(self, extension: str) -> bytes:
        file = self._files.open(self.path(extension))
        size = file.size()
        if size > _MAX_INDEX_BYTES:
            raise CorruptFile(f"{extension} file of {size} bytes exceeds {_MAX_INDEX_BYTES}")
        data = file.read(0, size)
        file.close()
        return data

    def _find_max_timestamp(self) -> tuple[int, int]:
        largest = self.time_index.last()
        for _, header in self.batches(self.start_of(largest[1]), chunk_size=SCAN_CHUNK):
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        return largest

    def cut(self, end: int, index_interval_bytes: int, now_ms: int) -> Segment:
        """The segment without the batches from offset ``end`` on, growing again. The file is cut and synced; this
        object must not be used afterwards."""
        batch = self.find(end)
        position = self.size_bytes if batch is None else batch[0]
        short = Segment(self._files, self._directory, self.base_offset, position, self._budget)
        short.created_ms = self.created_ms if position else now_ms
        short.first_timestamp = self.first_timestamp if position else None
        kept = [entry for entry in self.aborted if entry.last_offset < end]
        # Indexes, index interval and largest timestamp are as if the rest had never been appended.
        short._take_indexes(self, end, kept, index_interval_bytes)
        self.file.truncate(position)
        if self._transaction_file is not None and len(kept) < len(self.aborted):
            self._transaction_file.truncate(len(kept) * ENTRY_SIZE)
            self._transaction_file.sync()
        short._transaction_file = self._transaction_file
        if not position:
            for extension in (OFFSET_INDEX, TIME_INDEX):
                self._files.remove(self.path(extension))
        self.file.sync()
        self._budget.forget(self)
        return short

    def _take_indexes(self, whole: Segment, end: int, kept: list[AbortedTransaction], interval_bytes: int) -> None:
        """Grow from the indexes of ``whole`` before ``end``."""
        offsets, times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        if self.size_bytes and (not whole.offset_index.data or whole.needs_index):
            builder = IndexBuilder(self.base_offset, interval_bytes)
            for position, header in iter_batches(whole.file, 0, self.size_bytes, SCAN_CHUNK):
                builder.add(position, header)
            offsets, times = builder.offsets, builder.times
        elif self.size_bytes:
            offsets.data += whole.offset_index.data
            offsets.truncate(end)
            times.data += whole.time_index.data
            # The last entry of a sealed segment was added by the sealing, not by a batch.
            times.truncate(offsets.last()[0] + 1 if offsets.data else self.base_offset)
        self.start_growing(offsets, times, (NO_TIMESTAMP, -1), kept)
        self._bytes_since_index_entry = self.size_bytes - (offsets.last()[1] if offsets.data else 0)
        if self.size_bytes:
            self._file = whole.file
            self._max_timestamp = self._find_max_timestamp()

    def rename(self, suffix: str, extensions: tuple[str, ...] = SEGMENT_FILES) -> None:
        old = [(self.path(extension), extension) for extension in extensions]
        self._suffix = suffix
        for path, extension in old:
            if extension == LOG or self._files.size(path) is not None:
                self._files.rename(path, self.path(extension))

    def remove(self) -> None:
        """Remove the files; readers that have them open continue."""
        self._budget.forget(self)
        for extension in SEGMENT_FILES:
            self._files.remove(self.path(extension))

    def adopt(self, budget: IndexBudget) -> None:
        """Join a log's budget: a segment that compaction made."""
        self._budget.forget(self)
        self._budget = budget

    def moved_to(self, directory: str) -> None:
        self._directory = directory
