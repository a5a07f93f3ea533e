"""Wrong passwords wait, each address for itself, and not for ever."""

from __future__ import annotations

import asyncio

from oncelog.web.attempts import (
    FORGOTTEN_S,
    FREE,
    MAX_FAILURES,
    MAX_SOURCES,
    MAX_WAITING,
    MAX_WAITING_TOTAL,
    PAUSE_S,
    Attempts,
)


class World:
    """Attempts, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self.is_over = asyncio.Event()
        self.attempts = Attempts(lambda: self.now_s, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.is_over.wait()

    def wrong(self, source: str, times: int = FREE) -> None:
        for _ in range(times):
            self.attempts.count_failure(source)


def test_a_few_wrong_attempts_cost_nothing_and_more_have_their_turn_one_after_the_other() -> None:
    async def scenario() -> None:
        world = World()
        world.wrong("a", FREE - 1)
        assert await world.attempts.wait_turn("a")
        world.wrong("a", 1)
        waiting = [asyncio.create_task(world.attempts.wait_turn("a")) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        assert world.slept == [number * PAUSE_S for number in range(MAX_WAITING)]
        assert not await world.attempts.wait_turn("a"), "too many wait"
        assert await world.attempts.wait_turn("b"), "another address"
        world.is_over.set()
        assert all(await asyncio.gather(*waiting))
        world.now_s = 1.0
        assert await world.attempts.wait_turn("a")
        assert world.slept[-1] == MAX_WAITING * PAUSE_S - 1.0

    asyncio.run(scenario())


def test_wrong_attempts_are_forgotten() -> None:
    async def scenario() -> None:
        world = World()
        world.is_over.set()
        world.wrong("a", 1000)
        world.now_s = (MAX_FAILURES - FREE) * FORGOTTEN_S
        assert await world.attempts.wait_turn("a")
        assert world.slept == [0.0]
        world.now_s += FORGOTTEN_S
        assert await world.attempts.wait_turn("a")
        assert len(world.slept) == 1

    asyncio.run(scenario())


def test_all_that_wait_and_all_that_is_remembered_are_bounded() -> None:
    async def scenario() -> None:
        world = World()
        sources = [f"source {number}" for number in range(MAX_WAITING_TOTAL + 1)]
        for source in sources:
            world.wrong(source)
        waiting = [asyncio.create_task(world.attempts.wait_turn(source)) for source in sources[:-1]]
        await asyncio.sleep(0)
        assert not await world.attempts.wait_turn(sources[-1])
        world.is_over.set()
        await asyncio.gather(*waiting)
        for number in range(MAX_SOURCES):
            world.attempts.count_failure(f"other {number}")
        assert len(world.attempts._sources) == MAX_SOURCES
        slept = len(world.slept)
        assert await world.attempts.wait_turn(sources[0])
        assert len(world.slept) == slept

    asyncio.run(scenario())
