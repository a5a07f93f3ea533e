"""Interrupts of programs under the blocking driver: locks are free, and everything is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from oncelog.client.blocking.driver import ThreadLock
from oncelog.client.programs.steps import Acquire, Program, Sleep, parallel
from oncelog.wire.messages.list_groups import ListGroupsRequest
from tests.unit.client.programs.fake_brokers import BlockingRunner, FakeBrokers


@pytest.fixture
def runner() -> BlockingRunner:
    return BlockingRunner(FakeBrokers())


class InterruptedLock(ThreadLock):
    """Interrupts its driver once it has been granted, as a signal may do at any place."""

    holder = property(lambda self: self._holder, lambda self, holder: self._grant(holder))  # type: ignore[assignment]
    _holder: object = None
    _interrupts = True

    def _grant(self, holder: object) -> None:
        self._holder = holder
        if holder is not None and self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt


def holding(lock: ThreadLock, then: Callable[[], Program[None]]) -> Program[None]:
    yield Acquire(lock)
    try:
        yield from then()
    finally:
        lock.release()


def pause() -> Program[None]:
    yield Sleep(10)


def interrupt(milliseconds: int = 10) -> Program[None]:
    yield Sleep(milliseconds)
    raise KeyboardInterrupt


def test_a_lock_granted_to_a_program_that_has_not_resumed_is_free_after_an_interrupt(runner: BlockingRunner) -> None:
    lock = cast("ThreadLock", runner.cluster.environment.lock())
    with pytest.raises(KeyboardInterrupt):  # in the turn before the one in which the second program would go on
        runner.run(parallel([interrupt(0), holding(lock, pause)]))
    runner.run(parallel([holding(lock, pause), holding(lock, pause)]))
    assert runner.now_ms() == 20


@pytest.mark.parametrize("count", [1, 2])
def test_a_lock_is_free_after_an_interrupt_of_its_grant(runner: BlockingRunner, count: int) -> None:
    lock = InterruptedLock()
    with pytest.raises(KeyboardInterrupt):
        runner.run(parallel(holding(lock, pause) for _ in range(count)))
    assert lock.holder is None


def test_a_lock_that_no_program_releases_is_an_error(runner: BlockingRunner) -> None:
    lock = cast("ThreadLock", runner.cluster.environment.lock())
    lock.holder = "a program of nobody"
    with pytest.raises(RuntimeError, match="wait for a lock"):
        runner.run(parallel([holding(lock, pause), holding(lock, pause)]))
    assert lock.holder == "a program of nobody"


def test_a_program_that_cannot_be_closed_keeps_no_other_open(runner: BlockingRunner) -> None:
    runner.run(runner.cluster.refresh_brokers())
    runner.brokers.answers[ListGroupsRequest] = lambda *_: None
    closed: list[str] = []

    def stubborn() -> Program[None]:
        try:
            yield Sleep(100)
        finally:
            raise OSError("it cannot be closed")

    def asking(broker: int) -> Program[None]:
        try:
            yield from runner.cluster.request(ListGroupsRequest(), broker=broker)
        finally:
            closed.append(f"program {broker}")

    programs = [asking(1), stubborn(), asking(2), interrupt()]
    with pytest.raises(OSError, match="it cannot be closed"):
        runner.run(parallel(programs))
    assert sorted(closed) == ["program 1", "program 2"]
    assert [link.is_open for broker, link in runner.cluster.links.items() if broker != "any"] == [False, False]
