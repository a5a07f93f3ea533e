"""A console in the foreground, as ``oncelog console`` runs it: its plain options as a table, its settings, its server.

Imports no typer: ``console`` declares the same options for the help, for the environment and for whatever is not plain.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never

from oncelog.cli.processes.plain_options import PlainOption, read_plainly
from oncelog.cli.support.named_cluster import DEFAULT_BOOTSTRAP, cluster_options
from oncelog.cli.support.terminal import print_line
from oncelog.listening.descriptors import raise_limit

if TYPE_CHECKING:
    from oncelog.console.serving import ConsoleServer
    from oncelog.console.settings import Settings

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
DEFAULT_SAMPLE_EVERY_S: Final = 10.0
_INTERRUPTED: Final = 130
"""The exit code of every command that is interrupted."""
_GC_THRESHOLDS: Final = (20_000, 10, 10)
"""A page about ten thousand topics makes a hundred thousand objects, no circle among them; looking for circles after
each 700, as Python does, is a third of what it costs."""
OPTIONS: Final[Mapping[str, PlainOption]] = {
    "--bootstrap-server": PlainOption("bootstrap", str),
    "--bootstrap-servers": PlainOption("bootstrap", str),
    "-b": PlainOption("bootstrap", str),
    "--listen": PlainOption("listen", str),
    "--name": PlainOption("name", str, repeats=True),
    "--allow-changes": PlainOption("allow_changes", bool),
    "--audit-log": PlainOption("audit_log", Path),
    "--schema": PlainOption("schema", str, repeats=True),
    "--metrics-url": PlainOption("metrics_url", str, repeats=True),
    "--sample-every": PlainOption("sample_every", float),
}
"""Options of ``oncelog console`` that need no check of their own; a test holds them equal to those it declares."""
ENVIRONMENT: Final = ("ONCELOG_BOOTSTRAP_SERVERS", "ONCELOG_COMMAND_CONFIG", "ONCELOG_AUDIT_LOG")


def read_console(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments of ``run_console``; None for what typer has to read."""
    if any(name in os.environ for name in ENVIRONMENT):
        return None
    values = read_plainly(OPTIONS, arguments)
    if values is None or address_of(values.get("listen", DEFAULT_LISTEN)) is None:
        return None
    return values


def run_console(
    *,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    client: Mapping[str, str] | None = None,
    command_options: str | None = None,
    listen: str = DEFAULT_LISTEN,
    name: Sequence[str] = (),
    allow_changes: bool = False,
    audit_log: Path | None = None,
    auth: tuple[str, str] | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    schema: Sequence[str] = (),
    audit_report: Sequence[Path] = (),
    audit_data: Sequence[Path] = (),
    metrics_url: Sequence[str] = (),
    sample_every: float = DEFAULT_SAMPLE_EVERY_S,
) -> int:
    """Serve until interrupted; the exit code. ``listen`` is an address that can be. Raises ClientError."""
    raise_limit()
    gc.disable()  # modules are no garbage: traversing them while they load takes a tenth of the start
    from oncelog.console.formats.schema_files import read_schemas
    from oncelog.console.logins import Nobody, login_of
    from oncelog.console.settings import Settings

    host, port = address_of(listen) or ("", 0)
    settings = Settings(
        bootstrap=bootstrap,
        client=client or {},
        command_options=cluster_options(bootstrap) if command_options is None else command_options,
        host=host,
        port=port,
        names=frozenset(one.lower() for one in name),
        allow_changes=allow_changes,
        audit_log=audit_log,
        login=Nobody() if auth is None else login_of(*auth),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        schemas=read_schemas(schema),
        audit_reports=tuple(one.absolute() for one in audit_report),
        audit_data=tuple(one.absolute() for one in audit_data),
        sample_every_s=sample_every,
        metrics_urls=tuple(metrics_url),
    )
    server = server_of(settings)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    scheme = "https" if settings.has_tls else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    what = f"changes are allowed, and written to {settings.audit_log}" if settings.allow_changes else "read-only"
    line = f"console of {settings.bootstrap} at {scheme}://{host}:{settings.port}/ ({what})"
    server.on_listening = lambda: print_line(line, err=True, flush=True)
    try:
        server.run()
    except KeyboardInterrupt:
        _end_at_once()
    return 0


def _end_at_once() -> Never:
    """End this process where it stands. Changes are over by now; threads that still wait for a cluster that hangs would
    hold the end up until their time-outs, and nobody waits for what they ask."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def server_of(settings: Settings) -> ConsoleServer:
    """The server of a console, not started. Raises ClientError for the audit log, and for schemas."""
    from oncelog.console.formats.process import DecodingProcess

    decoding = DecodingProcess(settings.schemas)  # Its own imports go on beside those that follow.

    from oncelog.console import serving
    from oncelog.console.application import application

    return serving.server_of(application(settings, decoding=decoding), settings)


def address_of(text: str) -> tuple[str, int] | None:
    """The host and port of HOST:PORT, None for what is not that."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)
