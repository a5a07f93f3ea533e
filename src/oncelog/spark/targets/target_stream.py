"""``oncelog stream`` into a Delta or Iceberg table: a structured streaming query whose batches are commits.

The rule is that of ``stream_job``: the table's spans are the only checkpoint. Each start begins a new query at them; a
batch's end is taken from Spark's log, its beginning from the spans, and the footers of its files have to agree. So a
load, a backfill and a stream continue each other, and Spark never runs a batch again that was committed.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.spark.errors import DataLoss
from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_job import request_for
from oncelog.spark.jobs.load_plan import PartitionState, Piece
from oncelog.spark.jobs.load_report import LoadReport
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.stream_job import StreamRequest, batch_end, run_query
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.plan.offset_ranges import OffsetRange
from oncelog.spark.source.plan.stream_position import Position
from oncelog.spark.table.directory import RowsFile, TableBusy, TableError
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.opening import TargetDescription, held, open_quarantine, open_target
from oncelog.spark.targets.step_writer import FrameWriter
from oncelog.spark.targets.table_target import Target
from oncelog.spark.targets.target_load import SpanFiles, spark_writer
from oncelog.spark.targets.target_step import TargetRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelog.spark.targets.step_writer import SparkStepWriter


def stream_target(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    address: TableAddress,
    how: StreamRequest,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    quarantine_topic: str | None = None,
) -> LoadReport:
    """Load ``topics`` into the table at ``address`` until ``how.stop``; arguments and errors are ``stream``'s."""
    request = request_for(topics, bootstrap_servers, str(address), None, 1, options, shape, quarantine_topic)
    target = open_target(address)
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()
    started = time.monotonic()
    with held(address), ExitStack() as stack:
        description = TargetDescription(target)
        description.check(source.topic_ids(), parsed, request)
        writer = spark_writer(spark, request, parsed, address, target.columns(), stack)
        description.prepare(writer.schema, writer.partition_by)
        spans = target.spans(source.partitions())
        quarantine = open_quarantine(address, target, description, parsed, quarantine_topic)
        report = LoadReport(str(address))
        run = TargetRun(target, quarantine, spans, report, on_event=how.on_event)
        batches = TargetBatches(target, description, run, writer, how)
        starts = batches.begin(source.states(SpanFiles(spans)), fail_on_data_loss=parsed.fail_on_data_loss)
        checkpoint = Path(tempfile.mkdtemp(prefix="oncelog-stream-"))
        stack.callback(shutil.rmtree, checkpoint, ignore_errors=True)
        run_query(batches, request, starts, checkpoint, how)
        report.quarantine = quarantine.name if report.quarantined else None
        report.finish(time.monotonic() - started)
        return report


class TargetBatches:
    """Micro-batches into a target. Spark calls it from a thread of its own, one batch at a time."""

    def __init__(
        self,
        target: Target,
        description: TargetDescription,
        run: TargetRun,
        writer: SparkStepWriter,
        how: StreamRequest,
    ) -> None:
        self._target, self._description, self._run = target, description, run
        self._writer, self._how = writer, how
        self._lock, self._closed = threading.Lock(), False
        self._starts: dict[TopicPartition, int] = {}
        self.failure: Exception | None = None

    @property
    def session(self) -> SparkSession:
        """The session that reads and writes."""
        return self._writer.session

    def begin(self, states: Sequence[PartitionState], *, fail_on_data_loss: bool) -> dict[str, dict[str, int]]:
        """The ``startingOffsets`` by which the query continues the table; where late partitions begin is committed."""
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
        self._run.record_begins(late)
        return starts

    def handler(self, checkpoint: Path) -> Callable[[DataFrame, int], None]:
        """The function that Spark calls with each batch."""

        def batch(frame: DataFrame, number: int) -> None:
            with self._lock:
                if self._closed:
                    return
                try:
                    self._commit(frame, batch_end(checkpoint, number))
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

    def _commit(self, frame: DataFrame, end: Position) -> None:
        known: dict[str, str] = self._description.now.get("topics", {})
        ids = {name: uuid_text(base64.urlsafe_b64decode(one + "==")) for name, one in end.topic_ids.items()}
        pieces = []
        for partition, until in sorted(end.offsets.items()):
            topic = partition.topic
            if known.get(topic) and ids.get(topic, known[topic]) != known[topic]:
                raise TableError(f"topic {topic!r} was deleted and created anew: load it into another table")
            span = self._run.spans.get(partition)
            start = max(self._starts.get(partition, 0), 0 if span is None else span.end)
            if until > start:
                wanted = OffsetRange(*partition, start, until, ids.get(topic, ""))
                pieces.append(Piece(wanted, RowsFile.of(partition, start, until)))
                self._run.add_partition(partition, start)
        if pieces:
            self._run.run_step(pieces, "append", FrameWriter(self._writer, frame))

    def _compact(self, number: int) -> None:
        every = self._how.compact_every
        if every is not None and number % every == every - 1:
            with suppress(TableBusy):  # a backfill replaced files meanwhile; later, then
                before, after = self._target.compact(self._how.compact_below)
                self._run.report.compacted_files += before if after < before else 0
