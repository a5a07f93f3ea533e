"""A browser's connection to the console: uvicorn's, with an end to what makes no progress, and a place for others.

State of a connection   ends after                                           makes room for another
----------------------  ---------------------------------------------------  ----------------------
a head is awaited       ``HEAD_S``, or the pause between requests (30 s)     yes
a request is worked on  never here: pages and forms have their own patience  no
an answer is not taken  ``STALLED_S`` without progress                       yes

At most ``MOST_CONNECTIONS`` are open. Beyond, the oldest of the address that has most of those that may go is closed,
so slow and idle connections keep nobody out.
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
MOST_CONNECTIONS: Final = 200
_LEAVING: Final = 16
"""Connections that were closed for others in one turn of the loop: they are counted until the next."""

Idle = Waiting["HttpConnection"]
"""Connections that may go."""


class HttpConnection(H11Protocol):
    """One connection; ``idle`` has those of all."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], idle: Idle) -> None:
        super().__init__(config, server_state, app_state)
        self._idle = idle
        self._head_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """asyncio: the browser is there."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            make_room(self._idle)
        if len(self.connections) > MOST_CONNECTIONS + _LEAVING:
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the browser has gone."""
        self._idle.discard(self)
        for timer in (self._head_timer, self._stalled_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """asyncio: some bytes have arrived."""
        super().data_received(data)
        if self._is_working():
            self._work()
        elif self._head_timer is None:
            self._await_head()

    def on_response_complete(self) -> None:
        """uvicorn: an answer is written."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._is_working():
            self._idle.add(self, self._source)
        if self.transport.get_write_buffer_size():
            self._await_progress()

    def pause_writing(self) -> None:
        """asyncio: the browser reads slowly."""
        super().pause_writing()
        self._idle.add(self, self._source)
        self._await_progress()

    def resume_writing(self) -> None:
        """asyncio: the browser has caught up."""
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
        self._stalled_timer = self.loop.call_later(STALLED_S, self._look_for_progress, self._unsent())

    def _look_for_progress(self, before: int) -> None:
        unsent = self._unsent()
        if unsent and unsent >= before:
            self.abort()
        elif unsent:
            self._await_progress()

    def _unsent(self) -> int:
        return int(self.transport.get_write_buffer_size())


def make_room(idle: Idle) -> None:
    oldest = idle.next_to_displace()
    if oldest is not None:
        oldest.abort()
