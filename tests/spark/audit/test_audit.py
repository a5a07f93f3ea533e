"""The audit on Spark says what it says in one process, whatever its master; and the command line around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.cli.main import invoke
from oncelog.spark.audit.distributed import SparkEngine
from oncelog.spark.audit.layout import plan
from oncelog.spark.audit.pipeline import audit
from tests.unit.spark.audit.logs import TIME, Coordinator, Log, commit_offset, run

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
    path = tmp_path / "cluster" / "broker-2" / "t-1" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    return tmp_path / "cluster"


@pytest.mark.timeout(300)
def test_spark_finds_what_one_process_finds(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    alone = run(directory)
    planned = plan([directory])
    engine = SparkEngine(spark, 4 * 256 << 20)  # as if it were large: several parts to a shuffle
    try:
        result = audit(planned, engine, wall_ms=2 * TIME, to=tmp_path / "report")
    finally:
        engine.close()
    assert {"torn", "hanging", "duplicate", "crc", "offsets-beyond-log"} <= set(alone.kinds)
    assert result.kinds == alone.kinds
    assert set(result.findings) == set(alone.findings)
    assert result.tallies == alone.tallies
    assert set(result.transactions) == set(alone.transactions)
    table = spark.read.parquet(str(tmp_path / "report" / "transactions"))
    assert table.where("topic <> '' and fate = 'aborted'").count() == 30
    assert spark.read.parquet(str(tmp_path / "report" / "findings")).count() == alone.found


@pytest.mark.timeout(300)
def test_the_command_line(
    spark: SparkSession, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --spark it uses the session that runs in this process."""
    page = tmp_path / "page.html"
    assert invoke(["audit", str(directory), "--spark", "--json", "--html", str(page), "--fail-on-findings"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["findings"]["torn"] == 1
    (hanging,) = [one for one in report["listed"] if one["kind"] == "hanging"]
    assert (hanging["topic"], hanging["partition"], hanging["producer_id"], hanging["epoch"]) == ("t", 0, 50, 3)
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
