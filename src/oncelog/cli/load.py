"""``oncelog load``: topics into a directory of Parquet files, exactly once. Parsing and printing only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig, Properties, client_settings
from oncelog.cli.output import print_json, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.spark.loading import Event, LoadReport


def load(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to load.")],
    to: Annotated[Path, typer.Option("--to", "-o", metavar="DIR", help="The table: a directory, made if need be.")],
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Load rows from then on anew, in place of those that are there: 2013-06-01, "
            "2013-06-01T12:00Z or @MILLISECONDS.",
        ),
    ] = None,
    rows_per_step: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows after which a step is committed.")
    ] = 2_000_000,
    headers: Annotated[bool, typer.Option("--headers", help="Load the column 'headers' too.")] = False,
    read_uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Load records of aborted and open transactions too.")
    ] = False,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Go on where retention removed what was not loaded yet.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: Properties = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Load what is new in topics into a table of Parquet files, each record exactly once.

    Run it again whenever there is more; after a crash, too: it goes on where the table ends. Spark, pyarrow, DuckDB
    and others read DIR as it is, at any time. Needs Java 17 or later for Spark.

    \b
    Examples:
      oncelog load flights --to ./flights-table
      oncelog load orders payments --to ./lake --from 2013-06-01
    """
    from oncelog.cli.moments import MomentError, parse_time_ms
    from oncelog.spark.loading import load as run

    try:
        from_ms = None if from_time is None else parse_time_ms(from_time)
    except MomentError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from None
    options = {f"kafka.{name}": value for name, value in client_settings(properties, command_config).items()}
    options["kafka.isolation.level"] = "read_uncommitted" if read_uncommitted else "read_committed"
    options["includeHeaders"] = str(headers).lower()
    options["failOnDataLoss"] = str(not allow_data_loss).lower()
    with _progress(quiet=as_json) as on_event:
        report = run(
            topics, bootstrap, to, from_ms=from_ms, rows_per_step=rows_per_step, options=options, on_event=on_event
        )
    if as_json:
        print_json(report)
    else:
        _print_report(report)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """A bar on a terminal, a line per step elsewhere."""
    if quiet:
        yield lambda event: None
        return
    on_terminal = sys.stderr.isatty()
    with progress("records") as tell:

        def on_event(event: Event) -> None:
            if on_terminal:
                tell(event.offsets_done, event.offsets_total)
            elif event.kind == "planned" and event.offsets_total:
                print(f"{event.offsets_total:,} offsets to load; starting Spark", file=sys.stderr, flush=True)
            elif event.kind == "committed":
                done = f"{event.offsets_done:,} of {event.offsets_total:,} offsets"
                print(f"step {event.step}: {done}, {event.rows:,} rows", file=sys.stderr, flush=True)

        yield on_event


def _print_report(report: LoadReport) -> None:
    rows = [
        (one.topic, one.partition, one.start, one.end, one.rows, one.replaced_files)
        for one in report.partitions
        if one.rows or one.replaced_files or one.end > one.start
    ]
    if not rows:
        print(f"nothing new; {report.directory} has everything up to now")
        return
    print_table(("topic", "partition", "from offset", "to offset", "rows", "files replaced"), rows)
    speed = f", {report.rows / report.seconds:,.0f} rows/s" if report.rows > 10_000 else ""
    print(f"{report.rows:,} rows in {report.steps} step(s), {report.seconds:.1f} s{speed}: {report.directory}")
