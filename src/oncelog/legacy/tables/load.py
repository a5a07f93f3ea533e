"""Loading old logs into a table directory: a task reads each file, Spark writes it, and the load checks and publishes
it by one rename.

The names of the table's files record each partition's position, so a killed load can be repeated, and a later one picks
up new data. A table of old logs accepts no rows of a topic, and vice versa: their offsets are unrelated.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.legacy.tables.files import OldFile, OldLogRange, old_files
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, PartitionReport, Progress
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.source.options import parse_options
from oncelog.spark.table.directory import RowsFile, TableError, topic_label
from oncelog.spark.targets.parquet_table import FileWriter, ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_A_STEP: Final = 4  # Per parallel slot; a step's files are published when all of them are written.
_UNUSED_OPTIONS: Final = {"kafka.bootstrap.servers": "no-broker:0", "subscribe": "none"}  # Required, but never used.


def load_old_logs(
    directory: str | Path,
    to: str | Path,
    topics: Sequence[str] = (),
    *,
    spark: SparkSession | None = None,
    shape: Shape = PLAIN,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Load the named logs (all by default) from ``directory`` into the Parquet table at ``to``, each message once.

    Offsets are the old log's: in 0.7 the outer entry's byte position, which messages of a compressed set share. Without
    ``spark`` a local session is started and stopped; executors must see the files under the same path. Raises
    SparkSourceError (OldLogsError, TableError, DataLoss), each one line.
    """
    started = time.monotonic()
    table = ParquetTable(LoadRequest((), to, _UNUSED_OPTIONS, shape=shape), parse_options(_UNUSED_OPTIONS))
    files = old_files(Path(directory), topics)
    with table.lock(), ExitStack() as stack:
        _check_same_table(table, {file.topic for file in files}, shape)
        ranges = _missing(table, files)
        report = _report(table, files, ranges)
        progress = Progress(report, sum(range_.size for range_ in ranges), on_event)
        table.begin(progress)
        progress.emit("planned")
        if ranges:
            writer = _writer(spark, table, stack)
            report.new_columns = table.new_columns(writer)
            table.prepare(writer)
            for pieces in _steps(ranges, writer.parallelism * TASKS_A_STEP):
                table.run_step("append", pieces, writer)
        if report.quarantined:
            report.quarantine = table.quarantine
        report.finish(time.monotonic() - started)
        return report


def _missing(table: ParquetTable, files: Iterable[OldFile]) -> list[OldLogRange]:
    """The ranges that the table lacks. Raises DataLoss if the old broker deleted some of them."""
    has = table.files()
    ranges: list[OldLogRange] = []
    ends: dict[TopicPartition, int] = {}
    for file in files:
        partition = TopicPartition(TopicName(file.topic), file.partition)
        if partition not in ends:
            loaded = has.get((topic_label(file.topic), file.partition))
            ends[partition] = loaded[-1].end if loaded else file.start
            if ends[partition] < file.start:
                raise DataLoss(
                    partition, ends[partition], file.start, "the old broker deleted data that was not loaded yet"
                )
        if file.end > ends[partition]:
            ranges.append(file.since(ends[partition]))
            ends[partition] = file.end
    return ranges


def _steps(ranges: Sequence[OldLogRange], tasks: int) -> Iterator[list[Piece]]:
    for first in range(0, len(ranges), tasks):
        some = ranges[first : first + tasks]
        yield [Piece(chunk, RowsFile.of(chunk.topic_partition, chunk.start, chunk.end)) for chunk in some]


def _report(table: ParquetTable, files: Iterable[OldFile], ranges: Iterable[OldLogRange]) -> LoadReport:
    begins = {range_.topic_partition: range_.start for range_ in reversed(list(ranges))}
    report = LoadReport(table.name)
    for topic, number in sorted({(file.topic, file.partition) for file in files}):
        begin = begins.get(TopicPartition(TopicName(topic), number))
        has = table.files().get((topic_label(topic), number))
        start = begin if begin is not None else has[-1].end if has else 0
        report.partitions.append(PartitionReport(topic, number, start, start))
    return report


def _check_same_table(table: ParquetTable, topics: set[str], shape: Shape) -> None:
    described = table.describe()
    if described and "oldLogs" not in described:
        raise TableError(f"{table.name} is a table of topics; load old logs into another directory")
    table.drop_unused_description()
    described = table.describe()
    settings: dict[str, Any] = {"includeHeaders": False, "read_committed": False, **shape.settings()}
    for name, value in settings.items():
        if described.get(name, value) != value:
            raise TableError(
                f"{name} is {value}, but the table at {table.name} was loaded with {name} {described[name]}; keep "
                "that setting, or load into another directory"
            )
    logs = sorted(topics | set(described.get("oldLogs", ())))
    if described.get("oldLogs") != logs:
        topics_of: Mapping[str, str] = dict.fromkeys(logs, "an old log")
        table.set_description({"id": uuid.uuid4().hex, **described, **settings, "topics": topics_of, "oldLogs": logs})


def _writer(spark: SparkSession | None, table: ParquetTable, stack: ExitStack) -> FileWriter:
    from oncelog.legacy.tables.data_source import frame_of
    from oncelog.spark.jobs.spark_reader import SparkReader
    from oncelog.spark.session.local_session import local_session

    class OldLogReader(SparkReader):
        """Reads files instead of a cluster."""

        def read(self, pieces: Sequence[Piece]) -> DataFrame:
            ranges = [piece.offset_range for piece in pieces if isinstance(piece.offset_range, OldLogRange)]
            return frame_of(self.session, ranges, self.decoding_options())

    session = spark or stack.enter_context(local_session(log=table.spark_log))
    return table.writer(OldLogReader(session, _UNUSED_OPTIONS))
