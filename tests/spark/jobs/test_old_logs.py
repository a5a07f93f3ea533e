"""Old logs into a table by Spark: a task a file, run again for more, and never twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.cli.main import invoke
from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.legacy.tables.load import load_old_logs
from oncelog.records.compression import Codec
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.table.directory import TableError
from tests.message_sets import write
from tests.old_logs import GZIP, SNAPPY, message, message_set, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def values(spark: SparkSession, table: Path) -> dict[tuple[str, int], list[str]]:
    """Values by log and partition, in order of offsets."""
    results: dict[tuple[str, int], list[str]] = {}
    rows = spark.read.parquet(str(table)).collect()
    for row in sorted(rows, key=lambda row: (row.topic, row.partition, row.offset, row.value)):
        results.setdefault((row.topic, row.partition), []).append(bytes(row.value).decode())
    return results


def test_logs_of_all_formats_and_what_they_get_later(spark: SparkSession, tmp_path: Path) -> None:
    logs, table = tmp_path / "logs", tmp_path / "table"
    many = [b"%03d" % number for number in range(200)]
    entries = [message(item) for item in many[:50]] + [message_set([message(item) for item in many[50:]], SNAPPY)]
    write_log(logs / "old-0", entries, file_bytes=200)
    write_log(logs / "old-1", [message_set([message(b"")] * 300, GZIP)])  # more messages than bytes
    for first in (0, 10):
        messages = [
            Message(first + n, 1_400_000_000_000, TimestampType.CREATE_TIME, b"k", b"%02d" % (first + n), 1)
            for n in range(10)
        ]
        (logs / "newer-0").mkdir(exist_ok=True)
        (logs / "newer-0" / f"{first:020d}.log").write_bytes(write(messages, 1, Codec.GZIP))
    report = load_old_logs(logs, table, spark=spark)
    assert (report.rows, report.quarantined) == (520, 0)
    expected = {
        ("old", 0): [item.decode() for item in many],
        ("old", 1): [""] * 300,
        ("newer", 0): [f"{number:02}" for number in range(20)],
    }
    assert values(spark, table) == expected
    assert load_old_logs(logs, table, spark=spark).rows == 0
    last = sorted((logs / "old-0").iterdir())[-1]
    last.write_bytes(last.read_bytes() + message(b"later") + message(b"torn")[:-1])
    assert load_old_logs(logs, table, ["old"], spark=spark).rows == 1
    expected["old", 0].append("later")
    assert values(spark, table) == expected


def test_shapes_and_the_quarantine_are_as_for_topics(spark: SparkSession, tmp_path: Path) -> None:
    logs, table = tmp_path / "logs", tmp_path / "table"
    write_log(
        logs / "t-0", [message(json.dumps({"id": number}).encode()) for number in range(5)] + [message(b"not JSON")]
    )
    shape = Shape("json", "id BIGINT")
    report = load_old_logs(logs, table, spark=spark, shape=shape)
    assert (report.rows, report.quarantined) == (5, 1)
    assert sorted(row.id for row in spark.read.parquet(str(table)).collect()) == list(range(5))


def test_tables_of_topics_and_of_old_logs_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "t-0", [message(b"a")])
    hidden = tmp_path / "table" / "_oncelog"
    hidden.mkdir(parents=True)
    (hidden / "table.json").write_text('{"format": 1, "topics": {"t": ""}}')
    with pytest.raises(TableError, match="table of topics"):
        load_old_logs(tmp_path / "logs", tmp_path / "table", spark=spark)


def test_the_command(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "logs" / "t-0", [message(b"a"), message(b"b")])
    to = str(tmp_path / "table")
    assert invoke(["load", "--from-logs", str(tmp_path / "logs"), "--to", to, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert invoke(["load", "t", "--to", to]) == 1
    assert invoke(["load", "--to", to]) == 2
    assert "--from-logs" in capsys.readouterr().err
    assert invoke(["load", "--from-logs", str(tmp_path / "logs"), "--to", to, "--from", "2013-01-01"]) == 2
    assert invoke(["load", "--from-logs", str(tmp_path / "logs"), "--to", "delta:x"]) == 2
