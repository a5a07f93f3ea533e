"""The pipeline of ``stream`` for any kind of table: micro-batches, each committed by the table.

The table is the only checkpoint (ADR 0001): each start begins a new query where the table ends, with Spark's checkpoint
in a temporary directory. No batch runs again under an old number, and loads, backfills and streams continue one
another.

With a registry, a batch is committed only if its schema is still the subject's latest: its records were written before,
so none has a newer one. Otherwise the query ends and the next one begins where the table does, with the new columns.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.spark.jobs.load_job import check_same_table
from oncelog.spark.jobs.load_plan import PartitionState, Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, Progress
from oncelog.spark.jobs.load_table import LoadTable, Source, Writer
from oncelog.spark.jobs.planned_batches import AVAILABLE_NOW, run_batches, wrong_interval
from oncelog.spark.jobs.spark_reader import SparkReader, one_line_error
from oncelog.spark.session.errors import DataLoss, OptionError
from oncelog.spark.session.sessions import is_connect
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.stream_position import Position
from oncelog.spark.table.directory import RowsFile, TableBusy, TableError, topic_label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEFAULT_TRIGGER: Final = "10 seconds"
_POLL_SECONDS: Final = 0.2


@dataclass(slots=True)
class StreamRequest:
    """Settings of a stream. ``trigger`` is an interval (``10 seconds``) or ``available-now``. ``starting`` applies to
    partitions that the table lacks: ``earliest``, or ``latest`` (a backfill can load what precedes it)."""

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


def run_stream(
    table: LoadTable[Writer],
    source: Source,
    start_reader: Callable[[], SparkReader],
    request: LoadRequest,
    options: SourceOptions,
    checkpoint: Path,
    settings: StreamRequest,
) -> LoadReport:
    """Stream into any table until ``stop`` is set, ``available-now`` has read everything, or a batch fails."""
    started = time.monotonic()
    check_same_table(table, source.topic_ids(), options, request)
    reader = start_reader()
    progress = Progress(LoadReport(table.name), on_event=settings.on_event)
    report = progress.report
    for number in itertools.count():
        reader.decoding = None
        writer = table.writer(reader)
        if number:
            report.new_columns += [name for name in table.new_columns(writer) if name not in report.new_columns]
        table.prepare(writer)
        if not number:
            table.begin(progress)
        batches = StreamBatches(table, writer, progress, settings, reader.is_outdated)
        starts = batches.begin(source.states(table), fail_on_data_loss=options.fail_on_data_loss)
        run_query(batches, reader, request, starts, checkpoint / str(number), settings)
        if not batches.is_outdated:
            break
    report.quarantine = table.quarantine if report.quarantined else None
    report.finish(time.monotonic() - started)
    return report


class StreamBatches(Generic[Writer]):
    """Commits micro-batches to a table. Spark calls the handler from its own thread, one batch at a time."""

    def __init__(
        self,
        table: LoadTable[Writer],
        writer: Writer,
        progress: Progress,
        settings: StreamRequest,
        check_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        # The error of a batch, after which no other runs.
        self.failure: Exception | None = None
        # True if a batch was not committed because a newer schema is to be read by.
        self.is_outdated = False
        self._check_outdated = check_outdated
        self._table, self._writer, self._progress, self._settings = table, writer, progress, settings
        self._lock, self._closed = threading.Lock(), False
        # The first offset of each partition that the table lacks.
        self._starts: dict[TopicPartition, int] = {}

    def begin(self, states: Sequence[PartitionState], *, fail_on_data_loss: bool) -> dict[str, dict[str, int]]:
        """The ``startingOffsets`` with which the query continues the table. Raises DataLoss."""
        starts: dict[str, dict[str, int]] = {}
        late: dict[TopicPartition, int] = {}
        for state in states:
            position = state.position
            if position is None:
                position = state.latest if self._settings.starting == "latest" else state.earliest
                if self._settings.starting == "latest":
                    late[state.partition] = position
            elif position < state.earliest and fail_on_data_loss:
                raise DataLoss(state.partition, position, state.earliest, "retention removed it before it was loaded")
            position = max(position, state.earliest)
            self._starts[state.partition] = position
            starts.setdefault(state.partition.topic, {})[str(state.partition.partition)] = position
        self._table.record_start_offsets(late, self._writer)
        return starts

    def handler(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:

        def batch(frame: DataFrame, number: int) -> None:
            with self._lock:
                if self._closed or self.is_outdated:
                    return
                try:
                    self.is_outdated = self._check_outdated()
                    if self.is_outdated:
                        return
                    self._commit(frame, batch_end(checkpoint, number))
                    # Between batches, when this process writes nothing.
                    every = self._settings.compact_every
                    if every is not None and number % every == every - 1:
                        self._compact()
                except Exception as error:
                    self.failure = error
                    raise
            self._settings.on_batch(self._progress.report)

        return batch

    def _commit(self, frame: DataFrame, end: Position) -> None:
        """Commit the batch that ends at ``end``. Raises TableError."""
        topic_ids = checked_topic_ids(end, self._table.describe().get("topics", {}))
        files = self._table.files(list(end.offsets))
        pieces = []
        for partition, until in sorted(end.offsets.items()):
            existing = files.get((topic_label(partition.topic), partition.partition))
            # The end comes from Spark's log, the beginning from the table; the files' footers must agree with both.
            start = existing[-1].end if existing else self._starts.get(partition, 0)
            if until > start:
                offset_range = OffsetRange(*partition, start, until, topic_ids.get(partition.topic, ""))
                pieces.append(Piece(offset_range, RowsFile.of(partition, start, until)))
                self._progress.add_partition(partition, start)
        if pieces:
            self._table.run_step("append", pieces, self._writer, frame)

    def _compact(self) -> None:
        with suppress(TableBusy):  # a backfill or an export is running; a later batch compacts
            self._progress.report.compacted_files += self._table.compact(self._settings.compact_below)

    def close(self) -> None:
        """Let no further batch begin, and wait for a running one."""
        with self._lock:
            self._closed = True


def run_query(
    batches: StreamBatches[Any],
    reader: SparkReader,
    request: LoadRequest,
    starts: Mapping[str, Mapping[str, int]],
    checkpoint: Path,
    settings: StreamRequest,
) -> None:
    """Run the query until it is stopped, has read everything with ``available-now``, or fails."""
    session, decoding = reader.session, reader.decoding_options()
    if is_connect(session):
        handler = batches.handler(checkpoint)
        run_batches(session, decoding, handler, request, starts, checkpoint, settings, lambda: batches.is_outdated)
        return
    continues = str(settings.trigger != AVAILABLE_NOW).lower()
    options = {"limitFirstBatch": continues}  # before Spark 4.2 a source does not know its trigger
    options |= {name: value for name, value in request.options.items() if name != "minPartitions"} | decoding
    with reader.job_session.settings():
        reading = session.readStream.format("oncelog").options(**options)
        frame = reading.option("startingOffsets", json.dumps(starts)).load()
    writing = frame.writeStream.foreachBatch(batches.handler(checkpoint)).option("checkpointLocation", str(checkpoint))
    try:
        query = _set_trigger(writing, settings.trigger).start()
    except Exception as error:
        raise one_line_error(error) from error
    try:
        while query.isActive and not settings.stop.is_set() and not batches.is_outdated:
            # A query has no event to wait for together with the stop.
            settings.stop.wait(_POLL_SECONDS)
        batches.close()
        _raise_failure(query, batches)
    finally:
        batches.close()
        query.stop()


def _set_trigger(writing: DataStreamWriter, trigger: str) -> DataStreamWriter:
    """Raises OptionError for text that Spark does not read as an interval."""
    from pyspark.errors import PySparkException

    if trigger == AVAILABLE_NOW:
        return writing.trigger(availableNow=True)
    try:
        return writing.trigger(processingTime=trigger)
    except (PySparkException, ValueError) as error:
        raise wrong_interval(trigger) from error


def _raise_failure(query: StreamingQuery, batches: StreamBatches[Any]) -> None:
    if batches.failure is not None:
        raise batches.failure
    error = None if query.isActive else query.exception()
    if error is not None:
        raise one_line_error(error)


def checked_topic_ids(end: Position, recorded_ids: Mapping[str, str]) -> dict[str, str]:
    """The ids of a batch's topics. Raises TableError if a topic differs from the recorded one."""
    ids = {name: uuid_text(base64.urlsafe_b64decode(encoded + "==")) for name, encoded in end.topic_ids.items()}
    for topic in sorted({partition.topic for partition in end.offsets}):
        if recorded_ids.get(topic) and ids.get(topic, recorded_ids[topic]) != recorded_ids[topic]:
            raise TableError(f"topic {topic!r} was recreated: load it into another table")
    return ids


def batch_end(checkpoint: Path, number: int) -> Position:
    """The position at which a batch ends, from Spark's log, written before the batch runs."""
    lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    offsets: dict[str, Any] = json.loads(lines[2])  # version, metadata of the batch, then a line for each source
    return Position.from_json(offsets)
