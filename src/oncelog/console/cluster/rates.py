"""Rates of topics, from what pages have seen of them: the difference of two looks, and the time between these.

The rule: a rate says its window, and is None rather than wrong. There is none at the first look, where records were
deleted or the topic is another one (an end or a size went down), or where the looks saw other partitions. Offsets are
counted, markers of transactions among them. Bytes are the growth of one copy on disk, so with retention at work there
are none.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition

LONGEST_S: Final = 300.0
"""A look that is older is no part of a rate."""
SHORTEST_S: Final = 1.0
"""A window that is shorter says nothing."""
MOST_TOPICS: Final = 2000
MOST_LOOKS: Final = 20


class Look(NamedTuple):
    """A topic at a moment: the sum of its ends, the bytes of its leaders' copies (None: not told), its partitions."""

    at_s: float
    ends: int
    size_bytes: int | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Offsets and bytes a second over the last ``window_s``; None for what cannot be told."""

    records_per_s: float | None = None
    bytes_per_s: float | None = None
    window_s: float | None = None


class Rates:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: OrderedDict[str, deque[Look]] = OrderedDict()

    def look(self, topic: str, ends: Mapping[TopicPartition, int], size_bytes: int | None) -> Rate:
        """The rate up to this look, which is remembered."""
        now = Look(self._clock(), sum(ends.values()), size_bytes, len(ends))
        with self._lock:
            looks = self._looks.setdefault(topic, deque(maxlen=MOST_LOOKS))
            self._looks.move_to_end(topic)
            while len(self._looks) > MOST_TOPICS:
                self._looks.popitem(last=False)
            last = looks[-1] if looks else None
            if last is not None and (now.ends < last.ends or now.partitions != last.partitions):
                looks.clear()
            while looks and now.at_s - looks[0].at_s > LONGEST_S:
                looks.popleft()
            first = looks[0] if looks else None
            if not looks or now.at_s - looks[-1].at_s >= SHORTEST_S:
                looks.append(now)
        return Rate() if first is None else _between(first, now)


def _between(first: Look, now: Look) -> Rate:
    window_s = now.at_s - first.at_s
    if window_s < SHORTEST_S:
        return Rate()
    grown = None
    if now.size_bytes is not None and first.size_bytes is not None and now.size_bytes >= first.size_bytes:
        grown = (now.size_bytes - first.size_bytes) / window_s
    if grown == 0 and now.ends > first.ends:
        grown = None  # Something was deleted, or the broker has not looked again.
    return Rate((now.ends - first.ends) / window_s, grown, window_s)
