"""Caches of a registry's answers: what it has, bounded in bytes, and what it lacks, bounded in age and number."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from oncelog.schemas.client.errors import NotRegistered

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_ABSENT: Final = 10_000


class Cache(Generic[K, V]):
    """Values by key; the least recently used go when all together exceed ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.held_bytes = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            if (entry := self._values.get(key)) is None:
                return None
            self._values.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """A value larger than the whole cache is not kept."""
        if size_bytes > self._max_bytes:
            return
        with self._lock:
            if (previous := self._values.pop(key, None)) is not None:
                self.held_bytes -= previous[1]
            self._values[key] = (value, size_bytes)
            self.held_bytes += size_bytes
            while self.held_bytes > self._max_bytes:
                self.held_bytes -= self._values.popitem(last=False)[1][1]


class Absences(Generic[K]):
    """Keys that the registry does not have, for ``age_s`` seconds, with its answer."""

    # Bytes that only look framed would otherwise cost a request for each record.

    def __init__(self, age_s: float, clock: Callable[[], float]) -> None:
        self._age_s = age_s
        self._clock = clock
        self._answers: OrderedDict[K, tuple[str, int, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, key: K, since_s: float | None = None) -> None:
        """Raises NotRegistered for a key that was absent a moment ago, or after ``since_s`` on the clock."""
        with self._lock:
            message, status, code, asked_s = self._answers.get(key, ("", 0, 0, -math.inf))
        if asked_s >= (self._clock() - self._age_s if since_s is None else since_s):
            raise NotRegistered(message, status, code)

    def put(self, key: K, error: NotRegistered) -> None:
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = (str(error), error.status, error.code, self._clock())
            if len(self._answers) > _MAX_ABSENT:
                self._answers.popitem(last=False)
