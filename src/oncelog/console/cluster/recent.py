"""Cache of answers for ``MAX_AGE_S``, shared by all requests: a key pressed must not list ten thousand topics again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
MAX_AGE_S: Final = 2.0


class Recent:
    """Values by name; concurrent requests for a missing value wait for one computation."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._forgotten = 0
        self._making: dict[str, threading.Lock] = {}
        self._values: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        """The cached value, computed by ``make`` if it is missing or old. Raises its errors, which are not cached."""
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            with self._lock:
                cached, forgotten = self._values.get(name), self._forgotten
            if cached is not None and self._clock() - cached[0] <= MAX_AGE_S:
                return cast("T", cached[1])
            value = make()
            with self._lock:
                # A change during the computation makes its result stale.
                if forgotten == self._forgotten:
                    self._values[name] = (self._clock(), value)
            return value

    def forget(self) -> None:
        with self._lock:
            self._values.clear()
            self._forgotten += 1
