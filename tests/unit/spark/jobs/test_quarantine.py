"""A range and its bad rows: both there, once, wherever a load dies; days as directories are swapped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelog.spark.jobs.load_job import run_load
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import LoadReport, LoadRequest
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.source.options import parse_options
from oncelog.spark.table import atomic_swap, rename_journal
from oncelog.spark.table.directory import QuarantineRejected, Table, TableError
from oncelog.spark.table.parquet_files import table_schema
from oncelog.spark.targets.parquet_table import ParquetTable
from tests.unit.spark.jobs.fake_log import FakeLog
from tests.unit.spark.jobs.mortal import Died, Mortal
from tests.unit.spark.table.swaps import NEEDS_SWAPS

SERVERS = {"kafka.bootstrap.servers": "fake:1", "subscribe": "t"}
SCHEMA = table_schema(include_headers=False)


class FakeShapingWriter:
    """Values that begin with ``bad`` are bad; the day is the value's last letter."""

    parallelism = 1
    schema = SCHEMA
    new_columns: list[str] = []  # noqa: RUF012  # nobody changes it

    def __init__(self, log: FakeLog, partition_by: str | None) -> None:
        self._log, self.partition_by = log, partition_by

    def write(self, pieces: Sequence[Piece], directory: Path, frame: object = None) -> dict[int, Path]:
        directory.mkdir(parents=True)
        return {index: path for index, piece in enumerate(pieces) if (path := self._good(index, piece, directory))}

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        results = {}
        for index, piece in enumerate(pieces):
            if rows := [row for row in self._rows(piece) if row["value"].startswith(b"bad")]:
                results[index] = self._file(rows, directory, f"{index}.parquet")
        return results

    def record_columns(self, table: Table) -> None:
        pass

    def _good(self, index: int, piece: Piece, directory: Path) -> Path | None:
        rows = [row for row in self._rows(piece) if not row["value"].startswith(b"bad")]
        if self.partition_by is None or not rows:
            return self._file(rows, directory, f"{index}.parquet") if rows else None
        for day in sorted({row["value"][-1:] for row in rows}):
            own = [row for row in rows if row["value"][-1:] == day]
            self._file(own, directory / str(index) / f"day={day.decode()}", "rows.parquet")
        return directory / str(index)

    def _file(self, rows: list[dict[str, Any]], directory: Path, name: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), directory / name)
        return directory / name

    def _rows(self, piece: Piece) -> list[dict[str, Any]]:
        one = piece.offset_range
        values = self._log.partitions[one.topic, one.partition]
        own = {"key": None, "topic": one.topic, "partition": one.partition, "timestamp": 0, "timestampType": 0}
        return [{**own, "offset": at, "value": values[at] or b""} for at in range(one.start, one.end)]


def log_of(*values: bytes) -> FakeLog:
    return FakeLog({("t", 0): list(values)})


def run(place: Path, log: FakeLog, by: Any, topic: str | None = None, send_quarantined: Any = None) -> LoadReport:
    request = LoadRequest(("t",), place, {}, log.from_ms, 4, Shape("utf8", partition_by=by), topic)
    options, writer = parse_options(SERVERS), FakeShapingWriter(log, by)
    table = ParquetTable(request, options, send_quarantined)
    with table.lock():
        return run_load(table, log, lambda: writer, request, options)


def values_in(place: Path) -> list[tuple[int, bytes]]:
    """Whatever a plain reader of a directory sees."""
    if not [*place.glob("*.parquet"), *place.glob("offsets=*")]:
        return []
    rows = pq.read_table(place, columns=["offset", "value"]).to_pylist()
    return sorted((row["offset"], row["value"]) for row in rows)


def expected(log: FakeLog, *, bad: bool) -> list[tuple[int, bytes]]:
    values = enumerate(log.partitions["t", 0])
    return [(at, value or b"") for at, value in values if (value or b"").startswith(b"bad") == bad]


ACTIONS = ((os, "replace"), (Path, "unlink"), (rename_journal, "swap"))


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, pytest.param("day", marks=NEEDS_SWAPS)])
def test_good_and_bad_rows_are_all_there_once_wherever_loads_die(by: Any, tmp_path: Path) -> None:
    before = log_of(b"1a", b"bad", b"2b", b"3a", b"bad")
    after = log_of(b"1a", b"bad", b"bad now", b"3c", b"5a", b"4b", b"bad new")
    after.from_ms = 2
    for point in range(1_000):
        place = tmp_path / str(point)
        run(place, before, by)
        with pytest.MonkeyPatch.context() as patch:
            mortal = Mortal(patch, point, ACTIONS)
            with suppress(Died):
                run(place, after, by)
        seen = [at for at, _ in values_in(place)]
        assert len(seen) == len(set(seen)), f"rows twice after dying at {point}"
        assert set(values_in(place)) <= {*expected(before, bad=False), *expected(after, bad=False)}
        with Table.open(place) as table:  # finishes what was decided
            assert not list(table.hidden.glob("intent.json"))
        both = [at for at, _ in values_in(place)] + [at for at, _ in values_in(place / "_quarantine")]
        assert sorted(both) == list(range(len(both))), f"a row in neither or in both after dying at {point}"
        run(place, after, by)
        assert values_in(place) == expected(after, bad=False)
        assert values_in(place / "_quarantine") == expected(after, bad=True)
        if not mortal.dead:
            assert point > 10
            return
        shutil.rmtree(place)


def test_the_quarantine_topic_is_settled_before_the_rows_and_again_by_the_next_load(tmp_path: Path) -> None:
    log, told = log_of(b"1a", b"bad"), list[dict[str, Any]]()

    def dying(extra: dict[str, Any]) -> None:
        told.append(extra)
        assert values_in(tmp_path) == []
        raise Died

    with pytest.raises(Died):
        run(tmp_path, log, None, "q", dying)
    with pytest.raises(TableError, match="bad rows to topic 'q': run `oncelog load"):
        run(tmp_path, log, None)

    def send_quarantined(extra: dict[str, Any]) -> None:
        told.append(extra)
        assert pq.read_table(tmp_path / extra["rows"])["value"].to_pylist() == [b"bad"]

    assert run(tmp_path, log, None, "q", send_quarantined).files == 0
    assert told[0] == told[1]
    assert values_in(tmp_path) == [(0, b"1a")]


def test_rows_that_a_quarantine_topic_takes_in_no_form_stay_beside_the_table(tmp_path: Path) -> None:
    log = log_of(b"1a", b"bad")

    def refusing(extra: dict[str, Any]) -> None:
        raise QuarantineRejected("no")

    def dying(extra: dict[str, Any]) -> None:
        raise Died

    with pytest.raises(Died):
        run(tmp_path, log, None, "q", dying)
    assert run(tmp_path, log, None, "q", refusing).files == 0  # the journal of the run before is finished
    log.partitions["t", 0] += [b"2a", b"bad again"]
    assert run(tmp_path, log, None, "q", refusing).rows == 1
    assert values_in(tmp_path) == expected(log, bad=False)
    assert values_in(tmp_path / "_quarantine") == expected(log, bad=True)


def test_a_file_system_without_swaps_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(b"1a", b"2b")
    run(tmp_path, log, "day")
    log.from_ms = 1
    monkeypatch.setattr(atomic_swap, "_renameat2", lambda: None)
    with pytest.raises(TableError, match="cannot swap two directories in one step"):
        run(tmp_path, log, "day")
    assert values_in(tmp_path) == expected(log, bad=False)
