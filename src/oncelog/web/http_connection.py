"""An HTTP connection: uvicorn's, with timeouts for connections that make no progress and a limit on their number.

State of a connection      closed after                                          may be evicted
-------------------------  ----------------------------------------------------  --------------
waiting for a head         ``HEAD_S``, or the pause between requests (30 s)      yes
processing a request       never here: applications have their own limits         no
sending, peer not reading  ``STALLED_S`` without progress                        yes

Beyond ``MAX_CONNECTIONS``, the oldest evictable connection is closed, of the address that has the most of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from oncelog.listening.waiting import Waiting, source_of

HEAD_S: Final = 10.0
STALLED_S: Final = 60.0
MAX_CONNECTIONS: Final = 200
_LEAVING: Final = 16
"""Connections evicted in one iteration of the loop; they are still counted until the next."""

Idle = Waiting["HttpConnection"]
"""Connections that may be evicted."""


class HttpConnection(H11Protocol):
    """One connection. ``idle`` holds the evictable connections of the whole server."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], idle: Idle) -> None:
        super().__init__(config, server_state, app_state)
        self._idle = idle
        self._head_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            make_room(self._idle)
        if len(self.connections) > MAX_CONNECTIONS + _LEAVING:
            # Evicted connections are still counted; this bounds them too.
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.discard(self)
        for timer in (self._head_timer, self._stalled_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_working():
            self._work()
        elif self._head_timer is None:
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or not self._is_working():
            self._idle.add(self, self._source)
        if self.transport.get_write_buffer_size():
            self._await_progress()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._idle.add(self, self._source)
        self._await_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_working():
            self._idle.discard(self)
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None

    def abort(self) -> None:
        self._idle.discard(self)
        self.transport.abort()

    @property
    def _source(self) -> str:
        return source_of(self.client[0] if self.client else "")

    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._idle.add(self, self._source)
        self._head_timer = self.loop.call_later(HEAD_S, self.abort)

    def _work(self) -> None:
        self._idle.discard(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_progress(self) -> None:
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
        self._stalled_timer = self.loop.call_later(STALLED_S, self._check_progress, self._unsent())

    def _check_progress(self, before: int) -> None:
        unsent = self._unsent()
        if unsent and unsent >= before:
            self.abort()
        elif unsent:
            self._await_progress()

    def _unsent(self) -> int:
        return int(self.transport.get_write_buffer_size())


def make_room(idle: Idle) -> None:
    connection = idle.next_to_displace()
    if connection is not None:
        connection.abort()
