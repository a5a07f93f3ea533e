"""How a process notices that it has stood still."""

from __future__ import annotations

import asyncio
import time

import pytest

from oncelog.runtime.effects.pause_detection import PauseWatch, clock_ns

LONGEST_MS = 3_000


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
    watch = PauseWatch(loop, lambda: LONGEST_MS, noticed.append, lambda: clock.time_ns)
    watch.start()
    yield watch
    watch.stop()
    loop.close()


def test_a_longer_pause_is_noticed_once(watch, clock, noticed):
    clock.time_ns += LONGEST_MS * 1_000_000
    watch.check()
    assert not noticed
    clock.time_ns += LONGEST_MS * 1_000_000 + 1_000_000
    watch.check()
    watch.check()
    assert noticed == [LONGEST_MS + 1]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that goes on in its sleep")
def test_the_clock_goes_on_while_the_machine_sleeps():
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= clock_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
