"""The console's server: uvicorn's, which tells open streams and pages that it ends before it waits for them.

The rule: an end that was asked for prints nothing. What a browser does not take within ``GRACE_S`` is cut off; a file
that breaks off is one line on stderr, anything unexpected a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.applications import Starlette

from oncelog.base.log_lines import LineFormatter
from oncelog.client.errors import ClientError, ConfigError
from oncelog.console.settings import Settings
from oncelog.console.streaming.pump import ConsoleEnds

GRACE_S: Final = 1
_TURNS: Final = 5
"""Turns of the loop in which connections that were cut off are closed: one that is not outlives its loop."""
_LOGGER: Final = "uvicorn.error"
_CUT_OFF: Final = "Cancel %s running task(s)"


class ConsoleServer(uvicorn.Server):
    """The server of a console, which says when it listens, and ends it in order."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_listening: Callable[[], object] = lambda: None
        """Called once, when a browser can connect."""
        self.refused: OSError | None = None
        """The reason why the address cannot be listened on, as uvicorn would have logged it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so. Raises ClientError where that cannot be."""
        try:
            await super().startup(sockets)
        except SystemExit:
            if self.refused is None:
                raise
            reason = os.strerror(self.refused.errno or 0).lower()
            address = f"{self.config.host}:{self.config.port}"
            raise ClientError(f"cannot listen on {address}: {reason}; choose another address with --listen") from None
        if self.started:
            self.on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and pages, then the server."""
        app = self.config.app
        if isinstance(app, Starlette):
            app.state.end()
        await super().shutdown(sockets)
        for one in list(self.server_state.connections):  # By TLS an end waits for the browser's, which may never come.
            transport = getattr(one, "transport", None)
            if transport is not None:
                transport.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def server_of(app: Starlette, settings: Settings) -> ConsoleServer:
    """The server of a console, not started. Raises ConfigError for a certificate that cannot be used."""
    config = uvicorn.Config(
        app,
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
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=200,
        h11_max_incomplete_event_size=64 * 1024,
    )
    if settings.has_tls:
        _load_certificate(config, settings)
    server = ConsoleServer(config)
    for handler in logging.getLogger("uvicorn").handlers:
        handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    logging.getLogger(_LOGGER).addFilter(lambda record: _is_worth_saying(record, server))
    return server


def _load_certificate(config: uvicorn.Config, settings: Settings) -> None:
    certificate, key = settings.tls_certificate, settings.tls_key
    assert certificate is not None
    assert key is not None
    for path in (certificate, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        config.load()
    except ssl.SSLError as error:
        reason = f": {error.reason.lower().replace('_', ' ')}" if error.reason else ""
        raise ConfigError(
            f"--tls-cert {certificate} and --tls-key {key} are no certificate and its private key in PEM{reason}"
        ) from None


def _is_worth_saying(record: logging.LogRecord, server: ConsoleServer) -> bool:
    """False for what an end brings about, and for what ``startup`` raises; a file that broke off is told without its
    traceback."""
    if isinstance(record.msg, OSError):
        server.refused = record.msg
        return False
    error = record.exc_info[1] if record.exc_info else None
    if server.should_exit and (
        isinstance(error, asyncio.CancelledError | ConsoleEnds) or str(record.msg).startswith(_CUT_OFF)
    ):
        return False
    if isinstance(error, ClientError):
        record.msg, record.args, record.exc_info = "a download broke off: %s", (error,), None
    return True
