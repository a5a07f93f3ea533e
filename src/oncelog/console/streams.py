"""Streams of server-sent events: searches with their progress, and live tails, each on a client and thread of its own.

The rules: a stream ends when its page does; at most ``MOST_STREAMS`` run at once; what a browser does not take in time
is waited for, so that nothing is gathered here. A tail that falls behind skips nothing, it is only late.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import LATEST, Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.console.cluster_access import ClusterAccess
from oncelog.console.pages.messages import hit_of, progress_of, search_of
from oncelog.console.query import BadQuery, Query
from oncelog.console.search import Hit, Progress, search
from oncelog.records.record import Record

MOST_STREAMS: Final = 6
_POLL_MS: Final = 500
_ALIVE_S: Final = 15.0
_AHEAD: Final = 50
TAIL_ROWS: Final = 100
"""Records of one answer that a tail shows; of more it says how many were left out."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the template's block it is shown by is its name."""

    name: str
    values: Mapping[str, Any]


Stopped = Callable[[], bool]
Source = Callable[[Client, Query, Stopped], Iterator[Event]]


class Streams:
    """Answers requests for streams."""

    def __init__(self, cluster: ClusterAccess, templates: Environment) -> None:
        self._cluster = cluster
        self._templates = templates
        self._pool = ThreadPoolExecutor(MOST_STREAMS, thread_name_prefix="oncelog-console-stream")
        self._running = 0

    def endpoint(self, source: Source) -> Callable[[Request], Any]:
        """The endpoint of a source."""

        async def answer(request: Request) -> Response:
            return StreamingResponse(
                self._events(source, Query(request.query_params)),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )

        return answer

    def close(self) -> None:
        """Take no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _events(self, source: Source, query: Query) -> AsyncIterator[bytes]:
        if self._running >= MOST_STREAMS:
            yield self._text(Event("failed", {"reason": f"{self._running} searches and tails run already; end one"}))
            yield self._text(Event("done", {}))
            return
        loop, stop = asyncio.get_running_loop(), threading.Event()
        queue: asyncio.Queue[Event] = asyncio.Queue(_AHEAD)

        def put(event: Event) -> None:
            if stop.is_set():
                return
            waiting = asyncio.run_coroutine_threadsafe(queue.put(event), loop)
            while not waiting.done() and not stop.is_set():
                wait([waiting], 0.2)
            waiting.cancel()

        def run() -> None:
            try:
                with self._cluster.new_client() as client:
                    for event in source(client, query, stop.is_set):
                        put(event)
            except (ClientError, BadQuery) as error:
                put(Event("failed", {"reason": str(error)}))
            finally:
                put(Event("done", {}))

        self._running += 1
        running = loop.run_in_executor(self._pool, run)
        running.add_done_callback(self._ended)
        try:
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), _ALIVE_S)
                except TimeoutError:
                    yield b": alive\n\n"
                    continue
                yield self._text(event)
                if event.name == "done":
                    return
        finally:
            stop.set()

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()

    def _text(self, event: Event) -> bytes:
        """An event as the wire has it: HTML, in lines (``shown`` has left no other ends of lines in it)."""
        html = self._templates.get_template("messages-events.html").render(event=event.name, **event.values)
        lines = "".join(f"data: {line}\n" for line in html.replace("\r", "").split("\n"))
        return f"event: {event.name}\n{lines}\n".encode()


def searching(client: Client, query: Query, stopped: Stopped) -> Iterator[Event]:
    """A search, as an address names it."""
    for found in search(client, *search_of(client, query), stopped):
        if isinstance(found, Progress):
            yield Event("progress", {"progress": progress_of(found), "query": query.values})
        else:
            yield Event("hit", {"hit": hit_of(found)})


def tailing(client: Client, query: Query, stopped: Stopped) -> Iterator[Event]:
    """What is written to a topic from now on, committed or not."""
    there = client.topic(query.needed("topic")).partitions
    chosen = [TopicPartition(TopicName(query.text("topic")), one) for one in there]
    positions = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, LATEST)).items()}
    fetcher = Fetcher(client, FetchSettings(max_wait_ms=_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB))
    yield Event("state", {"text": f"waiting for records in {len(chosen)} partitions"})
    try:
        fetcher.assign(positions)
        while not stopped():
            for fetched in fetcher.poll(_POLL_MS):
                if fetched.error_code:
                    raise ClientError(f"{fetched.partition} cannot be read any more: error {fetched.error_code}")
                count = 0
                for one in read_fetched(fetched):
                    count += 1
                    if count <= TAIL_ROWS:
                        record = Record(one.offset, one.timestamp, one.key, one.value, one.headers)
                        yield Event("hit", {"hit": hit_of(Hit(fetched.partition, record, False))})
                if count > TAIL_ROWS:
                    left_out = count - TAIL_ROWS
                    yield Event("state", {"text": f"{left_out} more records of {fetched.partition} are not shown"})
    finally:
        fetcher.close()
