"""The read lock: the whole console processes one fetch response with records at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.machine.positions import Fetched

# A 10 MB value is in memory several times while it is read (the response, the batch, the record, its text);
# concurrent requests for such values would add up. The lock is granted in order of request. Its holder waits for
# nothing but the rest of a response, as long as it keeps arriving. Nothing large outlives the lock: output for a
# browser goes to a file (`temporary_files`).

ANSWER_MS: Final = 2000  # A response that stalls for longer is given up.


class FairLock:
    """A lock for threads, granted first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def held(self) -> Iterator[None]:
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


_LOCK: Final = FairLock()
held: Final = _LOCK.held
"""Holds the read lock of this process."""


def read_locked(fetcher: Fetcher, wait_ms: int, take: Callable[[Fetched], bool]) -> None:
    """Pass each response of a fetcher to ``take``, under the lock, until it returns False or everything is read. Raises
    ClientError, and the errors of ``take``."""
    while len(fetcher):
        fetcher.wait(wait_ms)
        if not _read_one(fetcher, take):
            return


def _read_one(fetcher: Fetcher, take: Callable[[Fetched], bool]) -> bool:
    """Process one round of responses, in a frame that keeps none alive afterwards."""
    with held():
        return all(take(fetched) for fetched in fetcher.arrived(ANSWER_MS))
