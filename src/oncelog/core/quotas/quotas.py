"""Quotas over all clients: measures clients that share a limit together, and computes throttle times.

Invariants:
1. Only clients with a limit are measured, at most ``MAX_MEASURED``, the most recently used, by names of bounded length
   (``limits``). A client with a new client id for each request costs some 10 MB, and gains no more than a new id gives
   it anyway.
2. A measure that behaves like a new one (``is_idle``, ``is_full``) is dropped as others are used; no client can tell.
3. A limit applies as soon as it is set, also to what was measured before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from oncelog.core.quotas.limits import Client, Limits
from oncelog.core.quotas.rates import Rate, TokenBucket, Windows

MAX_MEASURED: Final = 8_000
_FORGOTTEN_AT_ONCE: Final = 2
"""Idle measures dropped with each use of one, so that they go faster than they come."""

M = TypeVar("M")


class Measures(Generic[M]):
    """The measures of clients, in order of last use; see invariants 1 and 2."""

    def __init__(self, new: Callable[[], M], is_like_new: Callable[[Client, M, int], bool]) -> None:
        self._new = new
        self._is_like_new = is_like_new
        self._by_client: OrderedDict[Client, M] = OrderedDict()

    def of(self, client: Client, now_ms: int) -> M:
        self._forget_idle(now_ms)
        measures = self._by_client
        measure = measures.get(client)
        if measure is None:
            if len(measures) >= MAX_MEASURED:
                # Invariant 1: the least recently used goes.
                measures.popitem(last=False)
            measure = measures[client] = self._new()
        else:
            measures.move_to_end(client)
        return measure

    def __iter__(self) -> Iterator[tuple[Client, M]]:
        return iter(self._by_client.items())

    def __len__(self) -> int:
        return len(self._by_client)

    def _forget_idle(self, now_ms: int) -> None:
        measures = self._by_client
        for _ in range(_FORGOTTEN_AT_ONCE):
            oldest = next(iter(measures), None)
            if oldest is None or not self._is_like_new(oldest, measures[oldest], now_ms):
                return
            del measures[oldest]


@dataclass(slots=True)
class Throttles:
    count: int = 0
    """Responses that throttled a client."""
    sum_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        self.count += 1
        self.sum_ms += throttle_ms


class Usage(NamedTuple):
    client: Client
    rate: float
    limit: float


class Charge(NamedTuple):
    taken: bool
    throttle_ms: int


class RateQuota:
    """Limits a rate: bytes, or percent of time, per second."""

    def __init__(self, windows: Windows, max_throttle_ms: int | None = None) -> None:
        self.limits = Limits()
        self.throttles = Throttles()
        self._windows = windows
        self._max_throttle_ms = max_throttle_ms
        self._rates = Measures(lambda: Rate(windows), lambda _client, rate, now_ms: rate.is_idle(now_ms))

    def record(self, user: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Returns the client's throttle time, 0 within the limit."""
        measured = self._find(user, client_id, now_ms)
        if measured is None:
            return 0
        rate, limit = measured
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return throttle_ms if self._max_throttle_ms is None else min(throttle_ms, self._max_throttle_ms)

    def record_unchecked(self, user: str, client_id: str | None, value: float, now_ms: int) -> None:
        """Never throttles; a negative value takes usage back."""
        measured = self._find(user, client_id, now_ms)
        if measured is not None:
            measured[0].record(value, now_ms)

    def max_unthrottled(self, user: str, client_id: str | None) -> float | None:
        """The largest value that is never throttled, whatever was recorded before; None without a limit."""
        limited = self.limits.find(user, client_id)
        return None if limited is None else limited[1] * (self._windows.samples - 1) * self._windows.size_ms / 1000

    def usage(self, now_ms: int) -> list[Usage]:
        usages = []
        for client, rate in self._rates:
            limit = self.limits.limit(client)
            if limit is not None:
                usages.append(Usage(client, rate.measure(now_ms), limit))
        return usages

    def _find(self, user: str, client_id: str | None, now_ms: int) -> tuple[Rate, float] | None:
        limited = self.limits.find(user, client_id)
        return None if limited is None else (self._rates.of(limited[0], now_ms), limited[1])


class MutationQuota:
    """Limits the partitions that a client creates and deletes (KIP-599)."""

    def __init__(self, windows: Windows) -> None:
        self.limits = Limits()
        self.throttles = Throttles()
        self._buckets = Measures(lambda: TokenBucket(windows), self._is_full)

    def charge(self, user: str, client_id: str | None, partitions: int, now_ms: int, *, strict: bool) -> Charge:
        """Take credits for ``partitions``; with ``strict`` only if the bucket is not overdrawn."""
        limited = self.limits.find(user, client_id)
        if limited is None:
            return Charge(True, 0)
        client, limit = limited
        bucket = self._buckets.of(client, now_ms)
        if strict:
            # Strict clients (newer versions) get an error instead of a delayed response (KIP-599).
            if bucket.measure(limit, now_ms) < 0:
                return Charge(False, bucket.throttle_ms(limit, now_ms))
            bucket.record(partitions, limit, now_ms)
            return Charge(True, 0)
        bucket.record(partitions, limit, now_ms)
        return Charge(True, bucket.throttle_ms(limit, now_ms))

    def usage(self, now_ms: int) -> list[Usage]:
        """The clients measured now; ``rate`` is the rest in the bucket."""
        usages = []
        for client, bucket in self._buckets:
            limit = self.limits.limit(client)
            if limit is not None:
                usages.append(Usage(client, bucket.measure(limit, now_ms), limit))
        return usages

    def _is_full(self, client: Client, bucket: TokenBucket, now_ms: int) -> bool:
        limit = self.limits.limit(client)
        return limit is None or bucket.is_full(limit, now_ms)
