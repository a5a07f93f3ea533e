"""Stop signals interrupt, but not between steps that belong together."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from oncelog.runtime.stop_signals import interrupt_at_stop_signals, stop_signals, stop_signals_deferred


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    interrupt_at_stop_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupted(*numbers: signal.Signals, failure: Exception | None = None) -> list[str]:
    """The steps of a block in which signals come after the first step, until KeyboardInterrupt."""
    steps = ["first"]
    try:
        with stop_signals_deferred():
            for number in numbers:
                signal.raise_signal(number)
            if failure is not None:
                raise failure
            steps.append("second")
        steps.append("no interrupt")
    except KeyboardInterrupt:
        pass
    return steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_within_the_block_interrupts_at_its_end(number: signal.Signals) -> None:
    assert number in stop_signals()
    assert interrupted(number) == ["first", "second"]
    assert interrupted() == ["first", "second", "no interrupt"]


def test_a_second_signal_interrupts_the_block() -> None:
    assert interrupted(signal.SIGINT, signal.SIGTERM) == ["first"]


def test_a_terminal_that_closes_signals_twice_and_interrupts_once() -> None:
    assert interrupted(signal.SIGHUP, signal.SIGHUP) == ["first", "second"]


def test_outside_of_the_block_and_for_its_failure_nothing_is_deferred() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(OSError, match="disk"):
        interrupted(signal.SIGINT, failure=OSError("disk is full"))
