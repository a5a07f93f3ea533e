"""A load is exactly once, wherever it dies; the log and Spark are fakes, the files are real."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.spark.jobs.load_job import run_load
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import Event, LoadReport
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.session.errors import DataLoss, OptionError
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.table import directory as table_module
from oncelog.spark.table.directory import RowsFile, Table, TableError
from oncelog.spark.targets import parquet_table
from oncelog.spark.targets.parquet_table import ParquetTable
from tests.unit.spark.jobs.fake_log import FakeLog, FakeWriter, request, visible_rows
from tests.unit.spark.jobs.mortal import Died, Mortal


def log_of(*sizes: int) -> FakeLog:
    """Topic t; every 7th offset is a marker."""
    return FakeLog(
        {
            ("t", number): [b"v%d" % at if at % 7 != 3 else None for at in range(size)]
            for number, size in enumerate(sizes)
        }
    )


def options(**changed: str) -> SourceOptions:
    return parse_options({"kafka.bootstrap.servers": "fake:1", "subscribe": "t", **changed})


def run(
    directory: Path,
    log: FakeLog,
    *,
    rows_per_step: int = 10,
    suffix: bytes = b"",
    on_event: Callable[[Event], None] = lambda event: None,
    **changed: str,
) -> LoadReport:
    requests, parsed = request(directory, log, rows_per_step), options(**changed)
    table, writer = ParquetTable(requests, parsed), FakeWriter(log, suffix=suffix)
    with table.lock():
        return run_load(table, log, lambda: writer, requests, parsed, on_event)


def test_everything_once_and_then_only_what_is_new(tmp_path: Path) -> None:
    log = log_of(25, 3, 0)
    first = run(tmp_path, log)
    assert visible_rows(tmp_path) == log.rows()
    assert first.rows == len(log.rows())
    assert run(tmp_path, log).files == 0
    log.partitions["t", 2] += [b"new"] * 5
    assert run(tmp_path, log).rows == 5
    assert visible_rows(tmp_path) == log.rows()


def test_a_large_topic_is_committed_in_steps(tmp_path: Path) -> None:
    told: list[Event] = []
    report = run(tmp_path, log_of(40, 40), rows_per_step=20, on_event=told.append)
    assert report.steps == 4
    committed = [event.offsets_done for event in told if event.kind == "committed"]
    assert committed == [20, 40, 60, 80]
    assert told[0] == Event("planned", 0, 0, 80, 0)


def test_topics_without_records_give_a_table_with_columns(tmp_path: Path) -> None:
    run(tmp_path, log_of(0, 0))
    assert visible_rows(tmp_path) == []
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    log = log_of(2, 0)
    run(tmp_path, log)
    assert visible_rows(tmp_path) == log.rows()


def test_a_load_that_wrote_nothing_binds_no_later_one(tmp_path: Path) -> None:
    log = log_of(3)

    def unreadable_schema() -> FakeWriter:
        raise OptionError("the schema cannot be read")

    requests = replace(request(tmp_path, log), shape=Shape("json", "id BIGINTT"))
    table = ParquetTable(requests, options())
    with pytest.raises(OptionError), table.lock():
        run_load(table, log, unreadable_schema, requests, options())
    log.ids["t"] = "another-id"
    run(tmp_path, log)
    assert visible_rows(tmp_path) == log.rows()
    with (
        table.lock(),
        pytest.raises(TableError, match="was loaded with values in binary, not with values in json"),
    ):
        run_load(table, log, unreadable_schema, requests, options())


ACTIONS = ((os, "replace"), (os, "fsync"), (FakeWriter, "write"), (parquet_table, "write_empty"))


def dies_everywhere(
    directory: Path, monkeypatch: pytest.MonkeyPatch, log: FakeLog, prepare: Callable[[Path], None]
) -> int:
    """Let a load die at every point in turn, check what a reader sees, let it run again; how many points there were."""
    expected = set(log.rows())
    for point in range(1_000):
        place = directory / f"died-at-{point}"
        prepare(place)
        before = set(visible_rows(place)) if place.exists() else set()
        with monkeypatch.context() as patch:
            mortal = Mortal(patch, point, ACTIONS)
            with suppress(Died):
                run(place, log)
        seen = visible_rows(place)
        assert len(seen) == len(set(seen)), f"rows twice after dying at {point}"
        assert before <= set(seen) <= expected, f"rows lost or invented after dying at {point}"
        assert_no_holes(place, log)
        run(place, log)
        assert visible_rows(place) == log.rows(), f"not exactly once after dying at {point}"
        if not mortal.dead:
            return point
        shutil.rmtree(place)
    raise AssertionError("the load never ran to its end")


def assert_no_holes(directory: Path, log: FakeLog) -> None:
    """Of each partition a reader sees one run of the log's records without a gap."""
    for topic, number in log.partitions:
        offsets = [row[2] for row in visible_rows(directory) if row[:2] == (topic, number)]
        own = [row[2] for row in log.rows() if row[:2] == (topic, number)]
        if offsets:
            assert offsets == own[own.index(offsets[0]) : own.index(offsets[-1]) + 1]


@pytest.mark.slow
def test_a_first_load_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = dies_everywhere(tmp_path, monkeypatch, log_of(12, 5), lambda place: None)
    assert points >= 25


@pytest.mark.slow
def test_a_load_from_a_point_in_time_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(23, 8)

    def loaded_in_part(place: Path) -> None:
        log.from_ms = None
        full = dict(log.partitions)
        log.partitions = {one: values[:15] for one, values in full.items()}
        run(place, log)
        log.partitions = full
        log.from_ms = 6

    assert dies_everywhere(tmp_path, monkeypatch, log, loaded_in_part) >= 25


def test_from_a_point_in_time_replaces_the_rows_from_then_on(tmp_path: Path) -> None:
    log = log_of(25, 5)
    run(tmp_path, log, suffix=b" old")
    log.from_ms = 12
    run(tmp_path, log, suffix=b" new")
    assert visible_rows(tmp_path) == log.rows()
    new = {row[2] for row in visible_rows(tmp_path, "topic", "partition", "offset", "value") if b"new" in row[3]}  # type: ignore[misc]  # four columns were asked for
    assert new == {offset for _, _, offset in log.rows() if offset >= 12}


def test_a_first_load_from_a_point_in_time_begins_there_and_can_be_widened(tmp_path: Path) -> None:
    log = log_of(25, 5)
    log.from_ms = 12
    run(tmp_path, log)
    assert visible_rows(tmp_path) == [row for row in log.rows() if row[2] >= 12]
    log.from_ms = None
    log.partitions["t", 1] += [b"later"] * 10
    run(tmp_path, log)
    assert visible_rows(tmp_path) == [row for row in log.rows() if row[2] >= (12 if row[1] == 0 else 5)]
    log.from_ms = 0
    run(tmp_path, log)
    assert visible_rows(tmp_path) == log.rows()


def test_what_retention_removed_before_it_was_loaded_is_an_error_that_says_what(tmp_path: Path) -> None:
    log = log_of(20)
    run(tmp_path, log)
    log.partitions["t", 0] += [b"more"] * 20
    log.log_start["t", 0] = 30
    with pytest.raises(DataLoss, match=r"topic 't', partition 0: requested offset 20, available is 30") as caught:
        run(tmp_path, log)
    assert (caught.value.requested, caught.value.available) == (20, 30)
    run(tmp_path, log, failOnDataLoss="false")
    assert visible_rows(tmp_path) == [row for row in log.rows() if not 20 <= row[2] < 30]


def test_rows_that_the_log_no_longer_has_stay_when_loading_from_a_point_in_time(tmp_path: Path) -> None:
    log = log_of(25)
    run(tmp_path, log)
    log.log_start["t", 0] = 15
    log.from_ms = 0
    run(tmp_path, log)
    assert visible_rows(tmp_path) == log.rows()


def test_a_log_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, log_of(20))
    with pytest.raises(DataLoss, match="requested offset 20, available is 10"):
        run(tmp_path, log_of(10))


def test_a_topic_created_anew_is_refused(tmp_path: Path) -> None:
    log = log_of(20)
    run(tmp_path, log)
    log.ids["t"] = "another"
    with pytest.raises(TableError, match="topic 't' was recreated"):
        run(tmp_path, log)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    run(tmp_path, log_of(5))
    with pytest.raises(TableError, match="was loaded without headers, not with headers"):
        run(tmp_path, log_of(6), includeHeaders="true")


def test_a_second_load_at_the_same_time_is_refused(tmp_path: Path) -> None:
    with Table.open(tmp_path), pytest.raises(TableError, match=f"another load is writing .*process {os.getpid()}"):
        run(tmp_path, log_of(5))
    run(tmp_path, log_of(5))


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").touch()
    with pytest.raises(TableError, match=r"other\.parquet was not written by a load"):
        run(tmp_path, log_of(5))


def test_overlapping_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / RowsFile("t", 0, 0, 10).name).touch()
    (tmp_path / RowsFile("t", 0, 9, 20).name).touch()
    with pytest.raises(TableError, match="overlap"):
        run(tmp_path, log_of(5))


def test_a_task_that_wrote_other_rows_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = log_of(20)

    def write_elsewhere(self: FakeWriter, pieces: list[Any], directory: Path, frame: object = None) -> dict[int, Path]:
        moved = [Piece(piece.offset_range.since(piece.offset_range.start + 1), piece.file) for piece in pieces]
        return dict(zip((1, 0), honest(self, moved, directory).values(), strict=False))

    honest = FakeWriter.write
    monkeypatch.setattr(FakeWriter, "write", write_elsewhere)
    with pytest.raises(TableError, match=r"should hold .* but holds"):
        run(tmp_path, FakeLog({**other.partitions, ("t", 1): [b"x"] * 30}))
    assert visible_rows(tmp_path) == []


@pytest.mark.parametrize("topic", ["plain", "with-dashes-1", "a.b_c", "x" * 249, "t-00001-00000000000000000000"])
def test_file_names_are_read_back(topic: str) -> None:
    file = RowsFile(table_module.topic_label(topic), 3, 5, 2**62)
    assert RowsFile.parse(file.name) == file
    assert len(file.name) <= 255
