"""``oncelog serve``: one broker in the foreground. Argument parsing and printing only."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """
Examples:

  oncelog serve

  oncelog serve --data-dir /var/lib/oncelog --listen 0.0.0.0:9092 -o advertised.listeners=PLAINTEXT://log.example:9092

  oncelog serve --config server.properties -o log.retention.hours=24 --http 127.0.0.1:8080
"""


def serve(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the logs live; created if missing. Default: log.dirs, or ./oncelog-data."
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
    from oncelog.node.assembly import StartRefused
    from oncelog.node.settings import ConfigError, parse_address, read_settings
    from oncelog.runtime.process import run_until_signalled

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    try:
        settings = read_settings(
            _values(config, option or []),
            data_directory=None if data_dir is None else str(data_dir.absolute()),
            listen=None if listen is None else parse_address(listen),
        )
        exit_code = run_until_signalled(settings, http=http, announce=lambda line: print(line, flush=True))
    except (ConfigError, StartRefused) as error:
        print(f"oncelog: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    raise typer.Exit(exit_code)


def _values(properties: Path | None, options: list[str]) -> dict[str, str]:
    """Keys and values of a properties file and of ``-o``, which wins."""
    from oncelog.node.assembly import StartRefused
    from oncelog.node.settings import parse_properties

    values: dict[str, str] = {}
    if properties is not None:
        try:
            values.update(parse_properties(properties.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise StartRefused(f"cannot read {properties}: {error}") from None
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key:
            raise StartRefused(f"-o {option}: write -o key=value")
        values[key.strip()] = value.strip()
    return values
