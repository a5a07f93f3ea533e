"""``oncelog stream``: a load that goes on, by a structured streaming query over the ``oncelog`` source.

The rule is ADR 0001's: a range's rows become visible by the rename that commits its offsets, and the table's names are
the only checkpoint. Each start begins a new query at the names' offsets, with a checkpoint of Spark's in a temporary
directory; a batch's end is taken from Spark's log, its beginning from the table, and the footers of the files
written have to agree. So there is no second place that could disagree, no batch is ever run again under an old
number, and ``load``, ``--backfill`` and ``stream`` continue each other.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_job import check_same_table, request_for
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import LoadReport, PartitionReport
from oncelog.spark.jobs.publication import Publication
from oncelog.spark.jobs.quarantine_topic import quarantine_sender
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.spark_writer import MOST_TASKS, ShapedSparkWriter, SparkWriter, writer_for
from oncelog.spark.jobs.stream_query import StreamBatches, StreamRequest, checked_topic_ids, run_query
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.stream_position import Position
from oncelog.spark.table.directory import RowsFile, Table, TableBusy, TableError, refuse_no_directory, topic_label
from oncelog.spark.table.parquet_files import Kept, footer_stats, merge, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
    how: StreamRequest | None = None,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    quarantine_topic: str | None = None,
) -> LoadReport:
    """Load ``topics`` into the table at ``to`` until ``how.stop`` is set, or all is there with ``available-now``.

    Setting ``stop`` ends it after the batch under way. Arguments and errors are those of ``load``.
    """
    refuse_no_directory(to)
    how = how or StreamRequest()
    request = request_for(topics, bootstrap_servers, to, None, 1, options, shape, quarantine_topic)
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()
    send_quarantined = quarantine_sender(parsed, request.to)
    started = time.monotonic()
    with Table.open(request.to, send_quarantined) as table, ExitStack() as stack:
        from oncelog.spark.session.local_session import local_session

        table.forget_unused_description()
        check_same_table(table, source.topic_ids(), parsed, request)
        table.partitioned = request.shape.partition_by is not None
        session = spark or stack.enter_context(local_session(log=request.to / "_oncelog" / "spark.log"))
        writer = writer_for(session, request, table)
        report = LoadReport(str(request.to))
        run = Publication(
            table,
            parsed,
            report,
            on_event=how.on_event,
            quarantine_topic=quarantine_topic,
            send_quarantined=send_quarantined,
        )
        batches = ParquetBatches(table, run, writer, how)
        starts = batches.begin(source.states(table), fail_on_data_loss=parsed.fail_on_data_loss)
        checkpoint = Path(tempfile.mkdtemp(prefix="oncelog-stream-"))
        stack.callback(shutil.rmtree, checkpoint, ignore_errors=True)
        run_query(batches, request, starts, checkpoint, how)
        report.quarantine = (quarantine_topic or str(table.quarantine)) if report.quarantined else None
        report.finish(time.monotonic() - started)
        return report


class ParquetBatches(StreamBatches):
    """Micro-batches into a directory of Parquet files."""

    def __init__(
        self, table: Table, run: Publication, writer: SparkWriter | ShapedSparkWriter, how: StreamRequest
    ) -> None:
        plain = writer.plain if isinstance(writer, ShapedSparkWriter) else writer
        super().__init__(plain, how, run.report)
        self._table, self._run, self._writer = table, run, writer

    def _record_begins(self, late: Mapping[TopicPartition, int]) -> None:
        """Write an empty file for each partition: its name says where the partition begins."""
        for partition, position in late.items():
            self._run.publish_empty(RowsFile.of(partition, position, position), self._writer)
            self._run.report.steps += 1

    def _commit(self, frame: DataFrame, end: Position) -> None:
        topic_ids = checked_topic_ids(end, self._table.describe().get("topics", {}))
        files = self._table.files()
        pieces = []
        for partition, until in sorted(end.offsets.items()):
            own = files.get((topic_label(partition.topic), partition.partition))
            start = own[-1].end if own else self._starts.get(partition, 0)
            if until > start:
                wanted = OffsetRange(*partition, start, until, topic_ids.get(partition.topic, ""))
                pieces.append(Piece(wanted, RowsFile.of(partition, start, until)))
                self._run.add_partition(PartitionReport(partition.topic, partition.partition, start, start))
        if pieces:
            if isinstance(self._writer, ShapedSparkWriter):
                self._run.run_step(pieces, _ShapedFrameWriter(frame, self._writer))
            else:
                self._run.run_step(pieces, _FrameWriter(frame, self._writer))

    def _compact(self) -> None:
        from oncelog.spark.table.compact import compact_open

        with suppress(TableBusy):  # a backfill or an export is under way; later, then
            self._run.report.compacted_files += compact_open(self._table, self._how.compact_below).files_before


class _FrameWriter:
    """A writer for one batch's rows: Spark's tasks have read them already, so the footers say whose a file is."""

    def __init__(self, frame: DataFrame, writer: SparkWriter | ShapedSparkWriter) -> None:
        self._frame, self._writer = frame, writer
        self.parallelism = writer.parallelism
        self._bad = 0

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write the batch's rows, a file for each piece: see ``Writer.write``."""
        if isinstance(self._writer, ShapedSparkWriter):
            files, self._bad = self._writer.write_good(self._frame, directory, MOST_TASKS)
        else:
            files = self._writer.write_rows(self._frame, directory, MOST_TASKS)
        return by_range(files.values(), directory, pieces)


class _ShapedFrameWriter(_FrameWriter):
    """A writer for one batch's rows into a table with a shape."""

    def __init__(self, frame: DataFrame, writer: ShapedSparkWriter) -> None:
        super().__init__(frame, writer)
        self._shaped = writer
        self.schema, self.partition_by, self.new_columns = writer.schema, writer.partition_by, writer.new_columns

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write the batch's bad rows, for which the ranges are read again: see ``ShapedWriter.write_bad``."""
        return self._shaped.write_bad_of(pieces, directory, self._bad)


def by_range(files: Iterable[Path], directory: Path, pieces: Sequence[Piece]) -> dict[int, Path]:
    """Index of the piece → the file of its rows; those of a piece that several tasks read are merged."""
    parts: dict[int, list[tuple[int, Path]]] = {}
    for path in files:
        facts = footer_stats(path)
        if facts.rows:
            partition = partition_of(path)
            index = next((i for i, piece in enumerate(pieces) if piece.wanted.topic_partition == partition), None)
            if index is None:
                raise TableError(
                    f"Spark wrote rows of {partition}, which this batch does not read: start the stream again"
                )
            parts.setdefault(index, []).append((facts.first_offset, path))
    found: dict[int, Path] = {}
    for index, own in parts.items():
        own.sort()
        found[index] = own[0][1]
        if len(own) > 1:
            found[index] = directory / f"range-{index}.parquet"
            merge([Kept(path) for _, path in own], found[index])
    return found
