"""Apache Kafka's own dump tool reads every file of our directories, and finds nothing wrong with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import HOUR_MS
from oncelog.records.compression import Codec
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.storage.log_config import LogConfig
from tests.peers.jars import classpath
from tests.unit.storage.support import NOW, TOPIC_ID, World, batch, run_now

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0)
COMPLAINTS = (
    "isvalid: false",
    "Mismatches",
    "non-consecutive",
    "Exception",
    "Error",
    "not found in the log",
    "corrupt",
)


def dump(files: list[Path], *options: str) -> str:
    command = ["java", "-Xmx256m", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    result = subprocess.run(
        [*command, "--files", ",".join(map(str, files)), *options], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Exception" not in result.stderr
    for complaint in COMPLAINTS:
        assert complaint not in result.stdout, result.stdout
    return result.stdout


def fill(world: World) -> None:
    for number in range(12):
        for codec in Codec:
            keys = [b"k%d" % (number % 5), b"k%d" % (number % 3)]
            values = [b"x" * number, None if number % 4 == 3 else b"y"]
            world.append(batch(values, keys=keys, timestamp=NOW + number, codec=codec))
        sequence = {"epoch": 0, "sequence": number}
        world.append(batch([b"p"], producer=9, epoch=0, sequence=sequence["sequence"]))
        data = batch([b"t"], producer=1, epoch=0, sequence=number, transactional=True)
        world.append(data, verified=True)
        world.mark(1, committed=number % 2 == 0)
    world.append(batch([b"t"], producer=2, epoch=0, sequence=0, transactional=True), verified=True)
    world.sync()


@pytest.mark.slow
@pytest.mark.java
def test_every_file_after_recovery_compaction_and_a_clean_shutdown(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    world = World(CONFIG, files)
    fill(world)
    compacted = TopicPartition(TopicName("compacted"), 1)
    plain_log = world.log
    world.log = world.directory.create(
        compacted, TOPIC_ID, CONFIG._replace(cleanup_policy=("compact",)), now_ms=NOW - HOUR_MS
    )
    fill(world)
    (job,) = [job for job in world.due_jobs() if job.name == "compact"]
    run_now(job)
    world.log = plain_log
    world.reopen()
    world.reopen(clean=True)
    world.directory.close()
    files.close()

    directories = [tmp_path / "t-0", tmp_path / "compacted-1"]
    for directory in directories:
        logs = sorted(directory.glob("*.log"))
        assert len(logs) > 1
        assert "| offset: " in dump(logs, "--deep-iteration", "--print-data-log")
        assert "passed sanity check" in dump(
            sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")]), "--index-sanity-check"
        )
        dump(sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")]), "--verify-index-only")
        assert "producerId: 1 " in dump(sorted(directory.glob("*.snapshot")))
    aborted = dump(sorted(tmp_path.glob("t-0/*.txnindex")))
    assert aborted.count("producerId: 1 ") == 6
