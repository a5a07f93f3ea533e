"""Streams of server-sent events: searches with progress, and live tails, each with its own client and thread.

A stream ends when its page closes. At the console's shutdown it ends without "done", so the browser reconnects until
the console is back. At most ``MAX_STREAMS`` run at once. A slow browser slows its stream down; nothing accumulates
here, and a tail that falls behind skips nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.cluster.access import ClusterAccess
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery
from oncelog.console.streaming.pump import ConsoleEnds, Shutdown, Stopped, pumped

MAX_STREAMS: Final = 6
_AHEAD: Final = 50


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Its name is that of the template block that renders it."""

    name: str
    values: Mapping[str, Any]


Source = Callable[[Client, PageRequest, Stopped], Iterator[Event]]


class Streams:
    def __init__(
        self,
        cluster: ClusterAccess,
        templates: Environment,
        page_request_of: Callable[[Request], PageRequest],
        shutdown_signal: Shutdown,
    ) -> None:
        self._shutdown_signal = shutdown_signal
        self._page_request_of = page_request_of
        self._cluster = cluster
        self._templates = templates
        self._pool = ThreadPoolExecutor(MAX_STREAMS, thread_name_prefix="oncelog-console-stream")
        self._running = 0

    def endpoint(self, source: Source) -> Callable[[Request], Any]:

        async def answer(request: Request) -> Response:
            return StreamingResponse(
                self._events(source, self._page_request_of(request)),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )

        return answer

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _events(self, source: Source, page_request: PageRequest) -> AsyncIterator[bytes]:
        if self._running >= MAX_STREAMS:
            yield self._text(
                Event("failed", {"reason": f"{self._running} searches and tails are already running; close one"})
            )
            yield self._text(Event("done", {}))
            return

        def made(stopped: Stopped) -> Generator[Event, None, None]:
            try:
                with self._cluster.new_client() as client:
                    yield from source(client, page_request, stopped)
            except (ClientError, BadQuery) as error:
                yield Event("failed", {"reason": str(error)})
            finally:
                if not stopped():
                    yield Event("done", {})

        self._running += 1
        try:
            async for event in pumped(self._pool, made, _AHEAD, self._ended, self._shutdown_signal):
                yield b": alive\n\n" if event is None else self._text(event)
        except ConsoleEnds as error:
            yield self._text(Event("state", {"text": f"{error}; this continues when it is back"}))

    def _ended(self) -> None:
        self._running -= 1

    def _text(self, event: Event) -> bytes:
        """An event in wire format: HTML in ``data:`` lines. ``shown`` has left no other line separators in it."""
        html = self._templates.get_template("messages-events.html").render(event=event.name, **event.values)
        lines = "".join(f"data: {line}\n" for line in html.replace("\r", "").split("\n"))
        return f"event: {event.name}\n{lines}\n".encode()
