"""``oncelog stream`` into a Delta or Iceberg table: a structured streaming query whose batches are commits.

The rule is that of ``stream_job``: the table's spans are the only checkpoint. Each start begins a new query at them; a
batch's end is taken from Spark's log, its beginning from the spans, and the footers of its files have to agree. So a
load, a backfill and a stream continue each other, and Spark never runs a batch again that was committed.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_job import request_for
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import LoadReport
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.stream_query import StreamBatches, StreamRequest, checked_topic_ids, run_query
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.stream_position import Position
from oncelog.spark.table.directory import RowsFile, TableBusy
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


class TargetBatches(StreamBatches):
    """Micro-batches into a target."""

    def __init__(
        self,
        target: Target,
        description: TargetDescription,
        run: TargetRun,
        writer: SparkStepWriter,
        how: StreamRequest,
    ) -> None:
        super().__init__(writer.spark, how, run.report)
        self._target, self._description, self._run, self._writer = target, description, run, writer

    def _record_begins(self, late: Mapping[TopicPartition, int]) -> None:
        self._run.record_begins(late)

    def _commit(self, frame: DataFrame, end: Position) -> None:
        topic_ids = checked_topic_ids(end, self._description.now.get("topics", {}))
        pieces = []
        for partition, until in sorted(end.offsets.items()):
            span = self._run.spans.get(partition)
            start = max(self._starts.get(partition, 0), 0 if span is None else span.end)
            if until > start:
                wanted = OffsetRange(*partition, start, until, topic_ids.get(partition.topic, ""))
                pieces.append(Piece(wanted, RowsFile.of(partition, start, until)))
                self._run.add_partition(partition, start)
        if pieces:
            self._run.run_step(pieces, "append", FrameWriter(self._writer, frame))

    def _compact(self) -> None:
        with suppress(TableBusy):  # a backfill replaced files meanwhile; later, then
            before, after = self._target.compact(self._how.compact_below)
            self._run.report.compacted_files += before if after < before else 0
