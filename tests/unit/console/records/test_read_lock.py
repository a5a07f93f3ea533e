"""Turns at reading records: one after another, in order, and none while nothing of an answer has come."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from oncelog.client.blocking.fetcher import Fetcher
from oncelog.console.records import read_lock as one_at_a_time
from oncelog.console.records.read_lock import FairLock, read_locked
from tests.waiting import HANG_S, wait_until


def test_turns_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order = FairLock(), list[int]()
    inside = 0

    def one(number: int) -> None:
        nonlocal inside
        with turns.held():
            inside += 1
            assert inside == 1
            order.append(number)
            inside -= 1

    threads = [threading.Thread(target=one, args=(number,)) for number in range(5)]
    with turns.held():
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(turns._waiting) == number + 1, "a thread waits")  # type: ignore[misc]  # bound now
        assert order == []
    for thread in threads:
        thread.join(HANG_S)
    assert order == [0, 1, 2, 3, 4]
    assert not turns._is_taken


def test_an_error_gives_the_turn_back() -> None:
    turns = FairLock()
    with pytest.raises(ValueError, match="x"), turns.held():
        raise ValueError("x")
    with turns.held():
        assert turns._is_taken
    assert not turns._is_taken


class _Answers:
    """A fetcher that says when it is asked whether it is somebody's turn."""

    def __init__(self, turns: FairLock) -> None:
        self._turns = turns
        self.left = [["a", "b"], [], ["c"]]

    def __len__(self) -> int:
        return len(self.left)

    def wait(self, _wait_ms: int) -> None:
        assert not self._turns._is_taken, "a broker that says nothing holds up nobody"

    def arrived(self, _wait_ms: int) -> list[Any]:
        assert self._turns._is_taken
        return self.left.pop(0)


@pytest.mark.parametrize(("until", "read"), [("", ["a", "b", "c"]), ("a", ["a"]), ("c", ["a", "b", "c"])])
def test_an_answer_is_waited_for_without_a_turn_and_read_in_one(
    monkeypatch: pytest.MonkeyPatch, until: str, read: list[str]
) -> None:
    turns, result = FairLock(), list[Any]()
    monkeypatch.setattr(one_at_a_time, "held", turns.held)

    def take(item: Any) -> bool:
        assert turns._is_taken
        result.append(item)
        return bool(item != until)

    read_locked(cast("Fetcher", _Answers(turns)), 1, take)
    assert result == read
    assert not turns._is_taken
