"""``oncelog serve``: the broker's help, and the parsing of command lines that ``main`` does not read."""

from __future__ import annotations

from typing import Any

import typer

from oncelog.cli.processes.broker_process import OPTIONS, run_broker
from oncelog.cli.processes.typer_signature import with_options

EPILOG = """
\b
Examples:
  oncelog serve
  oncelog serve --data-dir /var/lib/oncelog --listen 0.0.0.0:9092 \\
    -o advertised.listeners=PLAINTEXT://log.example:9092
  oncelog serve --registry 127.0.0.1:8081
  oncelog serve --config server.properties -o log.retention.hours=24 --http 127.0.0.1:8080
"""


@with_options(OPTIONS)
def serve(**values: Any) -> None:
    """Run a broker that Kafka clients use unchanged, until Ctrl-C or SIGTERM."""
    raise typer.Exit(run_broker(**values))
