"""A rate over samples, in Apache Kafka's arithmetic (``Rate`` over ``WindowedSum``), so that throttle times are equal.

A value belongs to the newest sample; a sample is complete once a window's time has passed since it began, and the next
value begins another. There are ``samples`` windows and one more that overlaps their beginning. The rate is the sum over
the time since the oldest sample began, taken for at least ``samples - 1`` whole windows: else the first second of a
client would count as all of its time. A sample without a value in the last ``samples`` windows is empty.

A rate in which nothing was recorded for ``samples`` windows behaves like a new one, so whoever keeps many may drop it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, SECOND_MS


class Windows(NamedTuple):
    """``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int = 11
    size_ms: int = SECOND_MS

    @property
    def span_ms(self) -> int:
        """All windows together: for so long a recorded value counts."""
        return self.samples * self.size_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Values by time; ``measure`` is what was recorded a second."""

    __slots__ = ("_current", "_samples", "_windows", "last_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0
        self.last_ms = 0
        """Time of the newest value."""

    def record(self, value: float, now_ms: int) -> None:
        """Count a value; a negative one takes back what was recorded before."""
        self.last_ms = now_ms
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The recorded amount a second."""
        window_ms = self.window_ms(now_ms)  # which empties old samples
        return sum(sample.value for sample in self._samples) / (window_ms / SECOND_MS)

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken."""
        self._purge(now_ms)
        size_ms, least = self._windows.size_ms, self._windows.samples - 1
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        whole = elapsed_ms // size_ms
        if whole < least:
            elapsed_ms += (least - whole) * size_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time after which the rate is back at ``bound`` if nothing more is recorded; 0 while it is not above."""
        measured = self.measure(now_ms)
        if measured <= bound:
            return 0
        return rounded_ms((measured - bound) / bound * self.window_ms(now_ms))

    def is_idle(self, now_ms: int) -> bool:
        """True if it behaves like a new one."""
        return now_ms - self.last_ms >= self._windows.span_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current < len(self._samples):
            sample = self._samples[self._current]
            sample.reset(now_ms)
        else:
            sample = _Sample(now_ms)
            self._samples.append(sample)
        return sample

    def _purge(self, now_ms: int) -> None:
        expire_ms = self._windows.span_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= expire_ms:
                sample.reset(now_ms)


class SimpleRate(Rate):
    """A rate over the time since its oldest sample began, one window at least (Kafka's ``SimpleRate``): what begins is
    not taken for a long pause."""

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken."""
        self._purge(now_ms)
        oldest_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        return max(now_ms - oldest_ms, self._windows.size_ms)


MAX_THROTTLE_MS: Final = INT32_MAX


def rounded_ms(milliseconds: float) -> int:
    """Milliseconds as Java rounds them, at most what a response can say; 0 for what is no number."""
    if math.isnan(milliseconds):
        return 0
    return int(min(math.floor(min(milliseconds, 1e12) + 0.5), MAX_THROTTLE_MS))
