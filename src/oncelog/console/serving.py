"""The console's server: a uvicorn server that tells open streams and pages before it shuts down.

A requested shutdown prints nothing; responses not read within ``GRACE_S`` are cut off. An interrupted download is
logged as one line on stderr, an unexpected error with its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import uvicorn
from starlette.applications import Starlette

from oncelog.base.notation.log_lines import LineFormatter
from oncelog.client.errors import ClientError, ConfigError
from oncelog.console.http_connection import HttpConnection, Idle, make_room
from oncelog.console.settings import Settings
from oncelog.console.streaming.pump import ConsoleEnds
from oncelog.listening.acceptor import Acceptor
from oncelog.listening.addresses import bind, unbracketed
from oncelog.listening.waiting import Waiting

GRACE_S: Final = 1
_TURNS: Final = 5  # Loop iterations for closing cut connections: one that stays open would outlive its loop.
_LOGGER: Final = "uvicorn.error"
_CAUSED_BY_CLIENTS: Final = ("Invalid HTTP request received.", "Unsupported upgrade request.")
_CUT_OFF: Final = "Cancel %s running task(s)"


class ConsoleServer(uvicorn.Server):
    """A server that reports when it is listening, and shuts down in order."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_listening: Callable[[], object] = lambda: None
        """Called once, when browsers can connect."""
        self._acceptor: Acceptor | None = None
        self._idle: Idle = Waiting()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then call ``on_listening``. Raises ClientError if the address cannot be used."""
        config = self.config
        try:
            bound = bind(unbracketed(config.host), config.port)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            host = f"[{config.host}]" if ":" in config.host else config.host
            raise ClientError(
                f"cannot listen on {host}:{config.port}: {reason}; choose another address with --listen"
            ) from None
        await super().startup([])  # No sockets: the acceptor listens instead of uvicorn.
        self._acceptor = Acceptor(
            "the console", bound, self._connection, make_room=partial(make_room, self._idle), tls=config.ssl
        )
        self._acceptor.listen(config.backlog)
        self._acceptor.start()
        self.on_listening()

    def _connection(self) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state, self._idle)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        if isinstance(app, Starlette):
            app.state.end()
        if self._acceptor is not None:
            self._acceptor.close()
        await super().shutdown([])
        for connection in list(
            self.server_state.connections
        ):  # A TLS close waits for the browser's close_notify, which may never come.
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def server_of(app: Starlette, settings: Settings) -> ConsoleServer:
    """The server of a console, not started. Raises ConfigError for an unusable certificate."""
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
        http="h11",
        h11_max_incomplete_event_size=64 * 1024,
    )
    if settings.has_tls:
        _load_certificate(config, settings)
    server = ConsoleServer(config)
    for handler in logging.getLogger("uvicorn").handlers:
        handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    logging.getLogger(_LOGGER).addFilter(lambda record: _is_worth_logging(record, server))
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
            f"--tls-cert {certificate} and --tls-key {key} are not a PEM certificate and its private key{reason}"
        ) from None


def _is_worth_logging(record: logging.LogRecord, server: ConsoleServer) -> bool:
    """False for records caused by a shutdown or a malformed request. An interrupted download is logged without its
    traceback."""
    if record.msg in _CAUSED_BY_CLIENTS:
        return False
    error = record.exc_info[1] if record.exc_info else None
    if server.should_exit and (
        isinstance(error, asyncio.CancelledError | ConsoleEnds) or str(record.msg).startswith(_CUT_OFF)
    ):
        return False
    if isinstance(error, ClientError):
        record.msg, record.args, record.exc_info = "a download was interrupted: %s", (error,), None
    return True
