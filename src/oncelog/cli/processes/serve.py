"""``oncelog serve``: one broker in the foreground. Its help, and the parsing of whatever ``main`` does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.support.options import directory

EPILOG = """
\b
Examples:
  oncelog serve
  oncelog serve --data-dir /var/lib/oncelog --listen 0.0.0.0:9092 \\
    -o advertised.listeners=PLAINTEXT://log.example:9092
  oncelog serve --config server.properties -o log.retention.hours=24 --http 127.0.0.1:8080
"""


def serve(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=directory,
            help="Where the logs live; created if missing. Default: log.dirs, or ./oncelog-data.",
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A properties file with Apache Kafka's keys, as server.properties."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="One key of the configuration; wins over --config."),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics (Prometheus) and /health here.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a broker that Kafka clients use unchanged, until Ctrl-C or SIGTERM."""
    from oncelog.cli.processes.broker_process import run_broker

    raise typer.Exit(
        run_broker(data_dir=data_dir, listen=listen, config=config, option=option or (), http=http, verbose=verbose)
    )
