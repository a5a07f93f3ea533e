"""The audit on Spark says what it says in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.cli.main import invoke
from oncelog.cli.support.output import to_json
from oncelog.spark.audit.directories import plan
from oncelog.spark.audit.engines import spark_engine
from oncelog.spark.audit.report import as_json
from tests.unit.spark.audit.logs import Coordinator, Log, commit_offset, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two brokers with some of everything wrong."""
    for broker in ("broker-1", "broker-2"):
        home = tmp_path / "cluster" / broker
        logs, coordinator = [Log(home, "t", partition) for partition in range(3)], Coordinator(home)
        for epoch in range(40):
            for log in logs:
                log.transaction(epoch=epoch, committed=epoch % 4 != 1)
            coordinator.ended("t-0 t-1 t-2", epoch=epoch, committed=epoch % 4 != 1, at=3 * epoch)
            if epoch == 20:
                logs[0].roll()
        logs[0].data(pid=50, epoch=3)
        logs[1].transaction(epoch=40)
        logs[2].transaction(epoch=40, committed=False)
        logs[1].data(pid=60, sequence=5, transactional=False)
        logs[1].data(pid=60, sequence=5, transactional=False)
        offsets = Log(home, "__consumer_offsets")
        commit_offset(offsets, "beyond", "t", 2, 1000)
        for log in (*logs, offsets):
            log.write()
        coordinator.write()
        (home / ".kafka_cleanshutdown").touch()
    path = tmp_path / "cluster" / "broker-2" / "t-1" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    return tmp_path / "cluster"


def test_spark_finds_what_one_process_finds(
    spark: SparkSession,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the command line, in the session that runs in this process, and as if the log were large."""
    alone = json.loads(json.dumps(to_json(as_json(run(directory)))))
    monkeypatch.setattr(spark_engine, "SHUFFLE_BYTES", plan([directory]).size_bytes // 2)
    options = [
        "--spark",
        "--json",
        "--progress",
        "--fail-on-findings",
        "--to",
        str(tmp_path / "r"),
        "--transaction-partitions",
        "1",
    ]
    assert invoke(["audit", str(directory), *options]) == 2
    printed = capsys.readouterr()
    decoded = json.loads(printed.out)
    told = [json.loads(line) for line in printed.err.splitlines() if line.startswith("{")]
    assert told[0] == {"step": "starting Spark", "done": 0, "total": 0}
    assert all(decoded["done"] <= decoded["total"] for decoded in told)
    assert {"torn", "hanging", "duplicate", "crc", "offsets-beyond-log"} <= set(alone["findings"])
    for name in ("as_of", "read", "transactions", "findings", "over_time", "meanings"):
        assert decoded[name] == alone[name]
    for name in ("listed", "not_ended"):
        assert sorted(map(str, decoded[name])) == sorted(map(str, alone[name]))
    table = spark.read.parquet(str(tmp_path / "r" / "transactions"))
    assert table.where("topic <> '' and fate = 'aborted'").count() == 30
    assert spark.read.parquet(str(tmp_path / "r" / "findings")).count() == sum(alone["findings"].values())
