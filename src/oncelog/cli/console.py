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

  oncelog console --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --auth basic users.txt --name logs.example
"""


def console(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; beyond loopback it needs TLS and a login.")
    ] = "127.0.0.1:8080",
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A host name that browsers use for it; may be repeated."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let pages change the cluster; needs --audit-log.")
    ] = False,
    audit_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="ONCELOG_AUDIT_LOG", help="Append every change, and every refused one."),
    ] = None,
    auth: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="KIND ARGUMENT",
            help="Who may come: basic FILE (lines of NAME:PASSWORD), token FILE, or header NAME, set by a proxy.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[key:]TOPIC[@ID]=FILE[:MESSAGE]",
            help="Decode values (or keys) of a topic, or of *, by an Avro schema (.avsc) or a Protobuf descriptor set "
            "(.desc); ID is a schema registry's. May be repeated.",
        ),
    ] = None,
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
