"""Turns at reading records: one answer with records is worked on at a time, in the whole console.

Why: a value of 10 MB is there several times while it is read (the answer, the batch, the record, its text). Browsers
that look at such values at once would add these up; one after the other they cost what one does.

The rules: turns are given in the order in which they were asked for, and nobody goes on without one. Whoever has the
turn waits for nobody but for the rest of an answer that has begun to come, as long as it keeps coming. Nothing large is
kept when the turn is over: what a browser is to have of it lies in a file (``temporary_files``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.machine.positions import Fetched

ANSWER_MS: Final = 2000
"""The silence after which the rest of an answer is not waited for any more."""


class Turns:
    """Turns of threads, first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, and give it to the next one in the end."""
        with self._lock:
            mine = threading.Event()
            if not self._is_taken:
                self._is_taken = True
                mine.set()
            else:
                self._waiting.append(mine)
        mine.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._is_taken = False


_TURNS: Final = Turns()
turn: Final = _TURNS.turn
"""A turn at the records of this console."""


def read_in_turns(fetcher: Fetcher, wait_ms: int, take: Callable[[Fetched], bool]) -> None:
    """Give ``take`` each answer of a fetcher, in a turn, until it returns False or all is read. Raises ClientError, and
    what ``take`` does."""
    while len(fetcher):
        fetcher.wait(wait_ms)
        if not _read_one(fetcher, take):
            return


def _read_one(fetcher: Fetcher, take: Callable[[Fetched], bool]) -> bool:
    """One turn; a function of its own, so that nothing of the answer is left when it is over."""
    with turn():
        return all(take(one) for one in fetcher.arrived(ANSWER_MS))
