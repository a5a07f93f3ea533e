"""Topics → a table directory, exactly once.

A load lists each topic's log end offsets, plans from the table's own files the ranges that are missing (``load_plan``),
and reads them in steps: one Spark job per step through the batch source, a task per range, written by Spark's Parquet
writer into a hidden staging directory; then the driver checks each file's footer and publishes it by one rename, which
commits its rows and its offsets together (``table``, ADR 0001). Killed anywhere, the next run finds the table at a
whole number of files and goes on from their names. The batch source, not the stream: the table is the checkpoint.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_plan import (
    DEFAULT_ROWS_PER_STEP,
    PartitionPlan,
    PartitionState,
    plan_partition,
    steps_of,
)
from oncelog.spark.jobs.load_report import Event as Event
from oncelog.spark.jobs.load_report import LoadReport as LoadReport
from oncelog.spark.jobs.load_report import LoadRequest as LoadRequest
from oncelog.spark.jobs.load_report import report_of
from oncelog.spark.jobs.publication import Publication, ShapedWriter, Writer
from oncelog.spark.jobs.quarantine_topic import quarantine_sender
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.table.directory import (
    QuarantineSender,
    RowsFile,
    Table,
    TableError,
    refuse_no_directory,
    refuse_object_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BEFORE: Final = PLAIN.settings()
"""Settings of tables that were written before settings were recorded."""


class Source(Protocol):
    """The log that a load reads: a cluster's, or one in memory."""

    def states(self, table: Table) -> list[PartitionState]:
        """Files, log start, log end and topic id of every partition, as they are now."""

    def topic_ids(self) -> dict[str, str]:
        """Topic → id, "" where the cluster has none."""


def load(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
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
    """Load everything new of ``topics`` into the Parquet table at ``to``, each record exactly once.

    ``from_ms``: load rows from that time (milliseconds since the epoch) on anew, in place of those already there.
    ``options``: the source's, e.g. ``{"includeHeaders": "true", "failOnDataLoss": "false"}``; aborted transactions are
    left out unless ``kafka.isolation.level`` says otherwise. ``shape``: values decoded, kept under their day; rows that
    cannot be go to ``DIR/_quarantine``, or to ``quarantine_topic``. ``backfill``: only what is before a partition's
    first row, beside a stream that appends. ``compact_below``: afterwards, files smaller than that many bytes become
    larger ones. Without ``spark`` a local session is started and stopped.
    Raises SparkSourceError (DataLoss, OptionError, TableError) and ClientError, each one line.
    """
    refuse_no_directory(to)
    request = request_for(
        topics, bootstrap_servers, to, from_ms, rows_per_step, options, shape, quarantine_topic, backfill=backfill
    )
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()  # a wrong address or topic fails before a directory is made
    send_quarantined = quarantine_sender(parsed, request.to)
    with Table.open(request.to, send_quarantined, "fill" if backfill else "append") as table, ExitStack() as stack:

        def start_writer() -> Writer:
            from oncelog.spark.jobs.spark_writer import writer_for
            from oncelog.spark.session.local_session import local_session

            log = request.to / "_oncelog" / "spark.log"
            return writer_for(spark or stack.enter_context(local_session(log=log)), request, table)

        report = run_load(table, source, start_writer, request, parsed, on_event, send_quarantined)
        if compact_below is not None and not backfill:
            from oncelog.spark.table.compact import compact_open

            report.compacted_files = compact_open(table, compact_below).files_before
        return report


def request_for(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
    from_ms: int | None,
    rows_per_step: int,
    options: Mapping[str, str] | None,
    shape: Shape,
    quarantine_topic: str | None,
    *,
    backfill: bool = False,
) -> LoadRequest:
    """The arguments of a load or a stream together. Raises OptionError."""
    refuse_object_store(to)
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise OptionError("no topic to load: name at least one")
    given = {
        "kafka.isolation.level": "read_committed",
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(names),
    }
    return LoadRequest(names, Path(to), given, from_ms, rows_per_step, shape, quarantine_topic, backfill)


def run_load(
    table: Table,
    source: Source,
    start_writer: Callable[[], Writer],
    request: LoadRequest,
    options: SourceOptions,
    on_event: Callable[[Event], None],
    send_quarantined: QuarantineSender | None = None,
) -> LoadReport:
    """Run a load on any log and writer; ``start_writer`` is called only if there is something to write."""
    started = time.monotonic()
    table.forget_unused_description()
    check_same_table(table, source.topic_ids(), options, request)
    table.partitioned = request.shape.partition_by is not None
    states = source.states(table)
    plans = _plans(states, options, request)
    run = Publication(
        table,
        options,
        report_of(table.path, states, plans),
        offsets_total=sum(plan.size for plan in plans),
        on_event=on_event,
        quarantine_topic=request.quarantine_topic,
        send_quarantined=send_quarantined,
    )
    run.report_progress("planned")
    writer = None
    if any(plan.replaced or plan.filled or plan.appended for plan in plans):
        writer = start_writer()
        for pieces in steps_of(plans, request.rows_per_step, writer.parallelism):
            run.run_step(pieces, writer)
    if states and not table.files():
        writer = writer or (None if request.shape.is_plain else start_writer())
        run.publish_empty(RowsFile.of(states[0].partition, states[0].earliest, states[0].earliest), writer)
    if isinstance(writer, ShapedWriter):
        run.report.new_columns = writer.new_columns
    if run.report.quarantined:
        run.report.quarantine = request.quarantine_topic or str(table.quarantine)
    run.report.finish(time.monotonic() - started)
    return run.report


def _plans(states: Sequence[PartitionState], options: SourceOptions, request: LoadRequest) -> list[PartitionPlan]:
    if not request.backfill:
        return [plan_partition(state, fail_on_data_loss=options.fail_on_data_loss) for state in states]
    # A stream may append meanwhile: new partitions and offsets are left to it, and its files as they are.
    begun = [replace(state, from_offset=state.from_offset or state.earliest) for state in states if state.files]
    plans = {one.partition: plan_partition(one, fail_on_data_loss=False) for one in begun}
    nothing = [PartitionPlan(state.partition, (), (), ()) for state in states]
    return [
        replace(plans[one.partition], replaced=(), appended=()) if one.partition in plans else one for one in nothing
    ]


class DescribedTable(Protocol):
    """A table that records what is to stay the same for its life."""

    @property
    def path(self) -> Path | str:
        """The table's place, for people."""

    def describe(self) -> dict[str, Any]:
        """The description; empty for a new table."""

    def describe_as(self, description: Mapping[str, Any]) -> None:
        """Replace the description as a whole, durably."""


def _described(setting: str, value: Any) -> str:
    """A setting of a table as people say it."""
    match setting:
        case "includeHeaders":
            return "with headers" if value else "without headers"
        case "read_committed":
            return "at read_committed" if value else "at read_uncommitted"
        case "valueFormat":
            return f"with values in {value}"
        case "partitionBy":
            return f"by {value}" if value else "without directories of days or hours"
        case _:
            return f"with event times of {value}"


def check_same_table(
    table: DescribedTable, topic_ids: Mapping[str, str], options: SourceOptions, request: LoadRequest
) -> None:
    """Refuse to continue a table with other columns, or with a topic that was deleted and created again."""
    described = table.describe()
    if request.backfill and not described:
        raise TableError(f"a backfill needs a table, and there is none at {table.path}: load or stream into it first")
    settings = {
        "includeHeaders": options.include_headers,
        "read_committed": options.read_committed,
        **request.shape.settings(),
    }
    for name, value in settings.items():
        was = described.get(name, _BEFORE.get(name, value) if described else value)
        if was != value:
            raise TableError(
                f"the table at {table.path} was loaded {_described(name, was)}, not {_described(name, value)}: "
                "load as before, or into another directory"
            )
    known: dict[str, str] = described.get("topics", {})
    for topic, topic_id in topic_ids.items():
        if known.get(topic, topic_id) != topic_id:
            raise TableError(
                f"topic {topic!r} was deleted and created anew since it was loaded into {table.path}: "
                "its offsets began again. Load it into another directory."
            )
    merged = {**known, **topic_ids}
    if merged != known or not described:
        if request.backfill:
            raise TableError(
                f"a backfill adds no topics, and the table at {table.path} does not have all of these: load them first"
            )
        table.describe_as({"id": uuid.uuid4().hex, **described, **settings, "topics": merged})
