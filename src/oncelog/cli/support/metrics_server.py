"""Serves Prometheus metrics from a command, on a thread with its own event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from typing import Protocol

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from oncelog.client.errors import ClientError
from oncelog.node.listeners.broker_settings import is_loopback
from oncelog.runtime.metrics.http import HttpEndpoint, Page
from oncelog.runtime.metrics.snapshot import Snapshot


class Collecting(Protocol):
    def collect(self) -> Iterable[Metric]:
        """Called on the server's thread."""


class MetricsServer:
    """Serves what ``collector`` yields until ``close``. Raises ClientError for an address in use."""

    def __init__(self, collector: Collecting, address: str, port: int) -> None:
        self._snapshot = Snapshot(collector.collect)
        # An address beyond loopback is reached by names that this command does not know.
        names = {socket.gethostname().lower()} if is_loopback(address) else None
        self._endpoint = HttpEndpoint({"/metrics": self._page, "/": self._page}, names=names)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oncelog-metrics", daemon=True)
        self._thread.start()
        # The caller's thread may run a loop of its own.
        starting = asyncio.run_coroutine_threadsafe(self._endpoint.start(address, port), self._loop)
        try:
            _, self.port = starting.result()
        except OSError as error:
            self._end_loop()
            raise ClientError(f"cannot serve metrics on {address}:{port}: {error.strerror or error}") from None

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self._endpoint.stop()
        await self._loop.shutdown_default_executor()
        others = asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task is not None}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _page(self) -> Page:
        return 200, CONTENT_TYPE_LATEST, await self._snapshot.text()
