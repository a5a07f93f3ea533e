"""Files that tasks write: one for each partition and day, bad rows apart, nothing left of an attempt that fails."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import RowsFile, TableError
from oncelog.spark.targets.file_stores import DirectoryStore
from oncelog.spark.targets.step_writer import check_files
from oncelog.spark.targets.table_target import Span
from oncelog.spark.targets.task_files import TaskFiles, Written, written_of
from tests.unit.spark.targets.tables import BAD_SCHEMA, GOOD_SCHEMA

ALL = pa.schema(
    [*GOOD_SCHEMA, pa.field("_bad", pa.string()), pa.field("_value", pa.binary()), pa.field("day", pa.int32())]
)


def row(offset: int, partition: int = 0, day: int | None = 0, bad: str | None = None) -> dict[str, Any]:
    place = {"topic": "t", "partition": partition, "offset": offset, "timestamp": offset, "timestampType": 0}
    return {**place, "key": None, "value": b"v", "_value": b"raw", "_bad": bad, "day": day}


def run(place: Path, *batches: list[dict[str, Any]], levels: tuple[str, ...] = (), **more: Any) -> list[Written]:
    store = DirectoryStore(str(place), relative=True)
    bad = DirectoryStore(str(place / "q"), relative=True)
    task = pickle.loads(pickle.dumps(TaskFiles(store, GOOD_SCHEMA, levels, bad, BAD_SCHEMA, **more)))
    facts = task(pa.RecordBatch.from_pylist(rows, ALL) for rows in batches)
    return written_of(next(iter(facts)).to_pylist())


def test_a_file_for_each_partition_and_day(tmp_path: Path) -> None:
    first = [row(0), row(1), row(2, day=1), row(3, day=None), row(4, day=None)]
    result = run(tmp_path, first, [row(5, day=None), row(9, partition=1)], levels=("day",))
    assert [
        (item.file.partition, item.file.first_offset, item.file.last_offset, item.file.levels) for item in result
    ] == [
        (0, 0, 1, {"day": "0"}),
        (0, 2, 2, {"day": "1"}),
        (0, 3, 5, {"day": None}),
        (1, 9, 9, {"day": "0"}),
    ]
    assert "day=__HIVE_DEFAULT_PARTITION__" in result[2].file.path
    assert pq.read_schema(tmp_path / result[0].file.path).names == GOOD_SCHEMA.names


def test_bad_rows_go_apart_without_those_that_are_there(tmp_path: Path) -> None:
    rows = [row(0), row(1, bad="x"), row(2, bad="y"), row(3)]
    good, bad = run(tmp_path, rows, skipped_bad={("t", 0): Span(0, 2)})[::-1]
    if good.bad:
        good, bad = bad, good
    assert (good.file.rows, bad.file.rows, bad.file.first_offset) == (2, 1, 2)
    kept = pq.read_table(tmp_path / "q" / bad.file.path).to_pylist()
    assert [(item["value"], item["reason"]) for item in kept] == [(b"raw", "y")]


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def batches() -> Iterator[list[dict[str, Any]]]:
        yield [row(0), row(1, bad="x"), row(0, partition=1)]
        raise RuntimeError("the broker went away")

    with pytest.raises(RuntimeError):
        run(tmp_path, *batches())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_no_rows_no_files(tmp_path: Path) -> None:
    assert run(tmp_path) == []
    assert run(tmp_path, []) == []


def test_the_driver_believes_footers(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path), relative=True)
    (one,) = run(tmp_path, [row(3), row(4)])
    pieces = [
        Piece(OffsetRange("t", 0, 0, 3), RowsFile("t", 0, 0, 3)),
        Piece(OffsetRange("t", 0, 3, 6), RowsFile("t", 0, 3, 6)),
    ]
    assert check_files([one], pieces, lambda _: store) == [1]
    with pytest.raises(TableError, match="which this step does not read"):
        check_files([one], pieces[:1], lambda _: store)
    lie = one._replace(file=one.file._replace(last_offset=5))
    with pytest.raises(TableError, match="does not hold what the task"):
        check_files([lie], pieces, lambda _: store)
