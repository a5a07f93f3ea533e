"""``oncelog stream``: topics into a table, continuously and exactly once. Parsing, signals and printing only."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.base.text import counted
from oncelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig, Properties, connection_settings
from oncelog.cli.output import print_json
from oncelog.cli.table.load import print_report
from oncelog.cli.table.options import (
    AllowDataLoss,
    Catalog,
    EventTime,
    Headers,
    PartitionBy,
    QuarantineTopic,
    ReadUncommitted,
    Remote,
    SchemaText,
    SkipBytes,
    StorageOptions,
    To,
    ValueFormat,
    place_of,
    shape_of,
    source_options,
    spark_at,
)

if TYPE_CHECKING:
    from oncelog.spark.jobs.load_job import LoadReport


def stream(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to load.")],
    to: To,
    trigger: Annotated[
        str, typer.Option(metavar="INTERVAL", help="How often: '10 seconds', '1 minute', or 'available-now' and end.")
    ] = "10 seconds",
    starting: Annotated[
        str,
        typer.Option(metavar="earliest|latest", help="Where to begin with partitions that the table has no rows of."),
    ] = "earliest",
    compact_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="After every N batches merge small files into larger ones.")
    ] = None,
    partition_by: PartitionBy = None,
    event_time: EventTime = "timestamp",
    value_format: ValueFormat = "binary",
    schema: SchemaText = None,
    skip_bytes: SkipBytes = 0,
    quarantine_topic: QuarantineTopic = None,
    catalog: Catalog = None,
    storage_option: StorageOptions = None,
    remote: Remote = None,
    headers: Headers = False,
    read_uncommitted: ReadUncommitted = False,
    allow_data_loss: AllowDataLoss = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: Properties = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Load topics into a table as records arrive, each exactly once, until Ctrl-C or SIGTERM.

    It ends after the batch under way and prints a report; started again, or killed and started again, it goes on
    where the table ends. 'oncelog load --backfill' may fill what is before, meanwhile.

    \b
    Examples:
      oncelog stream flights --to ./flights-table --trigger '30 seconds' --compact-every 20
      oncelog stream flights --to delta:s3://lake/flights
      oncelog stream orders --to iceberg:shop.orders --catalog prod --remote sc://spark-server:15002
      oncelog stream orders --to ./orders --value-format json --schema 'id BIGINT' --trigger available-now
    """
    from oncelog.spark.jobs.stream_query import StreamRequest
    from oncelog.spark.targets.entry import stream as run

    servers, settings = connection_settings(bootstrap, properties, command_config)
    options = source_options(
        settings, headers=headers, read_uncommitted=read_uncommitted, allow_data_loss=allow_data_loss
    )
    shape = shape_of(value_format, schema, skip_bytes, partition_by, event_time)
    how = StreamRequest(trigger, starting, compact_every)
    if not as_json:
        how.on_batch = _say
    with _stopped_by_signals(how.stop), spark_at(remote) as spark:
        report = run(
            topics,
            servers,
            to,
            how,
            spark=spark,
            options=options,
            shape=shape,
            quarantine_topic=quarantine_topic,
            **place_of(catalog, storage_option),
        )
    if as_json:
        print_json(report)
    else:
        print_report(report)


def _say(report: LoadReport) -> None:
    print(
        f"batch {report.steps}: {counted(report.rows, 'row')} so far, {report.quarantined:,} bad",
        file=sys.stderr,
        flush=True,
    )


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Handle the first Ctrl-C or SIGTERM as a request to stop; the next one has its default effect."""
    before: dict[int, Any] = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: object) -> None:
        stop.set()
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()
