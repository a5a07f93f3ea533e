"""Tracks the partitions of a follower's fetch session that have to be read; the others are unchanged since the last
response.

A session may have thousands of partitions, only a few with records at any time. A partition is *quiet* if the follower
is in sync, has everything and knows the high watermark. It is skipped until one of these:

1. the leader's partition changes: an append, a new high watermark, in-sync set or leadership;
2. the follower names it in a request, because its own offset, log start or leader epoch has changed;
3. an interval has passed: all are read once, so that ``replica.lag.time.max.ms`` is accurate to within that interval.

A lost response ends the session on the follower's side. A response refused because the session had moved on was never
sent: its partitions become pending again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
"""A partition's key in its session."""
P = TypeVar("P")


class PendingPartitions(Generic[K, P]):
    """At first all partitions are pending."""

    __slots__ = ("_all_ms", "_keys", "position")

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}
        self._all_ms: int | None = None
        self.position = 0
        """Position, in the order of the broker's changes, of the last change recorded here."""

    def note(self, keys: Iterable[K]) -> None:
        """Make partitions pending for the next request, or this one."""
        self._keys.update(dict.fromkeys(keys))

    def settle(self, caught_up: Iterable[K]) -> None:
        """Skip partitions until they change: the follower has all records and has been sent the offsets."""
        for key in caught_up:
            self._keys.pop(key, None)

    def of(self, partitions: Mapping[K, P], now_ms: int, all_after_ms: int) -> Sequence[P]:
        """The session's ``partitions`` to read now; all of them once ``all_after_ms`` have passed."""
        if self._all_ms is None or now_ms - self._all_ms >= all_after_ms:
            # Rule 3: refreshes the caught-up times of quiet partitions.
            self._all_ms = now_ms
            self._keys = dict.fromkeys(partitions)
            return list(partitions.values())
        due = []
        for key in list(self._keys):
            partition = partitions.get(key)
            if partition is None:
                del self._keys[key]  # forgotten by the follower
            else:
                due.append(partition)
        return due
