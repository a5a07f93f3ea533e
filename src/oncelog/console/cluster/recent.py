"""Answers of a moment ago, shared by requests: a list of ten thousand topics is not asked for at each key pressed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
MAX_AGE_S: Final = 2.0


class Recent:
    """Values by name, none older than ``MAX_AGE_S``; those who ask for one that is being made wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._forgotten = 0
        self._making: dict[str, threading.Lock] = {}
        self._found: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        """The value, made if there is none that is recent. Raises what ``make`` does, and keeps nothing then."""
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            with self._lock:
                known, forgotten = self._found.get(name), self._forgotten
            if known is not None and self._clock() - known[0] <= MAX_AGE_S:
                return cast("T", known[1])
            made = make()
            with self._lock:
                if forgotten == self._forgotten:
                    self._found[name] = (self._clock(), made)
            return made

    def forget(self) -> None:
        """Keep nothing: something was changed."""
        with self._lock:
            self._found.clear()
            self._forgotten += 1
