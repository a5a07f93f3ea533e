"""``oncelog load``: loads topics into a table, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oncelog.base.text import counted
from oncelog.cli.support.options import AdminOptions, time_option
from oncelog.cli.support.output import print_json, print_table, progress
from oncelog.cli.support.terminal import print_line
from oncelog.cli.table.options import (
    Backfill,
    Compact,
    FromLogs,
    FromTime,
    PlaceOptions,
    QuarantineTopic,
    ReadingOptions,
    Remote,
    RowsPerStep,
    ShapeOptions,
    To,
    TopicsOrLogs,
    spark_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.spark.jobs.load_report import Event, LoadReport


def load(
    to: To,
    topics: TopicsOrLogs = None,
    from_logs: FromLogs = None,
    from_time: FromTime = None,
    rows_per_step: RowsPerStep = 2_000_000,
    shape: ShapeOptions = ShapeOptions(),
    quarantine_topic: QuarantineTopic = None,
    backfill: Backfill = False,
    compact: Compact = False,
    place: PlaceOptions = PlaceOptions(),
    remote: Remote = None,
    reading: ReadingOptions = ReadingOptions(),
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Load new records of topics into a table (Parquet files, Delta, Iceberg), each record exactly once.

    Run it again whenever there is more; after a crash, too: it goes on where the table ends. Spark, pyarrow, DuckDB
    and others read the table as it is, at any time. Needs Java 17 or later for Spark, or a --remote server.

    \b
    Examples:
      oncelog load flights --to ./flights-table
      oncelog load orders --to ./orders --value-format json --schema 'id BIGINT, at TIMESTAMP' --partition-by day
      oncelog load orders payments --to delta:s3://lake/orders --from 2013-06-01
      oncelog load orders --to iceberg:shop.orders --catalog prod
      oncelog load orders --to /shared/orders --remote sc://spark-server:15002
      oncelog load --from-logs /var/kafka-0.7/logs --to ./old-events
    """
    from oncelog.spark.table.compact import DEFAULT_TARGET_BYTES
    from oncelog.spark.targets.entry import load as run

    if from_logs is not None:
        given: dict[str, object] = {"--from": from_time, "--quarantine-topic": quarantine_topic, "--backfill": backfill}
        given |= {"--headers": reading.headers, "--compact": compact, "--allow-data-loss": reading.allow_data_loss}
        given |= {"--remote": remote, "--catalog": place.catalog, "--storage-option": place.storage_option}
        given |= shape.registry_options()
        _load_old_logs(from_logs, to, topics, shape, cluster.as_json, [name for name, value in given.items() if value])
        return
    topics = _named(topics)
    target_shape = shape.shape(topics, cluster.registry_settings())
    servers, settings = cluster.connection_settings()
    with spark_at(remote) as spark, load_progress(quiet=cluster.as_json) as on_event:
        report = run(
            topics,
            servers,
            to,
            spark=spark,
            from_ms=time_option(from_time, "--from"),
            rows_per_step=rows_per_step,
            options=reading.source_options(settings),
            shape=target_shape,
            quarantine_topic=quarantine_topic,
            backfill=backfill,
            compact_below=DEFAULT_TARGET_BYTES if compact else None,
            on_event=on_event,
            **place.as_arguments(),
        )
    _print(report, cluster.as_json)


def _named(topics: list[str] | None) -> list[str]:
    if not topics:
        raise typer.BadParameter("name the topics to load, or a directory with --from-logs", param_hint="TOPIC")
    return topics


def _load_old_logs(
    directory: Path, to: str, logs: list[str] | None, shape: ShapeOptions, as_json: bool, refused: list[str]
) -> None:
    """Loads Kafka 0.7 logs; ``refused`` are given options that apply to topics only."""
    from oncelog.legacy.tables.load import load_old_logs

    if refused:
        raise typer.BadParameter(f"it cannot be combined with {', '.join(refused)}", param_hint="--from-logs")
    if to.partition(":")[0] in ("delta", "iceberg"):
        raise typer.BadParameter("old logs are loaded into a directory of Parquet files only", param_hint="--to")
    with load_progress(quiet=as_json) as on_event:
        report = load_old_logs(directory, to, logs or [], shape=shape.shape(), on_event=on_event)
    _print(report, as_json)


def _print(report: LoadReport, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        print_report(report)


@contextmanager
def load_progress(*, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """A progress bar on a terminal, a line per step elsewhere."""
    if quiet:
        yield lambda event: None
        return
    on_terminal = sys.stderr.isatty()
    with progress("records") as tell:

        def on_event(event: Event) -> None:
            if on_terminal:
                tell(event.offsets_done, event.offsets_total)
            elif event.kind == "planned" and event.offsets_total:
                print_line(f"{counted(event.offsets_total, 'offset')} to load; starting Spark", err=True, flush=True)
            elif event.kind == "committed":
                done = f"{event.offsets_done:,} of {event.offsets_total:,} offsets"
                print_line(f"step {event.step}: {done}, {counted(event.rows, 'row')}", err=True, flush=True)

        yield on_event


def print_report(report: LoadReport) -> None:
    rows = [
        (
            partition.topic,
            partition.partition,
            partition.start,
            partition.end,
            partition.rows,
            partition.quarantined,
            partition.replaced_files,
        )
        for partition in report.partitions
        if partition.rows or partition.replaced_files or partition.quarantined or partition.end > partition.start
    ]
    if report.compacted_files:
        print_line(f"{counted(report.compacted_files, 'small file')} merged into larger ones")
    if not rows:
        print_line(f"nothing new; {report.directory} has everything up to now")
        return
    print_table(("topic", "partition", "from offset", "to offset", "rows", "bad rows", "files replaced"), rows)
    if report.new_columns:
        print_line(f"new columns, null in what was there: {', '.join(report.new_columns)}")
    if report.quarantined:
        print_line(
            f"{counted(report.quarantined, 'bad row')}, with topic, partition, offset and reason: {report.quarantine}"
        )
    speed = f", {report.rows_per_second:,.0f} rows/s, {report.megabytes_per_second:,.1f} MB/s written"
    done = f"{counted(report.rows, 'row')} in {counted(report.steps, 'step')}, {report.seconds:.1f} s"
    print_line(f"{done}{speed if report.rows else ''}: {report.directory}")
