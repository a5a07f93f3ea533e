"""The text of ``/metrics``, shared by all requests at about the same time.

Metrics take at most ``SHARE`` of the time, however often they are requested. Values are read on the loop, which owns
the node's state, a few families per turn; a thread renders them. After a text that took 10 ms of processor time the
next follows in 0.2 s; requests meanwhile wait for it, so that each gets values read after it arrived. Beyond
``PATIENCE_S`` they get the previous text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SHARE: Final = 0.05
"""Part of the time that metrics may take."""
PATIENCE_S: Final = 2.0
TURN_S: Final = 0.002
"""Processor time after which other work has its turn, at the next family."""


class _Collected(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def text_of(metrics: Sequence[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return generate_latest(registry)


class Snapshot:
    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        render: Callable[[Sequence[Metric]], bytes] = text_of,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """``spent_s`` returns the calling thread's processor time."""
        self._collect = collect
        self._render = render
        self._now_s = now_s
        self._spent_s = spent_s
        self._sleep = sleep
        self._text: bytes | None = None
        # Time from which the next text may be made.
        self._due_s = 0.0
        self._turn = asyncio.Lock()
        # The text to be made, until the first of its values is read.
        self._next: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Values read from now on, or the previous text if that would take too long."""
        if self._text is not None and self._due_s - self._now_s() > PATIENCE_S:
            return self._text
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._make())
        # Shielded: a caller that disconnects must not cancel it for the others.
        return await asyncio.shield(self._next)

    async def _make(self) -> bytes:
        async with self._turn:
            await self._sleep(max(0.0, self._due_s - self._now_s()))
            self._next = None
            metrics, collecting_s = await self._collected()
            text, rendering_s = await asyncio.to_thread(self._rendered, metrics)
            self._due_s = self._now_s() + (collecting_s + rendering_s) * (1 / SHARE - 1)
            self._text = text
            return text

    async def _collected(self) -> tuple[Sequence[Metric], float]:
        metrics = []
        total_s = 0.0
        began_s = self._spent_s()
        for metric in self._collect():
            metrics.append(metric)
            spent_s = self._spent_s() - began_s
            if spent_s >= TURN_S:
                total_s += spent_s
                await asyncio.sleep(0)
                began_s = self._spent_s()
        return metrics, total_s + self._spent_s() - began_s

    def _rendered(self, metrics: Sequence[Metric]) -> tuple[bytes, float]:
        began_s = self._spent_s()
        return self._render(metrics), self._spent_s() - began_s
