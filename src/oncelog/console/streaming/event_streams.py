"""Streams of server-sent events: searches with their progress, and live tails, each on a client and thread of its own.

The rules: a stream ends when its page does, and is told when the console ends, without "done": the page's browser asks
again until the console is back. At most ``MOST_STREAMS`` run at once; what a browser does not take in time
is waited for, so that nothing is gathered here. A tail that falls behind skips nothing, it is only late.
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
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery
from oncelog.console.streaming.pump import ConsoleEnds, Farewell, Stopped, pumped

MOST_STREAMS: Final = 6
_AHEAD: Final = 50


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the template's block it is shown by is its name."""

    name: str
    values: Mapping[str, Any]


Source = Callable[[Client, Asked, Stopped], Iterator[Event]]


class Streams:
    """Answers requests for streams."""

    def __init__(
        self,
        cluster: ClusterAccess,
        templates: Environment,
        asked_by: Callable[[Request], Asked],
        farewell: Farewell,
    ) -> None:
        self._farewell = farewell
        self._asked_by = asked_by
        self._cluster = cluster
        self._templates = templates
        self._pool = ThreadPoolExecutor(MOST_STREAMS, thread_name_prefix="oncelog-console-stream")
        self._running = 0

    def endpoint(self, source: Source) -> Callable[[Request], Any]:

        async def answer(request: Request) -> Response:
            return StreamingResponse(
                self._events(source, self._asked_by(request)),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )

        return answer

    def close(self) -> None:
        """Take no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _events(self, source: Source, asked: Asked) -> AsyncIterator[bytes]:
        if self._running >= MOST_STREAMS:
            yield self._text(Event("failed", {"reason": f"{self._running} searches and tails run already; end one"}))
            yield self._text(Event("done", {}))
            return

        def made(stopped: Stopped) -> Generator[Event, None, None]:
            try:
                with self._cluster.new_client() as client:
                    yield from source(client, asked, stopped)
            except (ClientError, BadQuery) as error:
                yield Event("failed", {"reason": str(error)})
            finally:
                if not stopped():
                    yield Event("done", {})

        self._running += 1
        try:
            async for event in pumped(self._pool, made, _AHEAD, self._ended, self._farewell):
                yield b": alive\n\n" if event is None else self._text(event)
        except ConsoleEnds as error:
            yield self._text(Event("state", {"text": f"{error}; this goes on when it is back"}))

    def _ended(self) -> None:
        self._running -= 1

    def _text(self, event: Event) -> bytes:
        """An event as the wire has it: HTML, in lines (``shown`` has left no other ends of lines in it)."""
        html = self._templates.get_template("messages-events.html").render(event=event.name, **event.values)
        lines = "".join(f"data: {line}\n" for line in html.replace("\r", "").split("\n"))
        return f"event: {event.name}\n{lines}\n".encode()
