"""The pipeline of ``load``, whatever table it writes into: each record exactly once.

A load lists each topic's log end offsets, plans from the table's own files the ranges that are missing (``load_plan``),
and reads them in steps: one Spark job per step through the batch source, a task per range. The table makes a step's
rows and its offsets visible together (``load_table``). Killed anywhere, the next run goes on where the table ends. The
batch source, not the stream: the table is the checkpoint (ADR 0001, ADR 0015).
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

_BEFORE: Final = PLAIN.settings()
"""Settings of tables that were written before settings were recorded."""


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
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise OptionError("no topic to load: name at least one")
    given = {
        "kafka.isolation.level": "read_committed",
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(names),
    }
    return LoadRequest(names, to, given, from_ms, rows_per_step, shape, quarantine_topic, backfill)


def run_load(
    table: LoadTable[Writer],
    source: Source,
    start_writer: Callable[[], Writer],
    request: LoadRequest,
    options: SourceOptions,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Run a load of any log into any table; ``start_writer`` is called only if there is something to write."""
    started = time.monotonic()
    check_same_table(table, source.topic_ids(), options, request)
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
    progress.tell("planned")
    writer = None
    if table.lacks_columns() or not all(plan.is_empty for plan in plans):
        writer = start_writer()
        report.new_columns = table.new_columns(writer)
        if request.backfill and report.new_columns:
            raise TableError(
                f"a backfill adds no columns, and the table has no {', '.join(report.new_columns)}: stream or load "
                "with this schema first"
            )
        table.prepare(writer)
        for kind, pieces in steps_of(plans, request.rows_per_step, writer.parallelism, whole_files=whole_files):
            table.run_step(kind, pieces, writer)
    if states:
        table.publish_nothing(states[0].partition, states[0].earliest, writer)
    if report.quarantined:
        report.quarantine = table.quarantine
    report.finish(time.monotonic() - started)
    return report


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
    table: LoadTable[Any], topic_ids: Mapping[str, str], options: SourceOptions, request: LoadRequest
) -> None:
    """Refuse to continue a table with other columns, or with a topic that was deleted and created again."""
    table.forget_unused_description()
    described = table.describe()
    if request.backfill and not described:
        raise TableError(f"a backfill needs a table, and there is none at {table.name}: load or stream into it first")
    settings = {
        "includeHeaders": options.include_headers,
        "read_committed": options.read_committed,
        **request.shape.settings(),
    }
    for name, value in settings.items():
        was = described.get(name, _BEFORE.get(name, value) if described else value)
        if was != value:
            raise TableError(
                f"the table at {table.name} was loaded {_described(name, was)}, not {_described(name, value)}: "
                "load as before, or into another directory"
            )
    known: dict[str, str] = described.get("topics", {})
    for topic, topic_id in topic_ids.items():
        if known.get(topic, topic_id) != topic_id:
            raise TableError(
                f"topic {topic!r} was deleted and created anew since it was loaded into {table.name}: "
                "its offsets began again. Load it into another directory."
            )
    merged = {**known, **topic_ids}
    if merged != known or not described:
        if request.backfill:
            raise TableError(
                f"a backfill adds no topics, and the table at {table.name} does not have all of these: load them first"
            )
        table.describe_as({"id": uuid.uuid4().hex, **described, **settings, "topics": merged})
