"""``oncelog stream``: a load that goes on, by a structured streaming query over the ``oncelog`` source.

The rule is ADR 0001's: a range's rows become visible by the rename that commits its offsets, and the table's names are
the only checkpoint. Each start begins a new query at the names' offsets, with a checkpoint of Spark's in a temporary
directory; a batch's end is taken from Spark's log, its beginning from the table, and the footers of the files
written have to agree. So there is no second place that could disagree, no batch is ever run again under an old
number, and ``load``, ``--backfill`` and ``stream`` continue each other.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.spark.errors import DataLoss, OptionError
from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_job import check_same_table, request_for
from oncelog.spark.jobs.load_plan import PartitionState, Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, PartitionReport
from oncelog.spark.jobs.planned_batches import AVAILABLE_NOW, run_batches
from oncelog.spark.jobs.publication import Publication
from oncelog.spark.jobs.quarantine_topic import quarantine_sender
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.spark_writer import (
    MOST_TASKS,
    ShapedSparkWriter,
    SparkWriter,
    one_line_error,
    writer_for,
)
from oncelog.spark.sessions import is_connect
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.plan.offset_ranges import OffsetRange
from oncelog.spark.source.plan.stream_position import Position
from oncelog.spark.table.directory import RowsFile, Table, TableBusy, TableError, topic_label
from oncelog.spark.table.parquet_files import Kept, footer_stats, merge, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEFAULT_TRIGGER: Final = "10 seconds"
_POLL_SECONDS: Final = 0.2


@dataclass(slots=True)
class StreamRequest:
    """Settings of a stream. ``trigger`` is an interval (``10 seconds``) or ``available-now``; ``starting`` is for
    partitions that the table has nothing of: ``earliest`` or ``latest`` (what is before can be filled by a load's
    backfill)."""

    trigger: str = DEFAULT_TRIGGER
    starting: str = "earliest"
    compact_every: int | None = None
    compact_below: int = 128 * 1024 * 1024
    stop: threading.Event = field(default_factory=threading.Event)
    on_batch: Callable[[LoadReport], None] = lambda report: None
    on_event: Callable[[Event], None] = lambda event: None

    def __post_init__(self) -> None:
        if self.starting not in ("earliest", "latest"):
            raise OptionError(f"a stream must start at 'earliest' or 'latest', got {self.starting!r}")


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
    how = how or StreamRequest()
    request = request_for(topics, bootstrap_servers, to, None, 1, options, shape, quarantine_topic)
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()
    send_quarantined = None if quarantine_topic is None else quarantine_sender(parsed, request.to)
    started = time.monotonic()
    with Table.open(request.to, send_quarantined) as table, ExitStack() as stack:
        from oncelog.spark.local_session import local_session

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
        batches = _Batches(table, run, writer, how)
        starts = batches.begin(source.states(table), fail_on_data_loss=parsed.fail_on_data_loss)
        checkpoint = Path(tempfile.mkdtemp(prefix="oncelog-stream-"))
        stack.callback(shutil.rmtree, checkpoint, ignore_errors=True)
        run_query(batches, request, starts, checkpoint, how)
        report.quarantine = (quarantine_topic or str(table.quarantine)) if report.quarantined else None
        report.finish(time.monotonic() - started)
        return report


class Batches(Protocol):
    """Micro-batches into a table."""

    failure: Exception | None

    @property
    def session(self) -> SparkSession:
        """The session that reads and writes."""

    def handler(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """The function that Spark calls with each batch."""

    def close(self) -> None:
        """Let no further batch begin, and wait for one under way."""


def run_query(
    batches: Batches,
    request: LoadRequest,
    starts: Mapping[str, Mapping[str, int]],
    checkpoint: Path,
    how: StreamRequest,
) -> None:
    """Run the query until ``how.stop`` is set, all is there with ``available-now``, or it fails."""
    session = batches.session
    if is_connect(session):
        run_batches(session, batches.handler(checkpoint), request, starts, checkpoint, how)
        return
    goes_on = str(how.trigger != AVAILABLE_NOW).lower()
    options = {"limitFirstBatch": goes_on}  # before Spark 4.2 a source is not told its trigger
    options |= {name: value for name, value in request.options.items() if name != "minPartitions"}
    frame = session.readStream.format("oncelog").options(**options).option("startingOffsets", json.dumps(starts)).load()
    writing = frame.writeStream.foreachBatch(batches.handler(checkpoint)).option("checkpointLocation", str(checkpoint))
    if how.trigger == AVAILABLE_NOW:
        writing = writing.trigger(availableNow=True)
    else:
        writing = writing.trigger(processingTime=how.trigger)
    try:
        query = writing.start()
    except Exception as error:
        raise one_line_error(error) from error
    try:
        while query.isActive and not how.stop.is_set():
            how.stop.wait(_POLL_SECONDS)
        batches.close()
        _raise_failure(query, batches)
    finally:
        batches.close()
        query.stop()


def _raise_failure(query: StreamingQuery, batches: Batches) -> None:
    if batches.failure is not None:
        raise batches.failure
    error = None if query.isActive else query.exception()
    if error is not None:
        raise one_line_error(error)


class _Batches:
    """Micro-batches into the table. Spark calls it from a thread of its own, one batch at a time."""

    def __init__(
        self, table: Table, run: Publication, writer: SparkWriter | ShapedSparkWriter, how: StreamRequest
    ) -> None:
        self._table, self._run, self._writer, self._how = table, run, writer, how
        self._lock, self._closed = threading.Lock(), False
        self._starts: dict[TopicPartition, int] = {}
        self.failure: Exception | None = None

    @property
    def session(self) -> SparkSession:
        """The session that writes."""
        plain = self._writer.plain if isinstance(self._writer, ShapedSparkWriter) else self._writer
        return plain.session

    def begin(self, states: Sequence[PartitionState], *, fail_on_data_loss: bool) -> dict[str, dict[str, int]]:
        """The ``startingOffsets`` by which the query continues the table; an empty file records where a late partition
        begins."""
        starts: dict[str, dict[str, int]] = {}
        for state in states:
            position = state.position
            if position is None:
                position = state.latest if self._how.starting == "latest" else state.earliest
                if self._how.starting == "latest":
                    self._run.publish_empty(RowsFile.of(state.partition, position, position), self._writer)
                    self._run.report.steps += 1
            elif position < state.earliest and fail_on_data_loss:
                raise DataLoss(state.partition, position, state.earliest, "retention removed what was not loaded yet")
            position = max(position, state.earliest)
            self._starts[state.partition] = position
            starts.setdefault(state.partition.topic, {})[str(state.partition.partition)] = position
        return starts

    def handler(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """The function that Spark calls with each batch."""

        def batch(frame: DataFrame, number: int) -> None:
            with self._lock:
                if self._closed:
                    return
                try:
                    self._publish(frame, *self._checked(batch_end(checkpoint, number)))
                    self._compact(number)
                except Exception as error:
                    self.failure = error
                    raise
            self._how.on_batch(self._run.report)

        return batch

    def close(self) -> None:
        """Let no further batch begin, and wait for one under way."""
        with self._lock:
            self._closed = True

    def _checked(self, end: Position) -> tuple[Mapping[TopicPartition, int], Mapping[str, str]]:
        """The batch's end, and the topics' ids. Raises TableError when a topic is not the one that the table has."""
        known: dict[str, str] = self._table.describe().get("topics", {})
        topics = {partition.topic for partition in end.offsets}
        ids = {name: uuid_text(base64.urlsafe_b64decode(one + "==")) for name, one in end.topic_ids.items()}
        for topic in sorted(topics):
            if known.get(topic) and ids.get(topic, known[topic]) != known[topic]:
                raise TableError(f"topic {topic!r} was deleted and created anew: load it into another directory")
        return end.offsets, ids

    def _publish(self, frame: DataFrame, end: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> None:
        files = self._table.files()
        pieces = []
        for partition, until in sorted(end.items()):
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

    def _compact(self, number: int) -> None:
        every = self._how.compact_every
        if every is not None and number % every == every - 1:
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


def batch_end(checkpoint: Path, number: int) -> Position:
    """The position at which a batch ends, from the log that Spark writes before it begins the batch."""
    lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    said: dict[str, Any] = json.loads(lines[2])  # version, metadata of the batch, then a line for each source
    return Position.from_json(said)
