"""An HTTP server: uvicorn behind our acceptor, which reports when it is listening and ends in order.

A requested shutdown prints nothing; responses not read within ``GRACE_S`` are cut off. A failure of a client's request
is logged as one line on stderr, an unexpected error with its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn

from oncelog.base.notation.log_lines import LineFormatter
from oncelog.client.errors import ClientError, ConfigError
from oncelog.listening.acceptor import Acceptor
from oncelog.listening.addresses import bind, unbracketed
from oncelog.listening.waiting import Waiting
from oncelog.web.http_connection import HttpConnection, Idle, make_room

GRACE_S: Final = 1
_TURNS: Final = 5  # Loop iterations for closing cut connections: one that stays open would outlive its loop.
_LOGGER: Final = "uvicorn.error"
_CAUSED_BY_CLIENTS: Final = ("Invalid HTTP request received.", "Unsupported upgrade request.")
_CUT_OFF: Final = "Cancel %s running task(s)"


class HttpServer(uvicorn.Server):
    """``name`` is the server's in the log. ``on_end`` is called when the shutdown begins, so that open streams end."""

    def __init__(self, config: uvicorn.Config, name: str, on_end: Callable[[], object] = lambda: None) -> None:
        super().__init__(config)
        self.on_listening: Callable[[], object] = lambda: None
        """Called once, when clients can connect."""
        self.bound: list[socket.socket] | None = None
        """Sockets to listen on; bound by the server itself if None."""
        self._name = name
        self._on_end = on_end
        self._acceptor: Acceptor | None = None
        self._idle: Idle = Waiting()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then call ``on_listening``. Raises ClientError if the address cannot be used."""
        config = self.config
        if self.bound is None:
            self.bound = self._bind()
        await super().startup([])  # No sockets: the acceptor listens instead of uvicorn.
        self._acceptor = Acceptor(
            self._name, self.bound, self._connection, make_room=partial(make_room, self._idle), tls=config.ssl
        )
        self._acceptor.listen(config.backlog)
        self._acceptor.start()
        self.on_listening()

    def _bind(self) -> list[socket.socket]:
        config = self.config
        try:
            return list(bind(unbracketed(config.host), config.port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            host = f"[{config.host}]" if ":" in config.host else config.host
            raise ClientError(
                f"cannot listen on {host}:{config.port}: {reason}; choose another address with --listen"
            ) from None

    def _connection(self) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state, self._idle)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        if self._acceptor is not None:
            self._acceptor.close()
        await super().shutdown([])
        for connection in list(
            self.server_state.connections
        ):  # A TLS close waits for the client's close_notify, which may never come.
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def server_config(
    app: Any, host: str, port: int, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """The configuration of a server. Raises ConfigError for an unusable certificate."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
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
    if certificate is not None and key is not None:
        _load_certificate(config, certificate, key)
    return config


def log_failures(server: HttpServer, ended: tuple[type[BaseException], ...] = ()) -> None:
    """Filter uvicorn's log. ``ended`` are errors of streams that a shutdown ends."""
    for handler in logging.getLogger("uvicorn").handlers:
        handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    logging.getLogger(_LOGGER).addFilter(lambda record: _is_worth_logging(record, server, ended))


def _load_certificate(config: uvicorn.Config, certificate: Path, key: Path) -> None:
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


def _is_worth_logging(record: logging.LogRecord, server: HttpServer, ended: tuple[type[BaseException], ...]) -> bool:
    """False for records caused by a shutdown or a malformed request. An interrupted download is logged without its
    traceback."""
    if record.msg in _CAUSED_BY_CLIENTS:
        return False
    error = record.exc_info[1] if record.exc_info else None
    is_ended = isinstance(error, (asyncio.CancelledError, *ended))
    if server.should_exit and (is_ended or str(record.msg).startswith(_CUT_OFF)):
        return False
    if isinstance(error, ClientError):
        record.msg, record.args, record.exc_info = "a download was interrupted: %s", (error,), None
    return True
