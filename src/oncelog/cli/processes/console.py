"""``oncelog console``: the web console's help, and the parsing of command lines that ``main`` does not read."""

from __future__ import annotations

import os
from typing import Any

import typer

from oncelog.cli.processes.console_process import OPTIONS, address_of, run_console
from oncelog.cli.processes.typer_signature import with_options
from oncelog.cli.support.named_cluster import BOOTSTRAP_VARIABLE, COMMAND_CONFIG_VARIABLE, DEFAULT_BOOTSTRAP
from oncelog.cli.support.options import ClusterOptions

EPILOG = """
\b
Examples:
  oncelog console
  oncelog console --bootstrap-servers kafka-1:9092 --command-config admin.properties
  oncelog console --cluster live=kafka-1:9092,kafka-2:9092 --cluster test=localhost:9092 \\
    --cluster-config live=live.properties
  oncelog console --allow-changes --audit-log /var/log/oncelog-console.jsonl
  oncelog console --schema orders=order.avsc --schema key:orders@7=key.avsc \\
    --schema payments=all.desc:shop.Payment
  oncelog console --registry http://registry-1:8081
  oncelog console --audit-report reports/ --audit-data /var/lib/kafka/data
  oncelog console --metrics-url http://kafka-1:9100/metrics \\
    --metrics-url http://kafka-2:9100/metrics
  oncelog console --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \\
    --auth basic users.txt --name logs.example
"""


def _refuse_common_settings(cluster: ClusterOptions) -> None:
    """Settings for all clusters could send one cluster's password to another. The environment's are ignored."""
    config = None if cluster.command_config is None else str(cluster.command_config)
    for option, given in (
        ("--bootstrap-servers", cluster.bootstrap not in (DEFAULT_BOOTSTRAP, os.environ.get(BOOTSTRAP_VARIABLE))),
        ("--command-config", config != os.environ.get(COMMAND_CONFIG_VARIABLE)),
        ("--property", bool(cluster.properties)),
    ):
        if given:
            raise typer.BadParameter(
                "--cluster names the clusters, and --cluster-config NAME=FILE their client settings", param_hint=option
            )


@with_options(OPTIONS)
def console(cluster: ClusterOptions = ClusterOptions(), **values: Any) -> None:
    """Serve pages about a cluster: open and hanging transactions, readable records, and why something is stuck."""
    if address_of(values["listen"]) is None:
        raise typer.BadParameter(f"{values['listen']!r} is not HOST:PORT", param_hint="--listen")
    if values.get("clusters"):
        _refuse_common_settings(cluster)
        raise typer.Exit(run_console(**values))
    servers, client = cluster.connection_settings()
    code = run_console(
        bootstrap=servers,
        client=client,
        command_options=cluster.as_arguments(),
        registry_settings=cluster.registry_settings(),
        **values,
    )
    raise typer.Exit(code)
