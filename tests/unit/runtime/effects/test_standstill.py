"""How a process notices that it has stood still."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.runtime.effects.standstill import StandstillWatch

SESSION_MS = 6_000


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        """As set."""
        return self.time_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def watch(clock, noticed):
    loop = asyncio.new_event_loop()
    watch = StandstillWatch(loop, clock, SESSION_MS, lambda: noticed.append(clock.time_ms))
    watch.start()
    yield watch
    watch.stop()
    loop.close()


def test_a_request_after_half_the_time_out_of_the_session_shows_it_once(watch, clock, noticed):
    clock.time_ms += SESSION_MS // 2
    watch.look(clock.now_ms())
    assert not noticed, "the tree has heard of it later than that"
    clock.time_ms += SESSION_MS // 2 + 1
    watch.look(clock.now_ms())
    watch.look(clock.now_ms())
    assert noticed == [clock.time_ms]


def test_a_clock_that_was_moved_ahead_is_no_standstill(watch, clock, noticed):
    clock.time_ms += 10 * SESSION_MS
    watch.clock_jumped()
    watch.look(clock.now_ms())
    assert not noticed


def test_it_shows_without_requests_too(watch, clock, noticed):
    clock.time_ms += 10 * SESSION_MS
    watch.start()
    assert noticed == [clock.time_ms]
