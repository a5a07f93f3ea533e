"""Loads from a log in memory into real tables, by a writer that runs a task's own code without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.jobs.load_job import run_load
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest
from oncelog.spark.jobs.shape import PLAIN
from oncelog.spark.source.options import parse_options
from oncelog.spark.table.parquet_files import table_schema
from oncelog.spark.targets.address import TableAddress, parse_address
from oncelog.spark.targets.format_table import FormatTable, open_target
from oncelog.spark.targets.step_writer import StepStores
from oncelog.spark.targets.table_target import Span, Target
from oncelog.spark.targets.task_files import TaskFiles, Written, written_of
from tests.peers.s3 import Lossy
from tests.unit.spark.jobs.fake_log import FakeLog, Row

BAD = b"bad"
GOOD_SCHEMA = table_schema(include_headers=False)
_BAD_NAMES = ("topic", "partition", "offset", "timestamp", "key", "value")
BAD_SCHEMA = pa.schema([GOOD_SCHEMA.field(name) for name in _BAD_NAMES] + [pa.field("reason", pa.string())])


class TaskWriter:
    """A task for each piece, which runs what Spark's tasks run; a value ``bad`` is a bad row."""

    parallelism = 2

    def __init__(self, log: FakeLog, *, suffix: bytes = b"", partition_by: str | None = None, column: str = "") -> None:
        self._log, self._suffix, self._column = log, suffix, column
        more = [pa.field(column, pa.int64())] if column else []
        self.schema = pa.schema([*GOOD_SCHEMA, *more])
        self.bad_schema: pa.Schema | None = BAD_SCHEMA
        self.partition_by = partition_by

    def write(self, pieces: Sequence[Piece], places: StepStores, frame: object = None) -> list[Written]:
        levels = () if self.partition_by is None else ("day",)
        files = TaskFiles(
            places.store, self.schema, levels, places.bad_store, self.bad_schema, dict(places.skipped_bad or {})
        )
        facts: list[dict[str, Any]] = []
        for piece in pieces:
            task = pickle.loads(pickle.dumps(files))
            for batch in task(iter([self._rows(piece)])):
                facts += batch.to_pylist()
        return written_of(facts)

    def _rows(self, piece: Piece) -> pa.RecordBatch:
        one = piece.offset_range
        values = self._log.partitions[one.topic, one.partition]
        rows = [
            {
                "value": values[offset] if values[offset] == BAD else (values[offset] or b"") + self._suffix,
                "_value": values[offset],
                "topic": one.topic,
                "partition": one.partition,
                "offset": offset,
                "timestamp": offset * 3_600_000_000,
                "timestampType": 0,
                "_bad": "not JSON" if values[offset] == BAD else None,
                "day": offset * 3_600 // 86_400,
                self._column or "number": offset,
            }
            for offset in range(one.start, one.end)
            if values[offset] is not None
        ]
        outside = [pa.field("_bad", pa.string()), pa.field("_value", pa.binary()), pa.field("day", pa.date32())]
        return pa.RecordBatch.from_pylist(rows, pa.schema([*self.schema, *outside]))


@dataclass(frozen=True)
class Lake:
    """A place for one table, the server that its commits go to, and the path by which they are known there."""

    to: str
    catalog: str | None
    options: dict[str, str]
    commits: Lossy
    commit_path: str

    @property
    def address(self) -> TableAddress:
        result = parse_address(self.to, self.catalog, self.options)
        assert result is not None
        return result

    @property
    def commit_method(self) -> str:
        return "POST" if self.catalog == "rest" else "PUT"

    def open(self) -> Target:
        return open_target(self.address)

    def load(
        self,
        log: FakeLog,
        *,
        rows_per_step: int = 1000,
        backfill: bool = False,
        on_event: Callable[[Event], None] = lambda event: None,
        topics: tuple[str, ...] = (),
        **writer: Any,
    ) -> LoadReport:
        """One run of a load, as a process of its own would make it."""
        names = topics or tuple(sorted({topic for topic, _ in log.partitions}))
        options = parse_options({"kafka.bootstrap.servers": "fake:1", "subscribe": ",".join(names)})
        request = LoadRequest(names, str(self.address), {}, log.from_ms, rows_per_step, PLAIN, None, backfill)
        table = FormatTable(self.address, request, options)
        return run_load(table, log, lambda: TaskWriter(log, **writer), request, options, on_event)

    def rows(self, *columns: str) -> list[Any]:
        """The rows that any reader of the table sees, sorted."""
        return rows_of(self.address, *columns)

    def bad(self) -> list[Row]:
        """Those of the quarantine beside it."""
        return rows_of(self.address.quarantine)

    def spans(self, log: FakeLog) -> dict[tuple[str, int], Span]:
        """The table's spans."""
        result = self.open().spans([TopicPartition(TopicName(topic), number) for topic, number in log.partitions])
        return {(one.topic, one.partition): span for one, span in result.items()}


def rows_of(address: TableAddress, *columns: str) -> list[Any]:
    """Rows, read as others read the table."""
    offset_range = list(columns or ("topic", "partition", "offset"))
    target: Any = open_target(address)
    table = target._table()
    if table is None:
        return []
    if address.kind == "delta":
        read = table.to_pyarrow_dataset().to_table(columns=offset_range)
    else:
        read = table.scan(selected_fields=tuple(offset_range)).to_arrow()
    return sorted(zip(*(read[name].to_pylist() for name in offset_range), strict=True))


def log_of(*sizes: int, bad: bool = False) -> FakeLog:
    """Topic t; every 7th offset is a marker, with ``bad`` every 5th a bad row."""
    return FakeLog({("t", number): values(0, size, bad=bad) for number, size in enumerate(sizes)})


def values(start: int, end: int, *, bad: bool = False) -> list[bytes | None]:
    """The values of some offsets of such a log."""
    return [None if at % 7 == 3 else BAD if bad and at % 5 == 1 else b"v%d" % at for at in range(start, end)]


def good_and_bad(log: FakeLog) -> tuple[list[Row], list[Row]]:
    """The rows that a table of all of the log has, and those of its quarantine."""
    bad = [row for row in log.rows() if log.partitions[row[0], row[1]][row[2]] == BAD]
    return [row for row in log.rows() if row not in bad], bad
