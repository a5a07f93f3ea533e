"""Topics → a Delta or Iceberg table, exactly once: the counterpart of ``load_job`` for tables with own commits.

Each step is one Spark job and one commit, which adds the step's files and moves the spans of their partitions; killed
anywhere, the next run goes on from the spans. Several writers of one table are told apart by them, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.cluster_log import ClusterLog, TableFiles
from oncelog.spark.jobs.load_job import request_for
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP, PartitionState
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, PartitionReport
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.table.directory import RowsFile, TableError
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.opening import TargetDescription, held, open_quarantine, open_target
from oncelog.spark.targets.step_writer import StepWriter
from oncelog.spark.targets.table_target import Spans, Target
from oncelog.spark.targets.target_plan import SpanPlan, files_of, plan_spans, steps_of_spans
from oncelog.spark.targets.target_step import TargetRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.targets.step_writer import SparkStepWriter


class SpanSource(Protocol):
    """The log that a load reads: a cluster's, or one in memory."""

    def topic_ids(self) -> dict[str, str]:
        """Topic → id, "" where the cluster has none."""

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the topics."""

    def states(self, table: TableFiles) -> list[PartitionState]:
        """Every partition's files, log start and log end."""


@dataclass(frozen=True, slots=True)
class SpanFiles:
    """Spans, seen as the files that say where each partition goes on."""

    spans: Spans

    def files(self) -> dict[tuple[str, int], list[RowsFile]]:
        """A file for each span."""
        return files_of(self.spans)


def load_target(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    address: TableAddress,
    *,
    spark: SparkSession | None = None,
    from_ms: int | None = None,
    rows_per_step: int = DEFAULT_ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    quarantine_topic: str | None = None,
    backfill: bool = False,
    compact_below: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Load everything new of ``topics`` into the table at ``address``; arguments and errors are those of ``load``."""
    request = request_for(
        topics,
        bootstrap_servers,
        str(address),
        from_ms,
        rows_per_step,
        options,
        shape,
        quarantine_topic,
        backfill=backfill,
    )
    target = open_target(address)
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()  # a wrong address or topic fails before a directory is made
    with held(address, "fill" if backfill else "append"), ExitStack() as stack:

        def start_writer(columns: pa.Schema | None) -> StepWriter:
            return spark_writer(spark, request, parsed, address, columns, stack)

        report = run_target_load(address, target, source, request, parsed, start_writer, on_event)
        if compact_below is not None and not backfill:
            before, after = target.compact(compact_below)
            report.compacted_files = before if after < before else 0
        return report


def spark_writer(
    spark: SparkSession | None,
    request: LoadRequest,
    options: SourceOptions,
    address: TableAddress,
    columns: pa.Schema | None,
    stack: ExitStack,
) -> SparkStepWriter:
    """The writer of a request, on ``spark`` or on a session that ends with ``stack``."""
    from oncelog.spark.jobs.spark_writer import SparkWriter
    from oncelog.spark.session.local_session import local_session
    from oncelog.spark.session.sessions import check_shared
    from oncelog.spark.targets.step_writer import SparkStepWriter

    log = Path(address.place) / ".oncelog-spark.log" if address.is_directory else Path(os.devnull)
    session = spark or stack.enter_context(local_session(log=log))
    plain = SparkWriter(session, request.options)
    if address.is_directory:
        check_shared(plain.job_session, Path(address.place))
    return SparkStepWriter(plain, request.shape, columns, include_headers=options.include_headers)


def run_target_load(
    address: TableAddress,
    target: Target,
    source: SpanSource,
    request: LoadRequest,
    options: SourceOptions,
    start_writer: Callable[[pa.Schema | None], StepWriter],
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Run a load on any log, target and writer; ``start_writer`` is called only if there is something to write."""
    started = time.monotonic()
    description = TargetDescription(target)
    description.check(source.topic_ids(), options, request)
    spans = target.spans(source.partitions())
    states = source.states(SpanFiles(spans))
    plans = [plan_spans(one, backfill=request.backfill, fail_on_data_loss=options.fail_on_data_loss) for one in states]
    report = _report(str(address), states, plans)
    quarantine = open_quarantine(address, target, description, options, request.quarantine_topic)
    total = sum(plan.size for plan in plans)
    run = TargetRun(target, quarantine, spans, report, offsets_total=total, on_event=on_event)
    run.report_progress("planned")
    columns = target.columns()
    if total or columns is None:
        writer = start_writer(columns)
        if columns is not None:
            report.new_columns = [name for name in writer.schema.names if name not in columns.names]
        if request.backfill and report.new_columns:
            raise TableError(
                f"a backfill adds no columns, and the table has no {', '.join(report.new_columns)}: stream or load "
                "with this schema first"
            )
        description.prepare(writer.schema, writer.partition_by)
        for kind, pieces in steps_of_spans(plans, request.rows_per_step, writer.parallelism):
            run.run_step(pieces, kind, writer)
    if report.quarantined:
        report.quarantine = quarantine.name
    report.finish(time.monotonic() - started)
    return report


def _report(name: str, states: Sequence[PartitionState], plans: Sequence[SpanPlan]) -> LoadReport:
    report = LoadReport(name)
    for state, plan in zip(states, plans, strict=True):
        start = plan.appended[0].start if plan.appended else (state.position or state.earliest)
        end = plan.appended[-1].end if plan.appended else start
        report.partitions.append(PartitionReport(*state.partition, start, end))
    return report
