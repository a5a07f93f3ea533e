"""The producer snapshot files of one log: written at a roll and at shutdown, pruned, and read when the log is opened.

One at every segment's base offset, so that recovering that segment can begin there, and one at the log's end after a
clean shutdown. A damaged one is removed and the one before it is used.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from oncelog.core.producers.state import ProducerState
from oncelog.ports import Files, OpenFile
from oncelog.storage.checkpoints import read_file
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import SNAPSHOT, segment_file
from oncelog.storage.snapshots.producer_snapshot import decode_snapshot, encode_snapshot


class Snapshots:
    """Offsets of the files that exist, rising."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def take(self, state: ProducerState, log_start_offset: int) -> None:
        """Write the state as of its end offset, unless there is a file for that offset already.

        Not synced: one that a power cut damages or removes is made up for by an older one and the batches after it.
        """
        if state.end_offset <= (self.offsets[-1] if self.offsets else log_start_offset):
            return
        file = self._files.open(self._path(state.end_offset), create=True)
        file.truncate(0)
        file.append((encode_snapshot(state.entries.values()),))
        file.close()
        insort(self.offsets, state.end_offset)

    def load_into(self, state: ProducerState, first_offset: int, log_end_offset: int, expired_before: int) -> None:
        """Set ``state`` from the newest sound snapshot; files outside the log are removed.

        ``first_offset`` is where the first segment begins: a snapshot there still tells of producers whose records are
        gone (Apache Kafka drops it at a restart, and with it what the running broker knew).
        Producers without an open transaction whose last batch is at or before ``expired_before`` are left out.
        """
        for offset in list(self.offsets):
            if offset > log_end_offset or offset < first_offset:
                self.remove(offset)
        while self.offsets:
            offset = self.offsets[-1]
            try:
                entries = decode_snapshot(read_file(self._files, self._path(offset)) or b"")
            except CorruptFile:
                self.remove(offset)
                continue
            alive = (
                entry
                for entry in entries
                if entry.transaction_first_offset is not None or entry.last_timestamp > expired_before
            )
            state.load(alive, offset)
            return
        state.load((), first_offset)

    def file_at(self, offset: int) -> OpenFile | None:
        """The file for ``offset``, if there is one."""
        return self._files.open(self._path(offset)) if offset in self.offsets else None

    def keep_only(self, base_offsets: Iterable[int]) -> None:
        """Remove files that no segment begins at, except the newest."""
        wanted = set(base_offsets)
        for offset in self.offsets[:-1]:
            if offset not in wanted:
                self.remove(offset)

    def remove(self, offset: int) -> None:
        """Remove one file."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._files.remove(self._path(offset))

    def moved_to(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self._directory = directory

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_file(offset, SNAPSHOT)}"
