"""The history: values of many series at the same moments, the last so many of them. Bounded in both directions.

A moment at which a series has no value is a gap (NaN). When there are too many series, the one that has been silent for
longest makes room; one that is new and finds no silent one is left out, and counted.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Mapping
from typing import Final

MOST_SERIES: Final = 400
Key = tuple[str, str]
"""A measure and its subject: a topic, a group, a broker; empty for the whole cluster."""


class _Series:
    __slots__ = ("last_moment", "values")

    def __init__(self, capacity: int) -> None:
        self.values = array("d", [math.nan]) * capacity
        self.last_moment = -1


class History:
    """Values by key and moment; used by several threads."""

    def __init__(self, capacity: int, most_series: int = MOST_SERIES) -> None:
        self.capacity = capacity
        self.left_out = 0
        self._most = most_series
        self._lock = threading.Lock()
        self._moments = 0
        self._times = array("q", [0]) * capacity
        self._series: dict[Key, _Series] = {}

    def add(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """The values of a moment, which is later than all before."""
        with self._lock:
            place = self._moments % self.capacity
            self._times[place] = time_ms
            for one in self._series.values():
                one.values[place] = math.nan
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
            silent = min(self._series, key=lambda one: self._series[one].last_moment)
            if self._series[silent].last_moment >= self._moments - 1:
                return None
            del self._series[silent]
        made = self._series[key] = _Series(self.capacity)
        return made

    def since(self, time_ms: int) -> tuple[list[int], dict[Key, list[float]]]:
        """The moments from a time on, and the values of every series at them."""
        with self._lock:
            kept = min(self._moments, self.capacity)
            places = [index % self.capacity for index in range(self._moments - kept, self._moments)]
            places = [place for place in places if self._times[place] >= time_ms]
            times = [self._times[place] for place in places]
            return times, {key: [one.values[at] for at in places] for key, one in self._series.items()}
