"""The partitions of a follower's fetch session that a request has to look at; all others are as they were told.

A session may hold thousands of partitions, of which a few have records at any time: looking at all of them for every
request would cost more than the records. A partition is *quiet* when the follower is in sync, has all there is and was
told the high watermark; then it is left out until one of these:

1. the leader's partition changes: an append, a new high watermark, another in-sync set, another leadership;
2. the follower names it in a request, which it does when its own offset, log start or leader epoch has changed;
3. a while has passed: then all are looked at once, so that the time at which a follower was last caught up, and with it
   ``replica.lag.time.max.ms``, is right to within that while.

An answer that gets lost ends the session on the follower's side, so what it told needs no second look; one that is
refused because the session went on without it has told nothing, and its partitions are looked at again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
"""Names a partition in its session."""
P = TypeVar("P")


class PendingPartitions(Generic[K, P]):
    """Partitions of a follower's session that are not quiet. At first all are pending."""

    __slots__ = ("_all_ms", "_keys", "position")

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}
        self._all_ms: int | None = None
        self.position = 0
        """Position of the last change of a partition that is noted here, in the order of the broker's changes."""

    def note(self, keys: Iterable[K]) -> None:
        """Look at these with the next request, or this one."""
        self._keys.update(dict.fromkeys(keys))

    def settle(self, caught_up: Iterable[K]) -> None:
        """Leave out from now on those of which the follower has all there is, and is told the rest."""
        for key in caught_up:
            self._keys.pop(key, None)

    def of(self, partitions: Mapping[K, P], now_ms: int, all_after_ms: int) -> Sequence[P]:
        """The session's ``partitions`` that have to be read now: all of them when ``all_after_ms`` have passed."""
        if self._all_ms is None or now_ms - self._all_ms >= all_after_ms:
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
