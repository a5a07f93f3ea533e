"""Access to the cluster: a few worker threads, each with its own client, and a time limit for every request.

A page waits at most ``patience_s`` and blocks no other page. After an unexpected failure a client is closed, because
its connections may hold unread responses.
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
MAX_WAITING: Final = 64
_ENDING: Final = "the console is shutting down; work in progress continues to its end"
# Defaults of the console's clients; the user's settings override them. A page should report a slow cluster rather than
# wait for it.
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


class ClusterSlow(ClientError):
    """The cluster, or a free worker of the console, was not available in time."""

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
        """The result of ``work``. Raises its errors, and ClusterSlow, after which work in progress continues
        unobserved. With ``is_change`` the console does not shut down before the work is done."""
        if self._waiting >= MAX_WAITING:
            raise ClusterSlow(f"{self._waiting} requests are already waiting for the cluster; try again later")
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
        """Release everything that waits in the event loop; work in progress continues to its end."""
        self._is_ending = True
        for future in self._under_way:
            future.cancel()

    def new_client(self) -> Client:
        """A client that belongs to the caller, for long-running work."""
        return self._connect()

    def close(self) -> None:
        """Wait for changes in progress, stop accepting work, and close the idle clients."""
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
