"""Rates of topics, computed from two observations by pages: their difference over the time between them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition

# A rate states its window, and is None rather than wrong: at the first observation, after records were deleted or the
# topic was recreated (an end or a size went down), or if the partitions differ. Offsets include transaction markers.
# Bytes are the growth of one copy on disk, so retention at work leaves them unknown.

MAX_WINDOW_S: Final = 300.0  # Older observations are dropped.
MIN_WINDOW_S: Final = 1.0  # A shorter window is too inaccurate.
MAX_TOPICS: Final = 2000
MAX_OBSERVATIONS: Final = 20


class Observation(NamedTuple):
    """A topic at one moment: the sum of its end offsets, the bytes of its leaders' copies (None: unknown), its
    partitions."""

    at_s: float
    ends: int
    size_bytes: int | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Rate:
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    window_s: float | None = None


class Rates:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._observations: OrderedDict[str, deque[Observation]] = OrderedDict()

    def observe(self, topic: str, ends: Mapping[TopicPartition, int], size_bytes: int | None) -> Rate:
        now = Observation(self._clock(), sum(ends.values()), size_bytes, len(ends))
        with self._lock:
            observations = self._observations.setdefault(topic, deque(maxlen=MAX_OBSERVATIONS))
            self._observations.move_to_end(topic)
            while len(self._observations) > MAX_TOPICS:
                self._observations.popitem(last=False)
            last = observations[-1] if observations else None
            if last is not None and (now.ends < last.ends or now.partitions != last.partitions):
                observations.clear()
            while observations and now.at_s - observations[0].at_s > MAX_WINDOW_S:
                observations.popleft()
            first = observations[0] if observations else None
            if not observations or now.at_s - observations[-1].at_s >= MIN_WINDOW_S:
                observations.append(now)
        return Rate() if first is None else _between(first, now)


def _between(first: Observation, now: Observation) -> Rate:
    window_s = now.at_s - first.at_s
    if window_s < MIN_WINDOW_S:
        return Rate()
    grown = None
    if now.size_bytes is not None and first.size_bytes is not None and now.size_bytes >= first.size_bytes:
        grown = (now.size_bytes - first.size_bytes) / window_s
    if grown == 0 and now.ends > first.ends:
        grown = None  # Records were deleted, or the broker has not measured its directories again.
    return Rate((now.ends - first.ends) / window_s, grown, window_s)
