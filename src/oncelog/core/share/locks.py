"""Acquisition locks by deadline: one for all records of an acquisition, whatever their number.

Runs of records point to their lock. A lock that no record holds any more is dropped when it reaches the front, or when
such locks are more than half of the queue.

Invariants:
1. ``Lock.held`` is the number of records that hold the lock.
2. Every lock that a record holds is in the queue until it expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from oncelog.base.ids import Offset
from oncelog.base.invariant import invariant

_MIN_PRUNED: Final = 64


class Lock:
    __slots__ = ("deadline_ms", "first_offset", "has_expired", "held", "last_offset", "since_ms")

    def __init__(self, since_ms: int, deadline_ms: int) -> None:
        self.since_ms = since_ms
        self.deadline_ms = deadline_ms
        self.first_offset = Offset(-1)
        """The lock's records are within this range, mixed with those of other locks."""
        self.last_offset = Offset(-1)
        self.held = 0
        self.has_expired = False
        """True once it expired, also while a write that would end it was in progress."""

    def extend(self, first_offset: Offset, last_offset: Offset) -> None:
        """Lock records, in ascending order of offsets."""
        if not self.held:
            self.first_offset = first_offset
        self.last_offset = last_offset
        self.held += last_offset - first_offset + 1

    def drop(self, count: int) -> None:
        self.held -= count


class Locks:
    __slots__ = ("_prune_at", "_queue", "_sequence")

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Lock]] = []
        self._sequence = 0
        self._prune_at = _MIN_PRUNED

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, lock: Lock) -> None:
        """Queue ``lock`` if it holds records."""
        if not lock.held:
            return
        self._sequence += 1
        heappush(self._queue, (lock.deadline_ms, self._sequence, lock))
        if len(self._queue) > self._prune_at:
            self._queue = [entry for entry in self._queue if entry[2].held]
            heapify(self._queue)
            self._prune_at = max(_MIN_PRUNED, 2 * len(self._queue))

    @property
    def next_deadline_ms(self) -> int | None:
        queue = self._queue
        while queue and not queue[0][2].held:
            heappop(queue)
        return queue[0][0] if queue else None

    def pop_expired(self, now_ms: int) -> Lock | None:
        """The next lock whose deadline has come, in order of deadlines; or None."""
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        lock = heappop(self._queue)[2]
        lock.has_expired = True
        return lock

    def check(self, held: Iterable[tuple[Lock, int]]) -> None:
        """``held`` has the locks of runs, with the number of records. Raises InvariantViolation."""
        counts: dict[Lock, int] = {}
        for lock, count in held:
            counts[lock] = counts.get(lock, 0) + count
        queued = {lock for _, _, lock in self._queue}
        for lock, count in counts.items():
            invariant(lock.held == count, "a lock is miscounted", held=lock.held, counted=count)
            invariant(lock.has_expired or lock in queued, "a lock is not queued", deadline_ms=lock.deadline_ms)
        for lock in queued - counts.keys():
            invariant(not lock.held, "a lock without records is not empty", held=lock.held)
