"""History of many series sampled at the same times: a ring buffer bounded in samples and in series.

A gap is NaN. If there are too many series, a new one replaces the one silent for longest; if none is silent, the new
one is dropped and counted.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Mapping
from typing import Final

MAX_SERIES: Final = 400
Key = tuple[str, str]
"""A measure and its subject: a topic, group or broker; empty for the whole cluster."""


class _Series:
    __slots__ = ("last_moment", "values")

    def __init__(self, capacity: int) -> None:
        self.values = array("d", [math.nan]) * capacity
        self.last_moment = -1


class History:
    """Values by key and time; thread-safe."""

    def __init__(self, capacity: int, most_series: int = MAX_SERIES) -> None:
        self.capacity = capacity
        self.left_out = 0
        self._most = most_series
        self._lock = threading.Lock()
        self._moments = 0
        self._times = array("q", [0]) * capacity
        self._series: dict[Key, _Series] = {}

    def add(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """Add the values of a sample, which is later than all before."""
        with self._lock:
            place = self._moments % self.capacity
            self._times[place] = time_ms
            for existing in self._series.values():
                existing.values[place] = math.nan
            for key, value in values.items():
                series = self._series.get(key) or self._make(key)
                if series is None:
                    self.left_out += 1
                else:
                    series.values[place] = value
                    series.last_moment = self._moments
            self._moments += 1

    def _make(self, key: Key) -> _Series | None:
        if len(self._series) >= self._most:
            silent = min(self._series, key=lambda key_: self._series[key_].last_moment)
            # A series is silent if the last sample had no value for it.
            if self._series[silent].last_moment >= self._moments - 1:
                return None
            del self._series[silent]
        series = self._series[key] = _Series(self.capacity)
        return series

    def latest(self) -> dict[Key, float]:
        with self._lock:
            last = self._moments - 1
            place = last % self.capacity
            return {key: entry.values[place] for key, entry in self._series.items() if entry.last_moment == last}

    def since(
        self, time_ms: int, chosen: Callable[[Key], bool] = lambda key: True
    ) -> tuple[list[int], dict[Key, list[float]]]:
        with self._lock:
            kept = min(self._moments, self.capacity)
            places = [index % self.capacity for index in range(self._moments - kept, self._moments)]
            places = [place for place in places if self._times[place] >= time_ms]
            times = [self._times[place] for place in places]
            return times, {
                key: [entry.values[at] for at in places] for key, entry in self._series.items() if chosen(key)
            }
