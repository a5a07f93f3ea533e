"""Compacts a log: maps the dirty keys, writes cleaned segments beside the old ones, and swaps them in.

Crash-safe as in Apache Kafka: new files are ``.cleaned`` until they are synced (dropped at the next start), then
``.swap`` (from here on they count) while the old ones become ``.deleted``; ``recovery`` completes an interrupted swap.
Readers continue in the old files. The worker sees only :class:`Source` values, taken on the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.base.units import KIB, MIB
from oncelog.ports import OpenFile
from oncelog.records.batch import BatchHeader, Buffer, CorruptBatch, crc_matches, read_header
from oncelog.records.control import ControlType, control_type
from oncelog.records.latest_timestamp import latest_timestamp
from oncelog.records.record import read_records, records_in
from oncelog.storage.file_names import CLEANED, SWAP
from oncelog.storage.index.transaction_index import AbortedTransaction
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.maintenance.batch_filter import BatchFilter, LastRecord, OffsetMap, limited_records
from oncelog.storage.maintenance.compacted_transactions import WalkedTransactions
from oncelog.storage.maintenance.dirty_section import Cleanable, group_by_size
from oncelog.storage.maintenance.jobs import COMPACTION, JobOwner
from oncelog.storage.segment.batch_scan import iter_batches
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment

_READ_BYTES: Final = MIB
_SLICE_BYTES: Final = 256 * KIB


class _LogGone(Exception):
    """The log was deleted, closed or truncated during its compaction: the job ends without an error."""


class Source(NamedTuple):
    """A sealed segment as it was when the job was made."""

    segment: Segment
    file: OpenFile
    size_bytes: int
    end_offset: int

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch. Raises CorruptBatch instead of treating the rest as empty."""
        end = 0
        for position, header in iter_batches(self.file, 0, self.size_bytes, _READ_BYTES):
            yield position, header
            end = position + header.size_bytes
        if end != self.size_bytes:
            raise CorruptBatch(
                f"segment {self.segment.base_offset}: no batch at {end}, the file has {self.size_bytes} bytes"
            )

    def read(self, position: int, header: BatchHeader) -> Buffer:
        """Raises CorruptBatch if the batch's checksum differs."""
        data = self.file.read(position, header.size_bytes)
        if not crc_matches(data, 0, header):
            # A rewrite would give damaged records a valid checksum.
            raise CorruptBatch(f"segment {self.segment.base_offset}: checksum of the batch at {position} differs")
        return data


class Compact:
    name = COMPACTION

    def __init__(self, log: PartitionLog, owner: JobOwner, dirty: Cleanable, now_ms: int) -> None:
        self.partition = log.partition
        self._log = log
        self._owner = owner
        self._truncations = log.truncations
        self._dirty = dirty
        self._now_ms = now_ms
        self._config = log.config
        self._limit = log.storage.max_decompressed_bytes
        self._offsets = OffsetMap(log.storage.cleaner_dedupe_buffer_bytes)
        self._sources = [
            Source(segment, segment.file, segment.size_bytes, end)
            for index, segment in enumerate(log.segments.sealed())
            if (end := log.segments.end_of(index, log.log_end_offset)) <= dirty.upper_bound
        ]
        # An aborted transaction is indexed with its marker, maybe segments after its data and not sealed yet.
        self._aborted: tuple[AbortedTransaction, ...] = tuple(
            entry for segment in log.segments for entry in segment.aborted if entry.first_offset < dirty.upper_bound
        )
        self._last_records = {
            entry.producer_id: LastRecord(entry.last_data_offset, entry.epoch)
            for entry in log.producers.entries.values()
        }
        self._budget = IndexBudget()
        self._results: list[tuple[list[Segment], Segment]] = []
        self._groups = self._group()

    def _group(self) -> list[list[Source]]:
        ends = [source.end_offset for source in self._sources]
        segments = [source.segment for source in self._sources]
        config = self._config
        groups = group_by_size(segments, ends, config.segment_bytes, config.segment_index_bytes)
        by_segment = {id(source.segment): source for source in self._sources}
        return [[by_segment[id(segment)] for segment in group] for group in groups]

    def run(self) -> Iterator[None]:
        try:
            yield from self._compact()
        except Exception:
            if not self._is_gone():  # otherwise files were cut or closed during a read
                raise

    def _compact(self) -> Iterator[None]:
        yield from self._map_keys()
        end = self._offsets.latest_offset + 1
        transactions = WalkedTransactions()
        transactions.add_aborted(self._aborted)
        keep = BatchFilter(
            self._offsets,
            transactions,
            self._last_records,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            upper_bound=self._dirty.upper_bound,
            max_decompressed_bytes=self._limit,
            max_record_bytes=self._config.max_decompressed_message_bytes,
        )
        for group in self._groups:
            if group[0].segment.base_offset < end:
                yield from self._clean(group, transactions, keep)

    def _map_keys(self) -> Iterator[None]:
        """Fill the offset map from the dirty segments, as far as it goes."""
        first_dirty = self._dirty.first_dirty
        dirty = [source for source in self._sources if source.end_offset > first_dirty]
        transactions = WalkedTransactions()
        if dirty:  # a transaction with an earlier marker would never end in this walk
            start = dirty[0].segment.base_offset
            transactions.add_aborted(entry for entry in self._aborted if entry.last_offset >= start)
        for source in dirty:
            self._stop_if_gone()
            done = 0
            for position, header in source.headers():
                if not self._map_batch(source, position, header, transactions):
                    return
                done += header.size_bytes
                if done >= _SLICE_BYTES:
                    done = 0
                    yield
                    self._stop_if_gone()
            self._offsets.latest_offset = source.end_offset - 1
            yield

    def _map_batch(self, source: Source, position: int, header: BatchHeader, transactions: WalkedTransactions) -> bool:
        """False if the map is full."""
        if header.is_control:
            transactions.on_marker(header, self._kind(source, position, header))
        elif not transactions.on_batch(header) and header.last_offset >= self._dirty.first_dirty:
            data = source.read(position, header)
            body = limited_records(data, header, self._limit, self._config.max_decompressed_message_bytes)
            for record in records_in(body, header):
                if record.key is not None and record.offset >= self._dirty.first_dirty:
                    if self._offsets.is_full():
                        return False
                    self._offsets.put(record.key, record.offset)
        self._offsets.latest_offset = max(self._offsets.latest_offset, header.last_offset)
        return True

    def _kind(self, source: Source, position: int, header: BatchHeader) -> ControlType | None:
        data = source.read(position, header)
        for record in read_records(data, 0, header, self._limit):
            return control_type(record.key)
        return None

    def _is_gone(self) -> bool:
        """True if the directory may belong to another log by now, or a later value of a key was truncated."""
        return self._log.closed or self._log.truncations != self._truncations

    def _stop_if_gone(self) -> None:
        if self._is_gone():
            raise _LogGone

    def _clean(self, group: list[Source], transactions: WalkedTransactions, keep: BatchFilter) -> Iterator[None]:
        self._stop_if_gone()
        log = self._log
        base = group[0].segment.base_offset
        target = Segment(log.files, log.directory, base, 0, self._budget, CLEANED)
        target.remove()
        target.begin(self._now_ms)
        self._results.append(([source.segment for source in group], target))
        for source in group:
            self._stop_if_gone()
            done = 0
            for position, header in source.headers():
                kept = keep.retain(header, source.read(position, header))
                if kept is not None:
                    timestamp = latest_timestamp(kept, 0, read_header(kept), self._limit)
                    target.append(kept, header.last_offset, timestamp, self._config.index_interval_bytes)
                done += header.size_bytes
                if done >= _SLICE_BYTES:
                    done = 0
                    yield
                    self._stop_if_gone()
            yield
        for entry in transactions.take_retained():
            target.add_aborted(entry)
        target.write_indexes()
        for file in target.files_with_data():
            file.sync()
        yield

    def apply(self) -> None:
        log = self._log
        self._owner.finished(self)
        if self._is_gone() or not self._results:
            self._discard()
            return
        complete = True
        for old, new in self._results:
            if not all(segment in log.segments for segment in old):
                new.remove()
                complete = False
                continue
            new.rename(SWAP)
            new.adopt(log.budget)
            log.segments.replace(old, new)
            log.retire(old, self._now_ms, replaced_by=new)
            new.rename("")
            new.seal()
        if complete:
            log.cleaned_offset = max(log.cleaned_offset, self._offsets.latest_offset + 1)

    def abandon(self) -> None:
        self._owner.finished(self, failed=not self._is_gone())
        self._discard()

    def _discard(self) -> None:
        for _, new in self._results:
            new.remove()
