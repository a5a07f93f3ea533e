"""Metrics take a twentieth of the time, however often they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from oncelog.runtime.metrics.snapshot import PATIENCE_S, TURN_S, Snapshot


class Source:
    """Metrics whose collection and rendering take so much processor time."""

    def __init__(self, *, each_s: float = 0.0, rendering_s: float = 0.0) -> None:
        self.now_s = self.spent_s = 0.0
        self.collected = self.rendered = 0
        self._each_s, self._rendering_s = each_s, rendering_s
        self.snapshot = Snapshot(self.collect, self.render, lambda: self.now_s, lambda: self.spent_s, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def collect(self) -> Iterator[Metric]:
        self.collected += 1
        for number in range(4):
            self.spent_s += self._each_s
            yield GaugeMetricFamily(f"m{number}", "A number.", value=self.collected)

    def render(self, metrics: Sequence[Metric]) -> bytes:
        self.rendered += 1
        self.spent_s += self._rendering_s
        return f"{len(metrics)} metrics, {self.rendered}".encode()


def test_values_are_read_after_they_are_asked_for_and_a_twentieth_of_the_time() -> None:
    async def scenario() -> None:
        source = Source(each_s=0.001, rendering_s=0.006)
        for number in range(1, 6):
            assert await source.snapshot.text() == b"4 metrics, %d" % number
        assert source.now_s == pytest.approx(4 * 0.19)
        source.now_s += 100
        assert await source.snapshot.text() == b"4 metrics, 6"
        assert source.now_s == pytest.approx(4 * 0.19 + 100)

    asyncio.run(scenario())


def test_where_the_next_text_is_far_away_the_last_one_is_served() -> None:
    async def scenario() -> None:
        source = Source(rendering_s=0.2)
        assert await source.snapshot.text() == b"4 metrics, 1"
        assert await source.snapshot.text() == b"4 metrics, 1"
        source.now_s = 0.2 * 19 - PATIENCE_S
        assert await source.snapshot.text() == b"4 metrics, 2"
        assert source.now_s == pytest.approx(0.2 * 19)

    asyncio.run(scenario())


def test_all_who_ask_at_once_share_one_text_and_one_who_leaves_does_not_end_it() -> None:
    async def scenario() -> None:
        source = Source()
        asking = [asyncio.create_task(source.snapshot.text()) for _ in range(8)]
        await asyncio.sleep(0)
        asking.pop(0).cancel()
        assert await asyncio.gather(*asking) == [b"4 metrics, 1"] * 7
        assert source.collected == 1

    asyncio.run(scenario())


def test_one_who_asks_while_values_are_read_gets_the_next_text() -> None:
    async def scenario() -> None:
        source = Source(each_s=TURN_S)
        first = asyncio.create_task(source.snapshot.text())
        while source.collected == 0:
            await asyncio.sleep(0)
        second = asyncio.create_task(source.snapshot.text())
        assert [await first, await second] == [b"4 metrics, 1", b"4 metrics, 2"]

    asyncio.run(scenario())


def test_others_have_their_turn_between_two_families() -> None:
    async def scenario() -> None:
        source = Source(each_s=TURN_S)
        turns = 0
        making = asyncio.create_task(source.snapshot.text())
        while source.rendered == 0:
            turns += 1
            await asyncio.sleep(0)
        await making
        assert turns >= 4

    asyncio.run(scenario())


def test_a_failure_is_told_to_who_asked_and_the_next_begins_anew() -> None:
    def fails() -> Iterator[Metric]:
        raise ZeroDivisionError
        yield

    async def scenario() -> None:
        snapshot = Snapshot(fails, lambda _metrics: b"")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await snapshot.text()

    asyncio.run(scenario())
