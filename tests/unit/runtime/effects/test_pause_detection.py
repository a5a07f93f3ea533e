"""How a process notices that it has stood still."""

from __future__ import annotations

import asyncio
import time

import pytest

from oncelog.runtime.effects.pause_detection import PauseWatch, clock_ns

SESSION_MS = 6_000
HALF_NS = SESSION_MS * 1_000_000 // 2


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.time_ns = 1_000


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def watch(clock, noticed):
    loop = asyncio.new_event_loop()
    watch = PauseWatch(loop, SESSION_MS, noticed.append, lambda: clock.time_ns)
    watch.start()
    yield watch
    watch.stop()
    loop.close()


def test_half_the_time_out_of_the_session_is_noticed_once(watch, clock, noticed):
    clock.time_ns += HALF_NS
    watch.check()
    assert not noticed, "the tree has heard of it later than that"
    clock.time_ns += HALF_NS + 1
    watch.check()
    watch.check()
    assert noticed == [SESSION_MS // 2]


def test_a_session_is_not_taken_for_longer_than_a_server_grants(clock, noticed):
    loop = asyncio.new_event_loop()
    watch = PauseWatch(loop, 600_000, noticed.append, lambda: clock.time_ns)
    clock.time_ns += 21_000_000_000
    watch.check()
    assert noticed == [21_000]
    loop.close()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that goes on in its sleep")
def test_the_clock_goes_on_while_the_machine_sleeps():
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= clock_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
