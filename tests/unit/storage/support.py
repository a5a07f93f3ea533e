"""Batches and logs for the storage tests."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.ports import Files
from oncelog.records.batch import BatchHeader, iter_headers, read_header
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.log.append import Appended, append_batch
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import Read, Search, TimestampOffset, read_batches
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.maintenance.jobs import Job
from tests.programs import result_of

PARTITION = TopicPartition(TopicName("t"), 0)
TOPIC_ID = TopicId(bytes(range(16)))
NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def batch(
    values: Sequence[bytes | None] = (b"v",),
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = NOW,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A client's batch; record ``i`` has ``timestamp + i``."""
    names = [b"k%d" % index for index in range(len(values))] if keys is None else keys
    return build_batch(
        [
            Record(-1, timestamp + index, key, value)
            for index, (key, value) in enumerate(zip(names, values, strict=True))
        ],
        codec=codec,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class World:
    """A data directory in memory with one log, its clock, and what a node does around it."""

    def __init__(
        self, config: LogConfig = SMALL, files: Files | None = None, storage: StorageConfig | None = None
    ) -> None:
        self.files: Files = files or MemoryFiles(now_ms=lambda: self.now_ms)
        self.config = config
        self.storage = storage
        self.now_ms = NOW
        self.leader_epoch = 0
        self.directory = LogDirectory(self.files, storage)
        self.log: PartitionLog = self.directory.create(PARTITION, TOPIC_ID, config, now_ms=self.now_ms)

    @property
    def memory(self) -> MemoryFiles:
        assert isinstance(self.files, MemoryFiles)
        return self.files

    def append(self, data: bytearray, **options: bool | int | str) -> Appended:
        return append_batch(self.log, data, now_ms=self.now_ms, leader_epoch=self.leader_epoch, **options)  # type: ignore[arg-type]  # by name

    def mark(self, producer: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0) -> Appended:
        marker = end_transaction_marker(
            producer_id=producer,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.now_ms,
        )
        return self.append(marker, internal=True)

    def sync(self) -> None:
        files, upto = self.log.files_to_sync()
        for file in files:
            file.sync()
        self.log.synced(upto)
        self.log.set_high_watermark(upto)

    def reopen(self, *, clean: bool = False) -> PartitionLog:
        if clean:
            self.directory.close()
        self.directory = LogDirectory.open(
            self.files, config_of=lambda _: self.config, now_ms=self.now_ms, storage=self.storage
        )
        self.log = self.directory.logs[PARTITION]
        return self.log

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.files.list(str(PARTITION)) if name.endswith(suffix)]

    def due_jobs(self) -> list[Job]:
        due = [self.directory.due_jobs(partition, self.now_ms) for partition in self.directory.logs]
        return self.directory.startup_jobs() + [job for jobs in due for job in jobs]

    def run_jobs(self) -> list[str]:
        jobs = self.due_jobs()
        for job in jobs:
            run_now(job)
        return [job.name for job in jobs]


def run_now(job: Job) -> None:
    """Drive a job to its end."""
    for _ in job.run():
        pass
    job.apply()


def found_by(search: Search) -> TimestampOffset | None:
    """The record that a search finds, without a pause."""
    value: TimestampOffset | None = None
    try:
        scan = next(search)
        while True:
            scan = search.send(result_of(scan))
    except StopIteration as end:
        value = end.value
    return value


def content(read: Read) -> bytes:
    """The bytes of a read."""
    return b"".join(chunk.file.read(chunk.position, chunk.size_bytes) for chunk in read.chunks)


def headers(log: PartitionLog, offset: int | None = None) -> list[BatchHeader]:
    """Headers of all readable batches from ``offset`` (the log's start) on."""
    return [header for header, _ in _batches(log, log.log_start_offset if offset is None else offset)]


def records(log: PartitionLog, offset: int | None = None) -> list[Record]:
    """All readable records from ``offset`` (the log's start) on, control records left out."""
    start = log.log_start_offset if offset is None else offset
    return [
        record
        for header, data in _batches(log, start)
        if not header.is_control
        for record in read_records(data, 0, header, 1 << 30)
        if record.offset >= start
    ]


def _batches(log: PartitionLog, offset: int) -> list[tuple[BatchHeader, bytes]]:
    results: list[tuple[BatchHeader, bytes]] = []
    while offset < log.high_watermark:
        data = content(read_batches(log, offset, max_bytes=1 << 30))
        if not data:
            break
        for position, header in iter_headers(data):
            assert read_header(data, position) == header
            results.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset
    return results
