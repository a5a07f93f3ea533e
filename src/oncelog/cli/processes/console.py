"""``oncelog console``: the web console's help, and the parsing of command lines that ``main`` does not read."""

from __future__ import annotations

from typing import Any

import typer

from oncelog.cli.processes.console_process import OPTIONS, address_of, run_console
from oncelog.cli.processes.typer_signature import with_options
from oncelog.cli.support.options import ClusterOptions

EPILOG = """
\b
Examples:
  oncelog console
  oncelog console --bootstrap-servers kafka-1:9092 --command-config admin.properties
  oncelog console --allow-changes --audit-log /var/log/oncelog-console.jsonl
  oncelog console --schema orders=order.avsc --schema key:orders@7=key.avsc \\
    --schema payments=all.desc:shop.Payment
  oncelog console --audit-report reports/ --audit-data /var/lib/kafka/data
  oncelog console --metrics-url http://kafka-1:9100/metrics \\
    --metrics-url http://kafka-2:9100/metrics
  oncelog console --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \\
    --auth basic users.txt --name logs.example
"""


@with_options(OPTIONS)
def console(cluster: ClusterOptions = ClusterOptions(), **values: Any) -> None:
    """Serve pages about a cluster: open and hanging transactions, readable records, and why something is stuck."""
    if address_of(values["listen"]) is None:
        raise typer.BadParameter(f"{values['listen']!r} is not HOST:PORT", param_hint="--listen")
    servers, client = cluster.connection_settings()
    code = run_console(bootstrap=servers, client=client, command_options=cluster.as_arguments(), **values)
    raise typer.Exit(code)
