"""The in-sync set of a partition as its leader sees it, and the high watermark that follows from it (KIP-966).

The high watermark is the smallest end among the in-sync replicas: every record below it is on all of them, so that any
of them may lead next. An end is how far a replica vouches for its log: the leader up to what is on its disk, or in its
log, by ``log.sync.policy``; a follower up to the offset that it fetches from.

Invariants:
1. The high watermark never falls while the leader leads: a replica that joins has reached it.
2. It stays where it is while the end of an in-sync replica is not known.
3. The leader is in sync with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.base.ids import BrokerId, Offset
from oncelog.base.invariant import invariant

UNKNOWN_END: Final = Offset(-1)


class LeaderReplicas:
    """In-sync set, ends of its members and high watermark of one partition."""

    __slots__ = ("_ends", "_leader", "assigned", "high_watermark", "in_sync_count")

    def __init__(
        self, leader: BrokerId, assigned: Sequence[BrokerId], in_sync: Sequence[BrokerId], high_watermark: Offset
    ) -> None:
        self._leader = leader
        self.assigned = tuple(assigned)
        """All replicas, in the order of preference."""
        self.in_sync_count = 0
        """The number of replicas in sync, the leader among them."""
        self._ends: dict[BrokerId, Offset] = {}
        self.high_watermark = high_watermark
        self.change_in_sync(assigned, in_sync)

    def change_in_sync(self, assigned: Sequence[BrokerId], in_sync: Sequence[BrokerId]) -> None:
        """Take over a committed in-sync set. Ends of members that stay are kept, those of new ones are unknown."""
        invariant(self._leader in in_sync, "the leader is not in its own in-sync set", in_sync=list(in_sync))
        self.assigned = tuple(assigned)
        self._ends = {replica: self._ends.get(replica, UNKNOWN_END) for replica in in_sync}
        self.in_sync_count = len(self._ends)

    def least_in_sync(self, min_insync_replicas: int) -> int:
        """The number of replicas that have to be in sync for acks=all: never more than there are."""
        return min(min_insync_replicas, len(self.assigned))

    def advance(self, replica: BrokerId, end: Offset) -> Offset:
        """Note that ``replica`` vouches for all before ``end``; the high watermark after that."""
        ends = self._ends
        if replica in ends:
            ends[replica] = end
            lowest = end if len(ends) == 1 else min(ends.values())
            if lowest > self.high_watermark:
                self.high_watermark = lowest
        return self.high_watermark
