"""Files that Apache Kafka 4.3.1 wrote: read, rebuilt byte for byte, compacted to the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oncelog.base.ids import BrokerId, TopicName, TopicPartition
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.meta_properties import MetaProperties, read_meta_properties
from oncelog.storage.producer_snapshots import decode_snapshot, encode_snapshot
from oncelog.storage.segment.segments import Segments
from tests.unit.storage.support import headers, records, run_now

RECORDED = Path(__file__).parent / "kafka_4_3_1"
PLAIN = TopicPartition(TopicName("plain"), 0)
COMPACTED = TopicPartition(TopicName("compacted"), 0)
NOW = 1_795_249_630_000
CONFIG = LogConfig(index_interval_bytes=200)
KEEPS_PRODUCERS = StorageConfig(producer_id_expiration_ms=1 << 60)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED / "data", tmp_path / "data"))


def open_directory(path: Path, now_ms: int = NOW) -> LogDirectory:
    return LogDirectory.open(DiskFiles(path), config_of=lambda _: CONFIG, now_ms=now_ms, storage=KEEPS_PRODUCERS)


def check_plain(log: PartitionLog) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (33, 47, 0)
    states = {entry.producer_id: entry.last_sequence for entry in log.producers.entries.values()}
    assert states == {0: 29, 1: 11, 2: 0}
    log.set_high_watermark(47)
    assert log.last_stable_offset == 46
    read = read_batches(log, 33, max_bytes=1 << 20, isolation_read_committed=True)
    assert read.aborted == [(1, 30), (1, 38)]
    assert read_batches(log, 34, max_bytes=1 << 20, isolation_read_committed=True).aborted == [(1, 38)]
    assert read_batches(log, 42, max_bytes=1 << 20, isolation_read_committed=True).aborted == []
    assert [record.offset for record in records(log)] == [34, 35, 36, 38, 39, 40, 42, 43, 44, 46]


def test_a_directory_after_a_clean_shutdown(data: Path) -> None:
    directory = open_directory(data)
    assert directory.was_clean
    assert directory.broker_epoch == 16
    assert sorted(directory.logs) == [COMPACTED, PLAIN]
    check_plain(directory.logs[PLAIN])
    compacted = directory.logs[COMPACTED]
    compacted.set_high_watermark(25)
    assert (compacted.log_end_offset, compacted.cleaned_offset) == (25, 24)
    assert [record.key for record in records(compacted)] == [b"t0", b"t1", b"k0", b"k2", b"z"]
    assert not (data / ".kafka_cleanshutdown").exists()


def test_everything_beside_the_log_is_rebuilt_to_the_same_bytes(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    names = [name for name in (data / "plain-0").iterdir() if name.name != "00000000000000000033.snapshot"]
    expected = {name.name: name.read_bytes() for name in names}
    for name in names:
        if name.suffix in (".index", ".timeindex", ".txnindex") or name.name.endswith("47.snapshot"):
            name.write_bytes(b"not what it was")
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nplain 0 33\n")
    directory = open_directory(data)
    check_plain(directory.logs[PLAIN])
    directory.close(broker_epoch=16)
    assert {name.name: name.read_bytes() for name in names} == expected
    assert (data / ".kafka_cleanshutdown").read_text() == (RECORDED / "data/.kafka_cleanshutdown").read_text()


def test_preallocated_indexes_of_a_killed_broker(data: Path) -> None:
    for extension in ("index", "timeindex"):
        path = data / f"plain-0/00000000000000000033.{extension}"
        path.write_bytes(path.read_bytes() + bytes(24 * 100))
    directory = open_directory(data)
    check_plain(directory.logs[PLAIN])
    assert len(directory.logs[PLAIN].segments[0].offset_index) == 2


@pytest.mark.parametrize(
    "path", sorted(RECORDED.rglob("*.snapshot")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_snapshots_are_encoded_to_the_same_bytes(path: Path) -> None:
    content = path.read_bytes()
    assert encode_snapshot(decode_snapshot(content)) == content


def test_compaction_writes_what_apache_kafka_wrote(data: Path) -> None:
    for path in (data / "compacted-0").glob("00000000000000000000.*"):
        path.unlink()
    shutil.copytree(RECORDED / "before_compaction", data / "compacted-0", dirs_exist_ok=True)
    (data / "cleaner-offset-checkpoint").write_text("0\n1\ncompacted 0 23\n")
    directory = open_directory(data)
    log = directory.logs[COMPACTED]
    log.set_high_watermark(log.log_end_offset)
    assert isinstance(log.segments, Segments)
    assert [segment.base_offset for segment in log.segments] == [0, 23, 24]
    log.config = CONFIG._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01, delete_retention_ms=100)
    (job,) = [job for job in directory.due_jobs(COMPACTED, 1_795_249_627_094) if job.name == "compact"]
    run_now(job)
    for extension in ("log", "index", "timeindex"):
        name = f"compacted-0/00000000000000000000.{extension}"
        assert (data / name).read_bytes() == (RECORDED / "data" / name).read_bytes(), name
    assert [header.base_offset for header in headers(log)] == [9, 11, 21, 23, 24]
    assert log.cleaned_offset == 24


def test_meta_properties(data: Path) -> None:
    assert read_meta_properties(DiskFiles(data)) == MetaProperties(
        "AAAAAAAAAAAAAAAAAAAAAQ", BrokerId(1), "E6W_2vpQSNa-2CIoTn37TA"
    )
