"""The console's server: uvicorn's, which tells open streams and pages that it ends before it waits for them.

The rule: an end that was asked for prints nothing. What a browser does not take within ``GRACE_S`` is cut off; a file
that breaks off is one line on stderr, anything unexpected a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.applications import Starlette

from oncelog.client.errors import ClientError
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so; where that cannot be, uvicorn has said why."""
        await super().startup(sockets)
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
    """The server of a console, not started."""
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
    server = ConsoleServer(config)
    logging.getLogger(_LOGGER).addFilter(lambda record: _is_worth_saying(record, server.should_exit))
    return server


def _is_worth_saying(record: logging.LogRecord, is_ending: bool) -> bool:
    """False for what an end brings about; a file that broke off is told without its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if is_ending and (isinstance(error, asyncio.CancelledError | ConsoleEnds) or str(record.msg).startswith(_CUT_OFF)):
        return False
    if isinstance(error, ClientError):
        record.msg, record.args, record.exc_info = "a download broke off: %s", (error,), None
    return True
