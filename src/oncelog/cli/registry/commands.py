"""``oncelog registry``: a schema registry over a topic of any Kafka cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import ClusterOptions
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.registry.serving import Settings

DEFAULT_LISTEN: Final = "127.0.0.1:8081"
app = CommandGroup("Serve a schema registry; export and import its schemas (needs oncelog[registry]).")

Topic = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic with the schemas.")]


@app.command()
def serve(
    cluster: ClusterOptions = ClusterOptions(),
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on.")
    ] = DEFAULT_LISTEN,
    topic: Topic = "_schemas",
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change; never write the topic.")] = False,
    auth: Annotated[
        tuple[str, str] | None,
        typer.Option("--auth", metavar="KIND ARGUMENT", help="basic FILE (lines of NAME:PASSWORD), or token FILE."),
    ] = None,
    permissions: Annotated[
        Path | None,
        typer.Option("--permissions", metavar="FILE", help="Lines of USER ROLE SUBJECT; without it users may do all."),
    ] = None,
    is_open: Annotated[bool, typer.Option("--open", help="No login, also beyond this machine.")] = False,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="HOST", help="A further host name of the registry.")
    ] = None,
) -> None:
    """Serve the routes of Confluent's registry; several instances may share a topic.

    \b
    Examples:
      oncelog registry serve
      oncelog registry serve --bootstrap-server kafka-1:9092 --listen 0.0.0.0:8081 --open
      oncelog registry serve --listen 0.0.0.0:8081 --tls-cert cert.pem --tls-key key.pem \\
        --auth basic users.txt --permissions roles.txt
    """
    from oncelog.cli.registry.process import run_registry
    from oncelog.registry.http.permissions import Permissions, read_permissions
    from oncelog.registry.serving import Settings
    from oncelog.web.logins import NoLogin, login_of

    if auth is not None and auth[0] not in ("basic", "token"):
        raise typer.BadParameter(f"{auth[0]!r} is not basic or token", param_hint="--auth")
    host, port = _address(listen)
    bootstrap, client = cluster.connection_settings()
    settings = Settings(
        bootstrap,
        client,
        host,
        port,
        topic,
        read_only=read_only,
        is_open=is_open,
        login=NoLogin() if auth is None else login_of(*auth),
        permissions=Permissions() if permissions is None else read_permissions(permissions),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        names=frozenset(host_name.lower() for host_name in name or ()),
    )
    raise typer.Exit(run_registry(settings))


@app.command()
def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: standard output.")] = None,
    topic: Topic = "_schemas",
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Write all schemas as JSON lines, with ids, configs and modes; of any registry that keeps them in Kafka.

    \b
    Examples:
      oncelog registry export schemas.jsonl
      oncelog registry export --bootstrap-server kafka-1:9092 | gzip > schemas.jsonl.gz
    """
    from oncelog.cli.registry.process import export_lines

    settings = _plain_settings(cluster, topic)
    if file is None:
        export_lines(settings, sys.stdout)
        return
    with file.open("w", encoding="utf-8") as output:
        count = export_lines(settings, output)
    print_line(f"{count} records in {file}", err=True)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - for standard input.", allow_dash=True)],
    topic: Topic = "_schemas",
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Write the schemas of an export into a topic, with their ids; present ones stay unchanged.

    \b
    Examples:
      oncelog registry import schemas.jsonl
      gunzip -c schemas.jsonl.gz | oncelog registry import - --bootstrap-server localhost:9092
    """
    from oncelog.cli.registry.process import import_lines

    settings = _plain_settings(cluster, topic)
    if str(file) == "-":
        added = import_lines(settings, sys.stdin)
    else:
        with file.open(encoding="utf-8") as lines:
            added = import_lines(settings, lines)
    print_line(f"{added} records added to {topic}", err=True)


def _plain_settings(cluster: ClusterOptions, topic: str) -> Settings:
    from oncelog.registry.serving import Settings

    bootstrap, client = cluster.connection_settings()
    return Settings(bootstrap, client, topic=topic)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)
