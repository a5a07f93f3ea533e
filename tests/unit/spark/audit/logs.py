"""Builds data directories for the audit: sound logs with their indexes and snapshots, which a test then damages.

Nothing validates what is appended, so that a log can hold what no broker would have let in. Times are ``TIME`` plus the
offset in seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oncelog.core.producers.entry import BatchMetadata, ProducerEntry
from oncelog.records.batch import read_header
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.internal.group_records import (
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.spark.audit.audit_context import Limits
from oncelog.spark.audit.directories import plan
from oncelog.spark.audit.engines.local_engine import LocalEngine
from oncelog.spark.audit.model import Finding
from oncelog.spark.audit.pipeline import AuditResult, audit
from oncelog.storage.index.transaction_index import AbortedTransaction
from oncelog.storage.producer_snapshots import encode_snapshot

TIME = 1_700_000_000_000
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
INDEX_INTERVAL = 150


class Log:
    """One partition's log: segments of batches, in memory until ``write``."""

    def __init__(self, directory: Path, topic: str, partition: int = 0, *, start: int = 0) -> None:
        self.path = directory / f"{topic}-{partition}"
        self.topic, self.partition = topic, partition
        self.end = start
        self.segments: dict[int, list[bytes]] = {start: []}
        self.snapshots: dict[int, bytes] = {}
        self._producers: dict[int, ProducerEntry] = {}
        self._aborted: dict[int, list[AbortedTransaction]] = {start: []}

    @property
    def base(self) -> int:
        return max(self.segments)

    def data(
        self,
        pid: int = 7,
        epoch: int = 0,
        sequence: int = 0,
        count: int = 2,
        *,
        transactional: bool = True,
        size: int = 4,
    ) -> int:
        """A data batch; the offset it begins at."""
        records = [Record(self.end + i, self.now(), b"k", b"v" * size) for i in range(count)]
        batch = build_batch(
            records, base_offset=self.end, producer_id=pid, producer_epoch=epoch, base_sequence=sequence,
            transactional=transactional,
        )  # fmt: skip
        at = self.append(batch)
        entry = self._producers.get(pid, ProducerEntry(pid))
        first = entry.transaction_first_offset
        if transactional and first is None:
            first = at
        meta = BatchMetadata(sequence + count - 1, at + count - 1, count - 1, read_header(batch).max_timestamp)
        self._producers[pid] = entry.with_batch(epoch, meta, first)
        return at

    def marker(self, pid: int = 7, epoch: int = 1, *, committed: bool = True, reign: int = 0) -> int:
        """A marker; its offset."""
        batch = end_transaction_marker(
            producer_id=pid, producer_epoch=epoch, committed=committed, coordinator_epoch=reign,
            timestamp=self.now(), base_offset=self.end,
        )  # fmt: skip
        at = self.append(batch)
        entry = self._producers.get(pid, ProducerEntry(pid))
        if entry.transaction_first_offset is not None and not committed:
            self._aborted[self.base].append(AbortedTransaction(pid, entry.transaction_first_offset, at, at + 1))
        self._producers[pid] = entry.with_marker(epoch, reign, self.now(at))
        return at

    def transaction(self, pid: int = 7, epoch: int = 0, *, committed: bool = True, count: int = 2) -> tuple[int, int]:
        """Data and its marker, as Transactions V2 has them; the offsets of both."""
        return self.data(pid, epoch, count=count), self.marker(pid, epoch + 1, committed=committed)

    def append(self, batch: bytes | bytearray) -> int:
        """A batch with its offset in it."""
        header = read_header(batch)
        self.segments[self.base].append(bytes(batch))
        self.end = header.next_offset
        return header.base_offset

    def roll(self) -> None:
        """Begin another segment, with a snapshot."""
        self.segments[self.end] = []
        self._aborted[self.end] = []
        self.snapshots[self.end] = encode_snapshot(self._producers.values())

    def now(self, offset: int | None = None) -> int:
        return TIME + 1000 * (self.end if offset is None else offset)

    def write(self) -> Log:
        """Everything to the disk, with indexes."""
        self.path.mkdir(parents=True, exist_ok=True)
        for base, batches in self.segments.items():
            name = self.path / f"{base:020d}"
            name.with_suffix(".log").write_bytes(b"".join(batches))
            offsets, times = _indexes(base, batches)
            name.with_suffix(".index").write_bytes(offsets)
            name.with_suffix(".timeindex").write_bytes(times)
            if self._aborted[base]:
                name.with_suffix(".txnindex").write_bytes(b"".join(item.encode() for item in self._aborted[base]))
        for offset, data in self.snapshots.items():
            (self.path / f"{offset:020d}.snapshot").write_bytes(data)
        return self

    def file(self, extension: str = ".log", base: int = 0) -> Path:
        return self.path / f"{base:020d}{extension}"


def _indexes(base: int, batches: Sequence[bytes]) -> tuple[bytes, bytes]:
    offsets, times, position, since, latest, written = b"", b"", 0, 0, -1, -1
    at = base
    for batch in batches:
        header = read_header(batch)
        if header.max_timestamp > latest:
            latest, at = header.max_timestamp, header.last_offset
        if since > INDEX_INTERVAL:
            offsets += struct.pack(">ii", header.last_offset - base, position)
            if latest > written:
                times += struct.pack(">qi", latest, at - base)
                written = latest
            since = 0
        since += len(batch)
        position += len(batch)
    return offsets, times


class Coordinator:
    """One partition of ``__transaction_state``."""

    def __init__(self, directory: Path, partition: int = 0) -> None:
        self.log = Log(directory, "__transaction_state", partition)

    def state(
        self,
        name: str = "app",
        pid: int = 7,
        epoch: int = 0,
        status: int = ONGOING,
        places: str = "",
        at: int = 0,
        version: int = 2,
        timeout_ms: int = 60_000,
        begun: int | None = None,
    ) -> None:
        """One record; ``places`` as ``"t-0 t-1"``, ``at`` and ``begun`` (or ``at``) in seconds after ``TIME``."""
        partitions: dict[str, list[int]] = {}
        for place in places.split():
            topic, _, index = place.rpartition("-")
            partitions.setdefault(topic, []).append(int(index))
        named = tuple((topic, tuple(indexes)) for topic, indexes in partitions.items())
        time = TIME + 1000 * at
        start = time if begun is None else TIME + 1000 * begun
        value = TransactionValue(
            pid, epoch, timeout_ms, status, named or None, time, start, client_transaction_version=version
        )
        record = Record(self.log.end, time, encode_key(name), encode_value(value, 1))
        self.log.append(build_batch([record], base_offset=self.log.end))

    def ended(
        self, places: str, *, pid: int = 7, epoch: int = 0, committed: bool = True, name: str = "app", at: int = 0
    ) -> None:
        """A whole transaction of Transactions V2."""
        prepare, complete = (PREPARE_COMMIT, COMPLETE_COMMIT) if committed else (PREPARE_ABORT, COMPLETE_ABORT)
        self.state(name, pid, epoch, ONGOING, places, at)
        self.state(name, pid, epoch + 1, prepare, places, at)
        self.state(name, pid, epoch + 1, complete, "", at)

    def tombstone(self, name: str) -> None:
        self.log.append(build_batch([Record(self.log.end, TIME, encode_key(name), None)], base_offset=self.log.end))

    def write(self) -> None:
        self.log.write()


def commit_offset(
    log: Log, group: str, topic: str, partition: int, offset: int, pid: int = -1, epoch: int = -1
) -> None:
    """A committed offset in ``__consumer_offsets``; in a transaction with a producer id."""
    value = encode_offset_commit_value(OffsetCommitValue(offset, commit_timestamp=log.now()))
    record = Record(log.end, log.now(), encode_offset_commit_key(group, topic, partition), value)
    log.append(
        build_batch(
            [record],
            base_offset=log.end,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=0 if pid >= 0 else -1,
            transactional=pid >= 0,
        )
    )


STOPPED = Limits(skew_ms=0, transaction_partitions=1)
"""As if all brokers had been stopped before the directories were read."""


def run(directory: Path, *more: Path, crc: bool = True, limits: Limits = STOPPED) -> AuditResult:
    """Audit in this process."""
    return audit(plan([directory, *more]), LocalEngine(), check_crc=crc, limits=limits, wall_ms=TIME * 2)


def findings_in(directory: Path, *more: Path, **options: bool) -> list[Finding]:
    """Only the findings."""
    return run(directory, *more, **options).findings  # type: ignore[arg-type]  # options of run


@contextmanager
def damaged(path: Path) -> Iterator[bytearray]:
    """A file's bytes, written back as the test leaves them."""
    data = bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)
