"""Compaction: larger files, and no reader who sees a row twice or not at all, wherever it dies."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.table.compact import compact, compact_open, runs_to_merge
from oncelog.spark.table.directory import RowsFile, Table, TableBusy, TableError
from oncelog.spark.table.parquet_files import table_schema
from tests.unit.spark.jobs.fake_log import FakeLog, visible_rows
from tests.unit.spark.jobs.test_load_job import run
from tests.unit.spark.table.swaps import NEEDS_SWAPS

PARTITION = TopicPartition(TopicName("t"), 0)


def small_files(place: Path, count: int = 6) -> FakeLog:
    """A table of two partitions with ``count`` files each."""
    log = FakeLog({("t", 0): [], ("t", 1): []})
    for _ in range(count):
        for values in log.partitions.values():
            values += [b"x"] * 3
        run(place, log)
    return log


@NEEDS_SWAPS
def test_neighbours_become_one_and_loads_go_on(tmp_path: Path) -> None:
    place = tmp_path / "table"
    log = small_files(place)
    (place / "_common_metadata").write_bytes(b"stays")
    report = compact(place)
    assert (report.files_before, report.files_after, report.rows) == (12, 2, 36)
    assert visible_rows(place) == log.rows()
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert (place / "_common_metadata").read_bytes() == b"stays"
    assert run(place, log).files == 0
    log.partitions["t", 1] += [b"new"]
    assert run(place, log).rows == 1
    log.from_ms = 5
    assert run(place, log, suffix=b"!").rows == 13 + 14
    assert visible_rows(place) == log.rows()


def test_only_small_neighbours_without_a_gap_are_merged() -> None:
    def file(start: int, end: int) -> RowsFile:
        return RowsFile.of(PARTITION, start, end)

    sized = [(file(0, 5), 40), (file(5, 9), 40), (file(9, 12), 40), (file(12, 13), 500), (file(13, 20), 10)]
    sized += [(file(21, 22), 10), (file(22, 22), 1)]
    assert list(runs_to_merge(sized, 100)) == [[file(0, 5), file(5, 9)], [file(21, 22), file(22, 22)]]
    assert list(runs_to_merge(sized[:1], 100)) == []


class Died(BaseException):
    """The process, where the test wants it."""


def dying_at(point: int) -> Callable[[str], None]:
    steps = iter(range(1_000))

    def on_step(step: str) -> None:
        if next(steps) == point:
            raise Died(step)

    return on_step


@NEEDS_SWAPS
def test_wherever_it_dies_a_reader_sees_every_row_once_and_the_next_run_completes_it(tmp_path: Path) -> None:
    made = tmp_path / "made" / "table"
    made.parent.mkdir()
    log = small_files(made, 3)
    died = []
    for point in range(20):
        place = tmp_path / str(point) / "table"
        shutil.copytree(made.parent, place.parent)
        try:
            with Table.open(place) as table:
                compact_open(table, 1 << 20, dying_at(point))
        except Died as step:
            died.append(str(step))
        assert visible_rows(place) == log.rows()
        compact(place)
        assert visible_rows(place) == log.rows()
        assert len(list(place.glob("rows-*"))) == 2
        assert len(list(place.parent.iterdir())) == 1
        if len(died) == point:
            break
    assert died == ["linking", "merging", "merging", "syncing", "swapping", "swapped"]


@NEEDS_SWAPS
def test_a_killed_process_leaves_its_copy_and_the_next_removes_it(tmp_path: Path) -> None:
    place = tmp_path / "table"
    log = small_files(place, 2)
    left = tmp_path / ".table.oncelog-compacting"
    shutil.copytree(place, left)
    (left / "_oncelog" / "half").write_bytes(b"")
    compact(place)
    assert not left.exists()
    assert not (place / "_oncelog" / "half").exists()
    assert visible_rows(place) == log.rows()


@NEEDS_SWAPS
def test_the_lock_stays_held_across_the_swap(tmp_path: Path) -> None:
    place = tmp_path / "table"
    small_files(place, 2)
    with Table.open(place) as table:
        inode = (place / "_oncelog" / "lock").stat().st_ino
        compact_open(table, 1 << 20)
        assert (place / "_oncelog" / "lock").stat().st_ino == inode
        with pytest.raises(TableBusy), Table.open(place):
            pass
        with Table.open(place, role="fill"), pytest.raises(TableBusy):
            compact_open(table, 1 << 20)


def test_a_merge_that_lost_a_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "table"
    log = small_files(place, 2)

    def losing(sources: object, merged: Path) -> int:
        pq.write_table(table_schema(include_headers=False).empty_table(), merged)
        return 0

    monkeypatch.setattr("oncelog.spark.table.compact.merge", losing)
    with pytest.raises(TableError, match="should hold"):
        compact(place)
    assert visible_rows(place) == log.rows()
    assert len(list(place.glob("rows-*"))) == 4


@NEEDS_SWAPS
def test_whoever_reads_meanwhile_sees_a_whole_table_or_an_error(tmp_path: Path) -> None:
    place, log = tmp_path / "table", FakeLog({("t", 0): []})
    stop, seen, wrong = threading.Event(), set[int](), list[list[int]]()

    def reader() -> None:
        while not stop.is_set():
            with suppress(OSError, pa.ArrowInvalid):  # it listed a file that is gone by now, or nothing but such
                offsets = [row[2] for row in visible_rows(place)]
                seen.add(len(offsets))
                if offsets != list(range(len(offsets))):
                    wrong.append(offsets)

    reading = threading.Thread(target=reader)
    reading.start()
    try:
        for _ in range(6):
            for _ in range(3):
                log.partitions["t", 0] += [b"x"] * 2
                run(place, log)
            compact(place)
    finally:
        stop.set()
        reading.join()
    assert wrong == []
    assert len(seen) > 1


@NEEDS_SWAPS
def test_days_are_merged_each_with_its_own(tmp_path: Path) -> None:
    place = tmp_path / "table"
    (place / "_oncelog").mkdir(parents=True)
    with Table.open(place) as table:
        table.set_description({"partitionBy": "day", "topics": {"t": ""}})
    with Table.open(place) as table:
        for start in range(3):
            staged = table.staging(start)
            for day in ("a", "b") if start else ("a",):
                (staged / f"day={day}").mkdir(parents=True)
                row = {"topic": "t", "partition": 0, "offset": start * 2 + (day == "b"), "day_was": day}
                pq.write_table(pa.Table.from_pylist([row]), staged / f"day={day}" / "rows.parquet")
            table.publish(staged, RowsFile.of(PARTITION, start * 2, start * 2 + 2))
        assert compact_open(table, 1 << 20).rows == 5
    assert [path.name for path in place.glob("offsets=*")] == [RowsFile.of(PARTITION, 0, 6).directory_name]
    read = pq.read_table(place)
    assert sorted(row["offset"] for row in read.select(["offset"]).to_pylist()) == [0, 2, 3, 4, 5]
    assert read["day"].to_pylist() == read["day_was"].to_pylist()
