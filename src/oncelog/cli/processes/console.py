"""``oncelog console``: the web console. Its help, and the parsing of whatever ``main`` does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.processes.console_process import DEFAULT_LISTEN, DEFAULT_SAMPLE_EVERY_S, address_of, run_console
from oncelog.cli.support.option_groups import grouped
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


Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address to listen on; beyond loopback it needs TLS and a login.")
]
Names = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="A host name that browsers use for it; may be repeated."),
]
AllowChanges = Annotated[bool, typer.Option("--allow-changes", help="Let pages change the cluster; needs --audit-log.")]
AuditLog = Annotated[
    Path | None,
    typer.Option(metavar="FILE", envvar="ONCELOG_AUDIT_LOG", help="Append every change, and every refused one."),
]
Auth = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="KIND ARGUMENT",
        help="Who may come: basic FILE (lines of NAME:PASSWORD), token FILE, or header NAME, set by a proxy.",
    ),
]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")]
Schemas = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[key:]TOPIC[@ID]=FILE[:MESSAGE]",
        help="Decode values (or keys) of a topic, or of *, by an Avro schema (.avsc) or a Protobuf descriptor set "
        "(.desc); ID is a schema registry's. May be repeated.",
    ),
]
AuditReports = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        exists=True,
        readable=True,
        help="A report of oncelog audit --json to show, or a directory of them; may be repeated.",
    ),
]
AuditData = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="A log directory that may be audited from the console; may be repeated.",
    ),
]
MetricsUrls = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Metrics port of one of oncelog's brokers (serve --http); may be repeated."),
]
SampleEvery = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, max=600, help="Pause between looks for the page of metrics; 0: none."),
]


@grouped
def console(
    listen: Listen = DEFAULT_LISTEN,
    name: Names = None,
    allow_changes: AllowChanges = False,
    audit_log: AuditLog = None,
    auth: Auth = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    schema: Schemas = None,
    audit_report: AuditReports = None,
    audit_data: AuditData = None,
    metrics_url: MetricsUrls = None,
    sample_every: SampleEvery = DEFAULT_SAMPLE_EVERY_S,
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Serve pages about a cluster: what is open, what hangs, what can really be read, and why something is stuck."""
    if address_of(listen) is None:
        raise typer.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    servers, given = cluster.connection_settings()
    code = run_console(
        bootstrap=servers,
        client=given,
        command_options=cluster.as_arguments(),
        listen=listen,
        name=name or (),
        allow_changes=allow_changes,
        audit_log=audit_log,
        auth=auth,
        tls_cert=tls_cert,
        tls_key=tls_key,
        schema=schema or (),
        audit_report=audit_report or (),
        audit_data=audit_data or (),
        metrics_url=metrics_url or (),
        sample_every=sample_every,
    )
    raise typer.Exit(code)
