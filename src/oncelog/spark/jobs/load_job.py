"""The pipeline of ``load`` for any kind of table: each record exactly once (ADR 0001, ADR 0015).

A load plans the ranges that the table's own files lack (``load_plan``), and reads them in steps: one Spark job per step
through the batch source, one task per range. The table makes a step's rows and offsets visible together
(``load_table``), so it is the only checkpoint.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oncelog.spark.jobs.load_plan import plan_partition, steps_of
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, Progress, report_of
from oncelog.spark.jobs.load_table import LoadTable, Source, Writer
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.table.directory import TableError

# Settings of tables written before settings were recorded.
_UNRECORDED_SETTINGS: Final = PLAIN.settings()


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
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise OptionError("no topic to load: give at least one topic")
    source_options = {
        "kafka.isolation.level": "read_committed",
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(names),
    }
    return LoadRequest(names, to, source_options, from_ms, rows_per_step, shape, quarantine_topic, backfill)


def run_load(
    table: LoadTable[Writer],
    source: Source,
    start_writer: Callable[[], Writer],
    request: LoadRequest,
    options: SourceOptions,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Load any log into any table. ``start_writer`` is called only if there is something to write."""
    started = time.monotonic()
    check_same_table(table, source.topic_ids(), options, request)
    # The table is the checkpoint, so a load needs the batch source and no stream.
    states = source.states(table)
    whole_files = table.whole_files
    plans = [
        plan_partition(
            state,
            fail_on_data_loss=options.fail_on_data_loss,
            backfill=request.backfill,
            whole_files=whole_files,
        )
        for state in states
    ]
    report = report_of(table.name, states, plans, whole_files=whole_files)
    progress = Progress(report, sum(plan.size for plan in plans), on_event)
    table.begin(progress)
    progress.emit("planned")
    writer = None
    if table.needs_columns() or not all(plan.is_empty for plan in plans):
        writer = start_writer()
        report.new_columns = table.new_columns(writer)
        if request.backfill and report.new_columns:
            raise TableError(
                f"a backfill cannot add columns, and the table has no {', '.join(report.new_columns)}: stream or load "
                "with this schema first"
            )
        # Before any rows: a table must not hold rows without their columns.
        table.prepare(writer)
        for kind, pieces in steps_of(plans, request.rows_per_step, writer.parallelism, whole_files=whole_files):
            table.run_step(kind, pieces, writer)
    if states:
        table.publish_empty(states[0].partition, states[0].earliest, writer)
    if report.quarantined:
        report.quarantine = table.quarantine
    report.finish(time.monotonic() - started)
    return report


def _setting_text(setting: str, value: Any) -> str:
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
    table: LoadTable[Any], topic_ids: Mapping[str, str], options: SourceOptions, request: LoadRequest
) -> None:
    """Raise TableError if a load would change the table's columns or settings, or if a topic was recreated."""
    table.drop_unused_description()
    described = table.describe()
    if request.backfill and not described:
        raise TableError(f"a backfill needs a table, and {table.name} has none: load or stream into it first")
    settings = {
        "includeHeaders": options.include_headers,
        "read_committed": options.read_committed,
        **request.shape.settings(),
    }
    for name, value in settings.items():
        recorded = described.get(name, _UNRECORDED_SETTINGS.get(name, value) if described else value)
        if recorded != value:
            raise TableError(
                f"the table at {table.name} was loaded {_setting_text(name, recorded)}, "
                f"not {_setting_text(name, value)}: load as before, or into another directory"
            )
    recorded_ids: dict[str, str] = described.get("topics", {})
    for topic, topic_id in topic_ids.items():
        if recorded_ids.get(topic, topic_id) != topic_id:
            raise TableError(
                f"topic {topic!r} was recreated since it was loaded into {table.name}, and its offsets restarted: load "
                "it into another directory"
            )
    all_ids = {**recorded_ids, **topic_ids}
    if all_ids != recorded_ids or not described:
        if request.backfill:
            raise TableError(
                f"a backfill cannot add topics, and the table at {table.name} lacks some of these: load them first"
            )
        table.set_description({"id": uuid.uuid4().hex, **described, **settings, "topics": all_ids})
