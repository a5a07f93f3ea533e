"""``oncelog console``: the web console in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Properties, connection_settings
from oncelog.cli.txn.common import cluster_options

if TYPE_CHECKING:
    import uvicorn

    from oncelog.console.settings import Settings

EPILOG = """
Examples:

  oncelog console

  oncelog console --bootstrap-servers kafka-1:9092 --command-config admin.properties

  oncelog console --allow-changes --audit-log /var/log/oncelog-console.jsonl

  oncelog console --schema orders=order.avsc --schema key:orders@7=key.avsc --schema payments=all.desc:shop.Payment

  oncelog console --audit-report reports/ --audit-data /var/lib/kafka/data

  oncelog console --metrics-url http://kafka-1:9100/metrics --metrics-url http://kafka-2:9100/metrics

  oncelog console --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --auth basic users.txt --name logs.example
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


def console(
    listen: Listen = "127.0.0.1:8080",
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
    sample_every: SampleEvery = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: Properties = None,
    command_config: CommandConfig = None,
) -> None:
    """Serve pages about a cluster: what is open, what hangs, what can really be read, and why something is stuck."""
    from oncelog.console.formats.schema_files import read_schemas
    from oncelog.console.logins import Nobody, login_of
    from oncelog.console.settings import Settings

    servers, given = connection_settings(bootstrap, properties, command_config)
    host, port = _address(listen)
    settings = Settings(
        bootstrap=servers,
        client=given,
        command_options=cluster_options(bootstrap, properties, command_config),
        host=host,
        port=port,
        names=frozenset(one.lower() for one in name or ()),
        allow_changes=allow_changes,
        audit_log=audit_log,
        login=Nobody() if auth is None else login_of(*auth),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        schemas=read_schemas(schema or ()),
        audit_reports=tuple(one.absolute() for one in audit_report or ()),
        audit_data=tuple(one.absolute() for one in audit_data or ()),
        sample_every_s=sample_every,
        metrics_urls=tuple(metrics_url or ()),
    )
    run(settings)


def run(settings: Settings) -> None:
    """Serve until interrupted."""
    server = server_of(settings)
    scheme = "https" if settings.has_tls else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    what = f"changes are allowed, and written to {settings.audit_log}" if settings.allow_changes else "read-only"
    print(
        f"console of {settings.bootstrap} at {scheme}://{host}:{settings.port}/ ({what})", file=sys.stderr, flush=True
    )
    server.run()


def server_of(settings: Settings) -> uvicorn.Server:
    """The server of a console, not started. Raises ClientError for the audit log."""
    import uvicorn

    from oncelog.console.application import application

    config = uvicorn.Config(
        application(settings),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        limit_concurrency=200,
        h11_max_incomplete_event_size=64 * 1024,
    )
    return uvicorn.Server(config)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)
