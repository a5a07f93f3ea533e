"""The pipeline of ``stream``, whatever table it writes into: micro-batches of which each is committed by the table.

The rule is ADR 0001's: the table is the only checkpoint. Each start begins a new query where the table ends, with a
checkpoint of Spark's in a temporary directory. A batch's end is taken from Spark's log, its beginning from the table,
and the footers of its files have to agree. So there is no second place that could disagree, no batch is run again
under an old number, and loads, backfills and streams continue each other.
"""

from __future__ import annotations

import base64
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


def run_stream(
    table: LoadTable[Writer],
    source: Source,
    start_reader: Callable[[], SparkReader],
    request: LoadRequest,
    options: SourceOptions,
    checkpoint: Path,
    how: StreamRequest,
) -> LoadReport:
    """Stream into any table until ``how.stop`` is set, all is there with ``available-now``, or a batch fails."""
    started = time.monotonic()
    check_same_table(table, source.topic_ids(), options, request)
    reader = start_reader()
    writer = table.writer(reader)
    table.prepare(writer)
    progress = Progress(LoadReport(table.name), on_event=how.on_event)
    report = progress.report
    table.begin(progress)
    batches = StreamBatches(table, writer, progress, how)
    starts = batches.begin(source.states(table), fail_on_data_loss=options.fail_on_data_loss)
    run_query(batches, reader, request, starts, checkpoint, how)
    report.quarantine = table.quarantine if report.quarantined else None
    report.finish(time.monotonic() - started)
    return report


class StreamBatches(Generic[Writer]):
    """Micro-batches into a table. Spark calls ``handler``'s function from a thread of its own, one batch at a time."""

    def __init__(self, table: LoadTable[Writer], writer: Writer, progress: Progress, how: StreamRequest) -> None:
        self.failure: Exception | None = None
        """The error of a batch, after which none is carried out."""
        self._table, self._writer, self._progress, self._how = table, writer, progress, how
        self._lock, self._closed = threading.Lock(), False
        self._starts: dict[TopicPartition, int] = {}
        """The offset at which each partition begins, where the table has nothing of it."""

    def begin(self, states: Sequence[PartitionState], *, fail_on_data_loss: bool) -> dict[str, dict[str, int]]:
        """The ``startingOffsets`` by which the query continues the table. Raises DataLoss."""
        starts: dict[str, dict[str, int]] = {}
        late: dict[TopicPartition, int] = {}
        for state in states:
            position = state.position
            if position is None:
                position = state.latest if self._how.starting == "latest" else state.earliest
                if self._how.starting == "latest":
                    late[state.partition] = position
            elif position < state.earliest and fail_on_data_loss:
                raise DataLoss(state.partition, position, state.earliest, "retention removed what was not loaded yet")
            position = max(position, state.earliest)
            self._starts[state.partition] = position
            starts.setdefault(state.partition.topic, {})[str(state.partition.partition)] = position
        self._table.record_begins(late, self._writer)
        return starts

    def handler(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """The function that Spark calls with each batch."""

        def batch(frame: DataFrame, number: int) -> None:
            with self._lock:
                if self._closed:
                    return
                try:
                    self._commit(frame, batch_end(checkpoint, number))
                    every = self._how.compact_every
                    if every is not None and number % every == every - 1:
                        self._compact()
                except Exception as error:
                    self.failure = error
                    raise
            self._how.on_batch(self._progress.report)

        return batch

    def _commit(self, frame: DataFrame, end: Position) -> None:
        """Commit the batch of rows that ends at ``end``. Raises TableError."""
        topic_ids = checked_topic_ids(end, self._table.describe().get("topics", {}))
        files = self._table.files(list(end.offsets))
        pieces = []
        for partition, until in sorted(end.offsets.items()):
            own = files.get((topic_label(partition.topic), partition.partition))
            start = own[-1].end if own else self._starts.get(partition, 0)
            if until > start:
                wanted = OffsetRange(*partition, start, until, topic_ids.get(partition.topic, ""))
                pieces.append(Piece(wanted, RowsFile.of(partition, start, until)))
                self._progress.add_partition(partition, start)
        if pieces:
            self._table.run_step("append", pieces, self._writer, frame)

    def _compact(self) -> None:
        with suppress(TableBusy):  # a backfill or an export is under way; later, then
            self._progress.report.compacted_files += self._table.compact(self._how.compact_below)

    def close(self) -> None:
        """Let no further batch begin, and wait for one under way."""
        with self._lock:
            self._closed = True


def run_query(
    batches: StreamBatches[Any],
    reader: SparkReader,
    request: LoadRequest,
    starts: Mapping[str, Mapping[str, int]],
    checkpoint: Path,
    how: StreamRequest,
) -> None:
    """Run the query until ``how.stop`` is set, all is there with ``available-now``, or it fails."""
    session, decoding = reader.session, reader.decoding_options()
    if is_connect(session):
        run_batches(session, decoding, batches.handler(checkpoint), request, starts, checkpoint, how)
        return
    goes_on = str(how.trigger != AVAILABLE_NOW).lower()
    options = {"limitFirstBatch": goes_on}  # before Spark 4.2 a source is not told its trigger
    options |= {name: value for name, value in request.options.items() if name != "minPartitions"} | decoding
    with reader.job_session.settings():
        reading = session.readStream.format("oncelog").options(**options)
        frame = reading.option("startingOffsets", json.dumps(starts)).load()
    writing = frame.writeStream.foreachBatch(batches.handler(checkpoint)).option("checkpointLocation", str(checkpoint))
    try:
        query = _triggered(writing, how.trigger).start()
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


def _triggered(writing: DataStreamWriter, trigger: str) -> DataStreamWriter:
    """With the trigger of a request. Raises OptionError for what Spark does not read as an interval."""
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


def checked_topic_ids(end: Position, known: Mapping[str, str]) -> dict[str, str]:
    """The ids of a batch's topics. Raises TableError when a topic is not the one that the table has, by ``known``."""
    ids = {name: uuid_text(base64.urlsafe_b64decode(one + "==")) for name, one in end.topic_ids.items()}
    for topic in sorted({partition.topic for partition in end.offsets}):
        if known.get(topic) and ids.get(topic, known[topic]) != known[topic]:
            raise TableError(f"topic {topic!r} was deleted and created anew: load it into another table")
    return ids


def batch_end(checkpoint: Path, number: int) -> Position:
    """The position at which a batch ends, from the log that Spark writes before it begins the batch."""
    lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    said: dict[str, Any] = json.loads(lines[2])  # version, metadata of the batch, then a line for each source
    return Position.from_json(said)
