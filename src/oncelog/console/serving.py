"""The console's server: ends open streams and pages before it shuts down."""

from __future__ import annotations

from starlette.applications import Starlette

from oncelog.console.settings import Settings
from oncelog.console.streaming.pump import ConsoleEnds
from oncelog.web.server import HttpServer, log_failures, server_config


def server_of(app: Starlette, settings: Settings) -> HttpServer:
    """The server of a console, not started. Raises ConfigError for an unusable certificate."""
    config = server_config(app, settings.host, settings.port, settings.tls_certificate, settings.tls_key)
    server = HttpServer(config, "the console", app.state.end)
    log_failures(server, (ConsoleEnds,))
    return server
