"""The fate of a topic's offsets, from batch headers in log order: of a live cluster, or of log directories.

A producer's transactional batches wait for its marker (KIP-98). A batch counts with all its offsets; compaction may
have emptied some of them. Offsets that no batch covers are holes, as compaction leaves them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.records.record import read_records
from oncelog.spark.table_audit.offset_runs import Runs

if TYPE_CHECKING:
    from oncelog.client.blocking import Client
    from oncelog.spark.audit.audit_plan import Plan

_MAX_CONTROL_BYTES = 1 << 20
ReportProgress = Callable[[str, int, int], None]


@dataclass(slots=True)
class LogOffsets:
    """The outcome of one partition's offsets from ``start`` to before ``end``."""

    start: int
    end: int
    committed: Runs
    aborted: Runs
    open: Runs
    markers: Runs
    has_holes: bool
    """True if some offsets have no batch, or a batch has fewer records than offsets: compaction."""
    caveat: str = ""


@dataclass(slots=True)
class LogReader:
    """Sorts batches, fed in log order, by the outcome of their transactions."""

    start: int
    _committed: list[tuple[int, int]] = field(default_factory=list)
    _aborted: list[tuple[int, int]] = field(default_factory=list)
    _markers: list[tuple[int, int]] = field(default_factory=list)
    _open: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _next: int = -1
    _has_holes: bool = False

    def feed(self, records: bytes | memoryview, position: int = 0) -> None:
        """Take whole batches. Raises CorruptBatch."""
        for at, header in iter_headers(records, position):
            run = header.base_offset, header.last_offset
            if header.last_offset < max(self.start, self._next):
                continue
            self._has_holes = self._has_holes or (self._next >= 0 and header.base_offset > self._next)
            self._next = header.last_offset + 1
            if header.is_control:
                self._end_transaction(records, at, header)
                _extend(self._markers, run)
                continue
            self._has_holes = self._has_holes or header.record_count != header.last_offset_delta + 1
            if header.is_transactional:
                _extend(self._open.setdefault(header.producer_id, []), run)
            else:
                _extend(self._committed, run)

    def result(self, caveat: str = "") -> LogOffsets:
        return LogOffsets(
            self.start,
            max(self._next, self.start),
            Runs.of(*self._committed),
            Runs.of(*self._aborted),
            Runs.of(*(run for runs in self._open.values() for run in runs)),
            Runs.of(*self._markers),
            self._has_holes,
            caveat,
        )

    def _end_transaction(self, records: bytes | memoryview, at: int, header: BatchHeader) -> None:
        record = next(iter(read_records(records, at, header, _MAX_CONTROL_BYTES)), None)
        outcome = ControlType.UNKNOWN if record is None else control_type(record.key)
        runs = self._open.pop(header.producer_id, [])
        for run in runs:
            _extend(self._aborted if outcome is ControlType.ABORT else self._committed, run)


def _extend(runs: list[tuple[int, int]], run: tuple[int, int]) -> None:
    if runs and runs[-1][1] + 1 == run[0]:
        runs[-1] = runs[-1][0], run[1]
    else:
        runs.append(run)


def read_cluster(
    client: Client, partitions: Sequence[TopicPartition], report_progress: ReportProgress
) -> Iterator[tuple[TopicPartition, LogOffsets | None]]:
    """Every partition's whole log; None for one that the cluster does not have. Raises ClientError."""
    from oncelog.admin.groups import log_bounds
    from oncelog.client.blocking import FetchSettings
    from oncelog.client.errors import BrokerRefused

    starts, ends = log_bounds(client, list(partitions))
    total = sum(ends[partition] - start for partition, start in starts.items())
    done = 0
    for partition in partitions:
        if partition not in starts:
            yield partition, None
            continue
        start, end = starts[partition], ends[partition]
        reader = LogReader(start)
        settings = FetchSettings(read_committed=False)
        caveat = ""
        try:
            for fetched in (
                client.fetch({partition: start}, until={partition: end}, settings=settings) if start < end else ()
            ):
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"fetch from {partition} at {fetched.position}")
                reader.feed(fetched.records)
                report_progress("offsets of topics", done + fetched.next_offset - start, total)
        except CorruptBatch as error:
            caveat = f"the log of {partition} was not read to its end: {error}"
        done += end - start
        yield partition, reader.result(caveat)


def read_directories(
    plan: Plan, partitions: Sequence[TopicPartition], report_progress: ReportProgress
) -> Iterator[tuple[TopicPartition, LogOffsets | None]]:
    """The same from the segments of each partition's primary replica."""
    for index, partition in enumerate(partitions):
        report_progress("logs", index, len(partitions))
        place = plan.partitions.get(partition)
        if place is None:
            yield partition, None
            continue
        segments = [
            task
            for task in plan.tasks
            if (task.topic, task.partition, task.replica) == (*partition, place.replica) and task.size_bytes
        ]
        reader = LogReader(place.log_start)
        caveat = ""
        for segment in sorted(segments, key=lambda task: task.base_offset):
            with open(segment.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                try:
                    with memoryview(data) as view:
                        reader.feed(view)
                except TruncatedBatch as error:
                    caveat = f"{segment.path} ends in an incomplete batch: {error}"
                except CorruptBatch as error:
                    caveat = f"{segment.path} was not read to its end: {error}"
                    break
        yield partition, reader.result(caveat)
