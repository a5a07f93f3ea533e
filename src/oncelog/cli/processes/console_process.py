"""``oncelog console``'s server in the foreground: its options and settings. Imports no typer."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never

from oncelog.cli.processes.command_options import CommandOption, read_plainly
from oncelog.cli.support.named_cluster import (
    BOOTSTRAP_NAMES,
    BOOTSTRAP_VARIABLE,
    COMMAND_CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    cluster_options,
)
from oncelog.cli.support.terminal import print_line
from oncelog.listening.descriptors import raise_limit
from oncelog.runtime.service_manager import UnusableSockets, handed_sockets, notify_ready

if TYPE_CHECKING:
    from oncelog.console.settings import NamedCluster, Settings
    from oncelog.schemas.client.settings import RegistrySettings
    from oncelog.web.server import HttpServer

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
DEFAULT_SAMPLE_EVERY_S: Final = 10.0
_GC_THRESHOLDS: Final = (20_000, 10, 10)
"""A page about ten thousand topics makes a hundred thousand objects, no circle among them; looking for circles after
each 700, as Python does, is a third of what it costs."""
OPTIONS: Final = (
    CommandOption(
        "listen",
        str,
        "HOST:PORT",
        "Address to listen on; beyond loopback it needs TLS and a login.",
        default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "clusters",
        str,
        "NAME=HOST:PORT[,HOST:PORT…]",
        "A cluster of several in one console; may be repeated. Replaces --bootstrap-servers.",
        repeats=True,
        spelled=("--cluster",),
    ),
    CommandOption(
        "cluster_config",
        str,
        "NAME=FILE",
        "A properties file with the client settings of one --cluster; may be repeated.",
        repeats=True,
    ),
    CommandOption("name", str, "HOST", "A host name that browsers use for it; may be repeated.", repeats=True),
    CommandOption("allow_changes", bool, None, "Let pages change the cluster; needs --audit-log."),
    CommandOption("audit_log", Path, "FILE", "Append every change, and every refused one.", envvar="ONCELOG_AUDIT_LOG"),
    CommandOption(
        "auth",
        tuple[str, str],
        "KIND ARGUMENT",
        "The login: basic FILE (lines of NAME:PASSWORD), token FILE, or header NAME, set by a proxy.",
    ),
    CommandOption("tls_cert", Path, "FILE", "Certificate chain, PEM."),
    CommandOption("tls_key", Path, "FILE", "Its private key, PEM."),
    CommandOption(
        "schema",
        str,
        "[key:]TOPIC[@ID]=FILE[:MESSAGE]",
        "Decode values (or keys) of a topic, or of *, by an Avro schema (.avsc) or a Protobuf descriptor set "
        "(.desc); ID is a schema registry's. May be repeated.",
        repeats=True,
    ),
    CommandOption(
        "registry",
        str,
        "[NAME=]URL",
        "Schema registry whose schemas decode keys and values, of --cluster NAME; may be repeated.",
        repeats=True,
    ),
    CommandOption(
        "audit_report",
        Path,
        "PATH",
        "A report of oncelog audit --json to show, or a directory of them; may be repeated.",
        repeats=True,
        checks={"exists": True, "readable": True},
    ),
    CommandOption(
        "audit_data",
        Path,
        "DIR",
        "A log directory that may be audited from the console; may be repeated.",
        repeats=True,
        checks={"exists": True, "file_okay": False},
    ),
    CommandOption(
        "metrics_url",
        str,
        "[NAME=]URL",
        "Metrics port of one of oncelog's brokers (serve --http), of --cluster NAME; may be repeated.",
        repeats=True,
    ),
    CommandOption(
        "sample_every",
        float,
        "SECONDS",
        "Pause between looks for the page of metrics; 0: none.",
        default=DEFAULT_SAMPLE_EVERY_S,
        bounds=(0, 600),
    ),
)
_BOOTSTRAP: Final = CommandOption(
    "bootstrap", str, None, "Brokers to start from.", spelled=BOOTSTRAP_NAMES, envvar=BOOTSTRAP_VARIABLE
)


def read_console(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments of ``run_console``; None if typer has to parse the command line."""
    if COMMAND_CONFIG_VARIABLE in os.environ:
        return None
    values = read_plainly((*OPTIONS, _BOOTSTRAP), arguments)
    if values is None or address_of(values.get("listen", DEFAULT_LISTEN)) is None:
        return None
    if "clusters" in values and "bootstrap" in values:
        return None
    return values


def run_console(
    *,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    client: Mapping[str, str] | None = None,
    command_options: str | None = None,
    clusters: Sequence[str] = (),
    cluster_config: Sequence[str] = (),
    listen: str = DEFAULT_LISTEN,
    name: Sequence[str] = (),
    allow_changes: bool = False,
    audit_log: Path | None = None,
    auth: tuple[str, str] | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    schema: Sequence[str] = (),
    registry: Sequence[str] = (),
    registry_settings: Mapping[str, str] | None = None,
    audit_report: Sequence[Path] = (),
    audit_data: Sequence[Path] = (),
    metrics_url: Sequence[str] = (),
    sample_every: float = DEFAULT_SAMPLE_EVERY_S,
) -> int:
    """Serves until interrupted and returns the exit code. ``listen`` is a valid address. Raises ClientError."""
    raise_limit()
    gc.disable()  # modules are no garbage: traversing them while they load takes a tenth of the start
    from oncelog.console.formats.schema_files import read_schemas
    from oncelog.console.settings import Settings
    from oncelog.web.logins import NoLogin, login_of

    named = _named_clusters(clusters, cluster_config, metrics_url, registry)
    host, port = address_of(listen) or ("", 0)
    settings = Settings(
        bootstrap=bootstrap,
        client=client or {},
        command_options=cluster_options(bootstrap) if command_options is None else command_options,
        host=host,
        port=port,
        names=frozenset(path.lower() for path in name),
        allow_changes=allow_changes,
        audit_log=audit_log,
        login=NoLogin() if auth is None else login_of(*auth),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        schemas=read_schemas(schema),
        audit_reports=tuple(path.absolute() for path in audit_report),
        audit_data=tuple(path.absolute() for path in audit_data),
        sample_every_s=sample_every,
        metrics_urls=() if named else tuple(metrics_url),
        clusters=named,
        registry=None if named else _registry_of(registry, registry_settings or {}),
    )
    server = server_of(settings)
    server.bound = _sockets_of_unit(settings) or None
    _collect_garbage()
    server.on_listening = partial(_announce, _first_line(settings))
    try:
        server.run()
    except KeyboardInterrupt:
        _end_at_once()
    return 0


def _sockets_of_unit(settings: Settings) -> list[socket.socket]:
    """The sockets that systemd has bound for the console. Raises ConfigError if they cannot be taken over, and for
    another address than ``--listen``: its rules (loopback, or TLS and a login) would not hold there."""
    from oncelog.client.errors import ConfigError

    try:
        sockets = handed_sockets(os.environ, os.getpid())
    except UnusableSockets as error:
        raise ConfigError(str(error)) from None
    for handed in sockets:
        host, port, *_ = handed.getsockname() if handed.family in _INTERNET else ("a path", 0)
        if (host, port) != (settings.host, settings.port):
            raise ConfigError(
                f"the socket unit listens on {host}:{port}, but --listen is {settings.host}:{settings.port}: "
                "give both the same address, with a numeric host"
            )
    return sockets


def _collect_garbage() -> None:
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _announce(line: str) -> None:
    print_line(line, err=True, flush=True)
    notify_ready(line)


def _named_clusters(
    clusters: Sequence[str], configs: Sequence[str], metrics_urls: Sequence[str], registries: Sequence[str]
) -> tuple[NamedCluster, ...]:
    if not clusters and not configs:
        return ()
    from oncelog.cli.processes.console_clusters import clusters_of

    return clusters_of(clusters, configs, metrics_urls, registries)


def _registry_of(urls: Sequence[str], settings: Mapping[str, str]) -> RegistrySettings | None:
    """The registry of the only cluster. Raises ConfigError, RegistryConfigError."""
    if not urls and not settings.get("schema.registry.url"):
        return None
    from oncelog.schemas.client.settings import parse_settings

    # Servers of one registry are in one text, with commas; repeated options are for clusters with names.
    return parse_settings(",".join(urls), settings)


def _first_line(settings: Settings) -> str:
    scheme = "https" if settings.has_tls else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    mode = f"changes are allowed, and written to {settings.audit_log}" if settings.allow_changes else "read-only"
    subject = ", ".join(named.name for named in settings.clusters) or settings.bootstrap
    return f"console of {subject} at {scheme}://{host}:{settings.port}/ ({mode})"


def _end_at_once() -> Never:
    """End this process without waiting for threads: changes are over by now, but a cluster that hangs would hold the
    end up until its time-outs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def server_of(settings: Settings) -> HttpServer:
    """The server of a console. Raises ClientError for the audit log and for schemas."""
    from oncelog.console.formats.decoder_process import DecodingProcess

    decoding = DecodingProcess(settings.schemas)  # Its own imports go on beside those that follow.

    from oncelog.console import serving
    from oncelog.console.application import application

    return serving.server_of(application(settings, decoding=decoding), settings)


def address_of(text: str) -> tuple[str, int] | None:
    """The host and port of HOST:PORT; None for other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)
