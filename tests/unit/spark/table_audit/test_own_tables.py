"""Tables that oncelog's own code has loaded, in both formats, sound and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.main import invoke
from oncelog.spark.audit.directories import plan
from oncelog.spark.table_audit.audit import Topics
from oncelog.spark.targets.format_table import open_target
from oncelog.spark.targets.iceberg import IcebergTarget
from oncelog.spark.targets.iceberg_commit import OFFSETS, spans_text
from oncelog.spark.targets.table_target import Span
from tests.unit.spark.audit.logs import Log
from tests.unit.spark.jobs.fake_log import FakeLog
from tests.unit.spark.table_audit.tables import audited, history, kinds, lake
from tests.unit.spark.targets.tables import log_of, values

pytestmark = pytest.mark.slow
AT = TopicPartition(TopicName("t"), 0)
both = pytest.mark.parametrize("kind", ["iceberg", "delta"])


@both
def test_loads_backfills_reloads_and_compaction_are_sound(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "t"
    table, log = lake(kind, place), log_of(40, 20, bad=True)
    table.load(log, rows_per_step=10)
    log.partitions["t", 0] += values(40, 60, bad=True)
    table.load(log, rows_per_step=10)
    log.from_ms = 30 * 3_600_000
    table.load(log, suffix=b"!")
    open_target(table.address).compact(1 << 20)
    beside = history(kind, tmp_path / "t-quarantine")
    result = audited(history(kind, place), rows=True, beside=beside)
    assert kinds(result) == []
    assert result.writers["oncelog"] >= 4
    assert sum(row.rows for row in result.partitions) == len(table.rows())


@both
def test_a_log_directory_tells_committed_rows_from_others(kind: str, tmp_path: Path) -> None:
    log = Log(tmp_path / "data", "t")
    log.transaction(committed=True, count=3)
    log.transaction(pid=8, committed=False, count=2)
    log.data(9, transactional=False, count=2)
    log.data(10, count=2)
    log.write()
    rows: list[bytes | None] = [b"v", b"v", None, None, b"aborted", b"aborted", None, b"v", None, b"open", None]
    fake = FakeLog({("t", 0): [*rows, b"beyond"]})
    table = lake(kind, tmp_path / "t")
    table.load(fake)
    result = audited(history(kind, tmp_path / "t"), topics=Topics(plan=plan([tmp_path / "data"])))
    ranges = {
        finding.kind: (finding.first_offset, finding.last_offset, finding.rows) for finding in result.findings.kept
    }
    assert ranges == {
        "aborted-rows": (4, 5, 2),
        "open-rows": (9, 9, 1),
        "unknown-rows": (11, 11, 1),
        "missing-rows": (2, 8, 2),
    }
    assert kinds(result) == ["aborted-rows", "unknown-rows", "open-rows", "missing-rows"]
    assert result.partitions[0].committed_records == 5
    arguments = ["audit", f"--{kind}", str(tmp_path / "t"), str(tmp_path / "data"), "--fail-on-findings"]
    assert invoke(arguments) == 2


def test_a_log_that_is_damaged_says_nothing_about_later_rows(tmp_path: Path) -> None:
    log = Log(tmp_path / "data", "t")
    for sequence in range(4):
        log.data(9, sequence=sequence, transactional=False, count=1)
    log.write()
    segment = log.file()
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    lake("delta", tmp_path / "t").load(FakeLog({("t", 0): [b"v"] * 4}))
    result = audited(history("delta", tmp_path / "t"), topics=Topics(plan=plan([tmp_path / "data"])))
    assert kinds(result) == []
    assert len(result.caveats) == 1


def test_iceberg_files_outside_their_commit_and_a_gap(tmp_path: Path) -> None:
    table, log = lake("iceberg", tmp_path / "t"), log_of(20)
    table.load(log)
    other = lake("iceberg", tmp_path / "other")
    other.load(FakeLog({("t", 0): [None] * 30 + values(30, 40)}))
    target = IcebergTarget(table.address)
    stray = IcebergTarget(other.address).existing_table()
    paths = [task.file.file_path for task in stray.scan().plan_files()]
    spans = {AT: Span(25, 35)}
    target.existing_table().add_files(paths, snapshot_properties={OFFSETS: spans_text(spans)})
    result = audited(history("iceberg", tmp_path / "t"))
    assert kinds(result) == ["outside-commit", "gap"]
    outside, gap = result.findings.worst_first()
    assert (outside.first_offset, outside.last_offset) == (30, 39)
    assert (gap.first_offset, gap.last_offset) == (20, 24)


def test_delta_batches_committed_twice_and_rows_appended_twice(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    lake("delta", tmp_path / "t").load(log_of(20))
    rows = DeltaTable(place).to_pyarrow_dataset().to_table()
    for batch in (3, 3, 2):
        write_deltalake(
            place,
            rows,
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction("query", batch)]),
        )
    result = audited(history("delta", tmp_path / "t"), rows=True)
    assert kinds(result) == ["duplicate-rows", "overlap", "overlap", "overlap", "went-back", "commit-twice"]
    assert result.findings.worst_first()[0].rows == 3 * rows.num_rows
    assert result.writers == {"oncelog": 1, "an application": 3, "unknown": 1}


def test_a_delta_file_added_again_is_noted_and_read_once(tmp_path: Path) -> None:
    lake("delta", tmp_path / "t").load(log_of(20))
    table = DeltaTable(str(tmp_path / "t"))
    log_file = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    add = next(json.loads(line)["add"] for line in log_file.read_text().splitlines() if '"add"' in line)
    again = AddAction(add["path"], add["size"], {}, 0, True, add["stats"])
    table.create_write_transaction([again], "append", table.schema())
    assert kinds(audited(history("delta", tmp_path / "t"), rows=True)) == ["registered-again"]


def test_tables_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, text in (("--iceberg", "there is no Iceberg table"), ("--delta", "there is no Delta table")):
        assert invoke(["audit", option, str(tmp_path / "no")]) == 1
        assert text in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert invoke(["audit"]) == 2
    assert "nothing to audit" in capsys.readouterr().err
    assert invoke(["audit", "--iceberg", "a", "--delta", "b"]) == 2
    assert invoke(["audit", "--iceberg", "a", "--html", "page.html"]) == 2
