"""The cluster behind the console: a few workers, each with a client of its own, and an end to every waiting.

The rule: a page waits ``patience_s`` and no longer, and holds up no other page. A client is given back after each piece
of work; one whose work failed unexpectedly is thrown away, since nobody knows what is still on its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, LifoQueue
from typing import Any, Final, TypeVar

from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.query import BadQuery

T = TypeVar("T")
MOST_WAITING: Final = 64
_ENDING: Final = "the console is being ended; what was begun goes on to its end"
CLIENT_SETTINGS: Final = {
    "client.id": "oncelog-console",
    "bootstrap.timeout.ms": "500",
    "default.api.timeout.ms": "8000",
    "request.timeout.ms": "8000",
    "socket.connection.setup.timeout.ms": "3000",
    "unknown.topic.grace.ms": "300",
    "metadata.max.age.ms": "5000",
    "max.kept.bytes": str(4 * MIB + 64 * KIB),
}
"""Settings of the console's clients that the user's own win over: pages rather say that a cluster is slow than wait."""


class ClusterSlow(ClientError):
    """The cluster, or the console's own workers, did not get to it in time."""

    retriable = True


class ClusterAccess:
    """Runs work on clients in threads; used from one event loop."""

    def __init__(self, connect: Callable[[], Client], workers: int, patience_s: float) -> None:
        self._connect = connect
        self._patience_s = patience_s
        self._idle: LifoQueue[Client] = LifoQueue()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="oncelog-console")
        self._waiting = 0
        self._is_ending = False
        self._under_way: set[asyncio.Future[Any]] = set()
        self._changes: set[Future[Any]] = set()

    async def call(self, work: Callable[[Client], T], patience_s: float | None = None, *, is_change: bool = False) -> T:
        """The result of ``work``. Raises what it raises, and ClusterSlow; work that has begun then goes on unseen.
        ``is_change``: the console does not end before it is over."""
        if self._waiting >= MOST_WAITING:
            raise ClusterSlow(f"{self._waiting} requests wait for the cluster already")
        if self._is_ending:
            raise ClusterSlow(_ENDING)
        patience_s = self._patience_s if patience_s is None else patience_s
        self._waiting += 1
        running = self._pool.submit(self._run, work)
        if is_change:
            self._changes.add(running)
            running.add_done_callback(self._changes.discard)
        future = asyncio.wrap_future(running)
        self._under_way.add(future)
        try:
            return await asyncio.wait_for(future, patience_s)
        except TimeoutError:
            raise ClusterSlow(f"no answer from the cluster in {patience_s:g} s") from None
        except asyncio.CancelledError:
            if not self._is_ending:
                raise
            raise ClusterSlow(_ENDING) from None
        finally:
            self._under_way.discard(future)
            self._waiting -= 1

    def end(self) -> None:
        """Let nobody wait any longer, in the event loop; what has begun goes on to its end."""
        self._is_ending = True
        for future in self._under_way:
            future.cancel()

    def new_client(self) -> Client:
        """A client that is the caller's own, for what runs long."""
        return self._connect()

    def close(self) -> None:
        """Take no more work, wait for changes that have begun, and close the idle clients."""
        wait([*self._changes])
        self._pool.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _run(self, work: Callable[[Client], T]) -> T:
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = self._connect()
        try:
            result = work(client)
        except (ClientError, BadQuery):
            self._idle.put(client)
            raise
        except BaseException:
            client.close()
            raise
        self._idle.put(client)
        return result
