"""Tables with the files and snapshot entries of Kafka Connect's Iceberg sink, made by pyiceberg, and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.iceberg_commit import OFFSETS
from tests.unit.spark.table_audit.tables import SinkTable, audited, kinds

pytestmark = pytest.mark.slow


@pytest.fixture
def sink(tmp_path: Path) -> SinkTable:
    return SinkTable(tmp_path)


def test_a_sound_table_has_no_findings(sink: SinkTable) -> None:
    sink.commit(3, sink.file(0, 1, 2), sink.file(0, 1, partition=1), valid_through="2026-11-27T10:00Z")
    sink.commit(5, sink.file(3, 5), sink.file(2, 3, partition=1), valid_through="2026-11-27T10:05:30.123Z")
    result = audited(sink.history(), rows=True)
    assert kinds(result) == []
    assert (result.writers, result.files, result.rows) == ({"Kafka Connect": 2}, 4, 9)
    assert [(row.partition, row.rows, row.offsets_without_row) for row in result.partitions] == [(0, 5, 1), (1, 4, 0)]


def test_a_file_that_two_snapshots_register_is_read_twice(sink: SinkTable) -> None:
    """apache/iceberg #16282 and #17340: the coordinator took control messages again."""
    again = sink.file(0, 1, 2)
    first = sink.commit(3, again, commit_id="c1")
    second = sink.commit(4, again, sink.file(3), commit_id="c2")
    result = audited(sink.history())
    assert kinds(result) == ["registered-twice"]
    (finding,) = result.findings.kept
    assert (finding.commit, finding.rows, finding.files) == (second, 3, (again,))
    assert (finding.topic, finding.first_offset, finding.last_offset) == ("orders", 0, 2)
    assert f"{first} (commit-id c1" in finding.text
    assert "control offsets 0: 4" in finding.text
    with_rows = audited(sink.history(), rows=True).findings.worst_first()
    assert [(finding.kind, finding.files) for finding in with_rows] == [
        ("duplicate-rows", (again,)),
        ("registered-twice", (again,)),
    ]


def test_spellings_of_one_file_are_one_file(sink: SinkTable) -> None:
    again = sink.file(0, 1)
    sink.commit(3, again)
    sink.commit(4, again.removeprefix("file://"))
    assert kinds(audited(sink.history())) == ["registered-twice"]


def test_a_file_that_was_removed_between_is_only_noted(sink: SinkTable) -> None:
    again = sink.file(0, 1)
    sink.commit(3, again)
    sink.table.delete("_kafka_metadata_offset < 2")
    sink.commit(4, again)
    assert kinds(audited(sink.history())) == ["registered-again"]


def test_two_files_over_the_same_offsets(sink: SinkTable) -> None:
    sink.commit(3, sink.file(0, 1, 2, 3))
    second = sink.commit(4, sink.file(2, 3, 4))
    (finding,) = audited(sink.history()).findings.kept
    assert (finding.kind, finding.commit, finding.first_offset, finding.last_offset) == ("overlap", second, 2, 3)
    result = audited(sink.history(), rows=True)
    assert kinds(result) == ["duplicate-rows", "overlap"]
    twice = result.findings.worst_first()[0]
    assert (twice.rows, twice.first_offset, twice.last_offset, len(twice.files)) == (2, 2, 3, 2)


def test_files_of_one_commit_may_share_a_range(sink: SinkTable) -> None:
    sink.commit(3, sink.file(0, 2, 4), sink.file(1, 3))
    assert kinds(audited(sink.history(), rows=True)) == []


def test_control_offsets_that_go_back_or_stand_still(sink: SinkTable) -> None:
    sink.commit(9, sink.file(0), valid_through="2026-11-27T10:05Z", commit_id="c1")
    sink.commit(9, sink.file(1), valid_through="2026-11-27T10:00Z")
    sink.commit(7, sink.file(2), commit_id="c1")
    result = audited(sink.history())
    assert kinds(result) == ["went-back", "commit-twice", "stale-commit", "valid-through-back"]
    assert "partition 0 is at 9 in snapshot" in result.findings.worst_first()[0].text


def test_the_command_line_reports_and_exits(sink: SinkTable, capsys: pytest.CaptureFixture[str]) -> None:
    again = sink.file(0, 1, 2)
    sink.commit(3, again)
    sink.commit(4, again)
    assert sink.run("--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == {"registered-twice": 1}
    assert document["listed"][0]["files"] == [again]
    assert sink.run("--rows", "--fail-on-findings") == 2
    out = capsys.readouterr().out
    assert "3 rows of orders-0 too many, at offsets 0–2" in out
    assert sink.run("--rows", "--columns", "a,b") == 2
    assert "three names of columns" in capsys.readouterr().err
    assert sink.run("--rows", "--columns", "a,b,c") == 2
    assert "has no columns a, b, c" in capsys.readouterr().err


def test_a_snapshot_among_its_own_ancestors_ends_the_line(sink: SinkTable) -> None:
    first, second = sink.commit(3, sink.file(0)), sink.commit(5, sink.file(1))
    history = sink.history()
    history._snapshots = [
        snapshot.model_copy(update={"parent_snapshot_id": int(parent)})
        for snapshot, parent in zip(history._snapshots, [second, first], strict=True)
    ]
    assert history.lines() == [[0, 1]]


def test_a_time_without_a_zone_is_compared(sink: SinkTable) -> None:
    sink.commit(3, sink.file(0), valid_through="2026-11-27T10:00Z")
    sink.commit(5, sink.file(1), valid_through="2026-11-27T09:00")
    assert kinds(audited(sink.history())) == ["valid-through-back"]


@pytest.mark.parametrize("spans", ["{", "[1]"])
def test_damaged_offsets_are_named_with_their_snapshot(sink: SinkTable, spans: str) -> None:
    damaged = sink.commit(3, sink.file(0), **{OFFSETS: spans})
    with pytest.raises(TableError, match=f"the summary of snapshot {damaged} of iceberg:shop.orders cannot be read"):
        audited(sink.history())
