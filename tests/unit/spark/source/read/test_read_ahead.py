"""An iterator that a thread runs read_ahead gives what it would have given, and is closed when nobody wants more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from oncelog.spark.source.read.read_ahead import read_ahead


class Numbers:
    """Counts, and remembers where and how it ended."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self._count, self._error = count, error
        self.made = 0
        self.closed_by: threading.Thread | None = None

    def items(self) -> Iterator[int]:
        try:
            while self.made < self._count:
                self.made += 1
                yield self.made
            if self._error is not None:
                raise self._error
        finally:
            self.closed_by = threading.current_thread()


@pytest.mark.parametrize("depth", [1, 3])
def test_all_items_come_in_order_and_the_thread_has_ended(depth: int) -> None:
    numbers = Numbers(100)
    before = set(threading.enumerate())
    assert list(read_ahead(numbers.items(), depth)) == list(range(1, 101))
    assert set(threading.enumerate()) <= before
    assert numbers.closed_by not in (None, threading.current_thread())


def test_an_exception_comes_behind_the_items_before_it() -> None:
    taken = read_ahead(Numbers(2, KeyError("lost")).items(), 1)
    assert [next(taken), next(taken)] == [1, 2]
    with pytest.raises(KeyError, match="lost"):
        next(taken)


def test_no_more_is_made_than_there_is_room_for() -> None:
    numbers = Numbers(100)
    taken = read_ahead(numbers.items(), 2)
    assert next(taken) == 1
    taken.close()
    assert numbers.made <= 1 + 2
    assert numbers.closed_by is not None


def test_nothing_is_begun_before_it_is_asked_for() -> None:
    numbers = Numbers(3)
    read_ahead(numbers.items(), 1).close()
    assert numbers.made == 0
