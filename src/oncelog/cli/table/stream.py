"""``oncelog stream``: loads topics into a table continuously, exactly once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.base.text import counted
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.table.load import print_report
from oncelog.cli.table.options import PlaceOptions, QuarantineTopic, ReadingOptions, Remote, ShapeOptions, To, spark_at
from oncelog.runtime.stop_signals import stop_signals

if TYPE_CHECKING:
    from oncelog.spark.jobs.load_report import LoadReport


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
    shape: ShapeOptions = ShapeOptions(),
    quarantine_topic: QuarantineTopic = None,
    place: PlaceOptions = PlaceOptions(),
    remote: Remote = None,
    reading: ReadingOptions = ReadingOptions(),
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Load topics into a table as records arrive, each exactly once, until Ctrl-C or SIGTERM.

    It ends after the batch under way and prints a report; started again, or killed and started again, it goes on
    where the table ends. 'oncelog load --backfill' may load earlier records meanwhile.

    \b
    Examples:
      oncelog stream flights --to ./flights-table --trigger '30 seconds' --compact-every 20
      oncelog stream flights --to delta:s3://lake/flights
      oncelog stream orders --to iceberg:shop.orders --catalog prod --remote sc://spark-server:15002
      oncelog stream orders --to ./orders --value-format json --schema 'id BIGINT' --trigger available-now
    """
    from oncelog.spark.jobs.stream_query import StreamRequest
    from oncelog.spark.targets.entry import stream as run

    servers, settings = cluster.connection_settings()
    options, target_shape = reading.source_options(settings), shape.shape(topics, cluster.registry_settings())
    how = StreamRequest(trigger, starting, compact_every)
    if not cluster.as_json:
        how.on_batch = _say
    with _stopped_by_signals(how.stop), spark_at(remote) as spark:
        report = run(
            topics,
            servers,
            to,
            how,
            spark=spark,
            options=options,
            shape=target_shape,
            quarantine_topic=quarantine_topic,
            **place.as_arguments(),
        )
    if cluster.as_json:
        print_json(report)
    else:
        print_report(report)


def _say(report: LoadReport) -> None:
    print_line(
        f"batch {report.steps}: {counted(report.rows, 'row')} so far, {report.quarantined:,} bad",
        err=True,
        flush=True,
    )


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Treats the first Ctrl-C, SIGTERM or SIGHUP as a request to stop; the next has its default effect."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in stop_signals()}

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
