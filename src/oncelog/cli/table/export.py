"""``oncelog export``: writes a table into a topic, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncelog.base.text import counted
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.table.options import Remote, spark_at


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A table that 'oncelog load' or 'stream' made.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to; created if missing.")],
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="Write each row to the partition it came from, instead of its key's."),
    ] = False,
    remote: Remote = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Write the rows of a table into a topic that were not written to it yet, each exactly once.

    Run it again for new rows, and after a crash. Columns of decoded values are written as JSON.

    \b
    Examples:
      oncelog export ./flights-table flights-again
      oncelog export ./orders orders --keep-partitions --bootstrap-server other:9092
      oncelog export /shared/orders orders --remote sc://spark-server:15002
    """
    from oncelog.spark.export import export as run

    servers, settings = cluster.connection_settings()
    options = {f"kafka.{name}": value for name, value in settings.items()}
    with spark_at(remote) as spark:
        report = run(directory, topic, servers, spark=spark, keep_partitions=keep_partitions, options=options)
    if cluster.as_json:
        print_json(report)
    elif report.job is None:
        print_line(f"nothing new; {topic} has every row of {report.directory}")
    else:
        again = " (an earlier run had begun it; what that had committed was not sent again)" if report.resumed else ""
        speed = f", {report.rows_per_second:,.0f} rows/s" if report.rows else ""
        print_line(f"{counted(report.rows, 'row')} in {report.seconds:.1f} s{speed}: {topic}{again}")
