"""The replicas of a partition from its leader's view: log ends, in-sync set and high watermark (KIP-497, KIP-966).

The high watermark is the smallest end among the replicas that may lead next, so that each of them has every record
below it. A replica's end is how far it vouches for its log: the leader's on disk or in the log, by ``log.sync.policy``;
a follower's the offset it fetches from.

Invariants:
1. The high watermark never falls during a leadership: a replica that joins has reached it.
2. It does not move while the end of an in-sync replica is unknown, or fewer than ``min.insync.replicas`` are in sync
   (KIP-966).
3. The leader is in sync with itself.
4. While a change of the in-sync set is on its way to the tree, the high watermark counts the *maximal* set: the
   committed and the proposed one together.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from oncelog.base.ids import BrokerId, Offset
from oncelog.base.invariant import invariant
from oncelog.core.replicas.selector import ReadReplica

UNKNOWN_END: Final = Offset(-1)
UNKNOWN_EPOCH: Final = -1
_NEVER_MS: Final = -1
_FIRST: Final = Offset(0)


class Follower:
    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end",
        "fetched_ms",
        "is_joining",
        "leader_end",
        "log_start_offset",
        "repeated_fetches",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.end = UNKNOWN_END
        self.broker_epoch = UNKNOWN_EPOCH
        """Epoch of the registration in which it fetched; −1 if unknown."""
        self.caught_up_ms = caught_up_ms
        """When it last had everything that the leader had (KIP-16)."""
        self.fetched_ms = _NEVER_MS
        self.leader_end = UNKNOWN_END
        """The leader's log end offset at the last fetch."""
        self.log_start_offset = UNKNOWN_END
        """The start of its log, from its last fetch."""
        self.is_joining = False
        """True if it is caught up and may join the set. The high watermark then waits for it: under constant writes the
        follower would otherwise never reach it.
        """
        self.repeated_fetches = 0
        """Consecutive fetches from the same offset although there was more."""

    def fetched(self, end: Offset, leader_end: Offset, broker_epoch: int, now_ms: int) -> None:
        """Record a fetch from ``end``, which may be lower than the last one: a restarted broker starts over."""
        if end >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        # It has everything that the leader had at the previous fetch, so it was caught up then (KIP-16).
        elif self.fetched_ms != _NEVER_MS and end >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.repeated_fetches = self.repeated_fetches + 1 if end == self.end and end < leader_end else 0
        self.end, self.broker_epoch = end, broker_epoch
        self.fetched_ms, self.leader_end = now_ms, leader_end

    def is_caught_up(self, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
        """True if it has everything, or had at most ``lag_ms`` ago (``replica.lag.time.max.ms``)."""
        return self.end == leader_end or now_ms - self.caught_up_ms <= lag_ms


class LeaderReplicas:
    """``epoch_start`` is the log end offset at the election, ``now_ms`` its time: the lag of in-sync followers is
    measured from then."""

    __slots__ = (
        "_end",
        "_followers",
        "_leader",
        "_proposed",
        "assigned",
        "epoch_start",
        "has_followers",
        "high_watermark",
        "in_sync",
        "min_insync_replicas",
    )

    def __init__(
        self,
        leader: BrokerId,
        assigned: Sequence[BrokerId],
        in_sync: Sequence[BrokerId],
        high_watermark: Offset,
        *,
        epoch_start: Offset = _FIRST,
        min_insync_replicas: int = 1,
        now_ms: int = 0,
    ) -> None:
        self._leader = leader
        self._end = UNKNOWN_END
        self._followers: dict[BrokerId, Follower] = {}
        self._proposed: tuple[BrokerId, ...] | None = None
        self.assigned: tuple[BrokerId, ...] = ()
        """All replicas in order of preference."""
        self.has_followers = False
        """True if other brokers replicate the partition."""
        self.in_sync: tuple[BrokerId, ...] = ()
        """The committed in-sync set."""
        self.high_watermark = high_watermark
        self.epoch_start = epoch_start
        self.min_insync_replicas = min_insync_replicas
        self.change_in_sync(assigned, in_sync, now_ms)

    @property
    def in_sync_count(self) -> int:
        """The size of the committed set, including the leader."""
        return len(self.in_sync)

    def follower(self, replica: BrokerId) -> Follower | None:
        return self._followers.get(replica)

    def record_log_start(self, replica: BrokerId, offset: Offset) -> bool:
        """True if the log start has changed."""
        follower = self._followers.get(replica)
        if follower is None or follower.log_start_offset == offset:
            return False
        follower.log_start_offset = offset
        return True

    def read_replicas(self, offset: Offset, now_ms: int) -> list[ReadReplica]:
        """The in-sync followers that have the record at ``offset``, or will have it next (KIP-392)."""
        return [
            ReadReplica(replica, follower.end, now_ms - follower.caught_up_ms)
            for replica, follower in self._followers.items()
            # An out-of-sync follower may lack records below the high watermark.
            if replica in self.in_sync and 0 <= follower.log_start_offset <= offset <= follower.end
        ]

    def low_watermark(self, own_start: Offset, counted: Container[BrokerId]) -> Offset:
        """The smallest log start among this broker and those of ``counted``; −1 while one is unknown."""
        # An unknown start is -1, which makes the minimum unknown as well.
        starts = (follower.log_start_offset for replica, follower in self._followers.items() if replica in counted)
        return min([own_start, *starts])

    def min_in_sync(self) -> int:
        """The number that acks=all needs: at most the number of replicas."""
        return min(self.min_insync_replicas, len(self.assigned))

    def has_enough_in_sync(self) -> bool:
        count = len(self.in_sync)
        return count >= self.min_insync_replicas or count >= len(self.assigned)

    def change_in_sync(self, assigned: Sequence[BrokerId], in_sync: Sequence[BrokerId], now_ms: int = 0) -> None:
        """Adopt a committed state. Followers' fetches stay known; a proposal, which may follow this state, counts until
        its outcome arrives (:meth:`withdraw`)."""
        invariant(self._leader in in_sync, "the leader is not in its own in-sync set", in_sync=list(in_sync))
        self.assigned, self.in_sync = tuple(assigned), tuple(in_sync)
        self.has_followers = len(self.assigned) > 1
        followers = self._followers
        # Known followers keep their ends: they need not fetch again for the high watermark to move.
        self._followers = {
            replica: followers.get(replica) or Follower(now_ms) for replica in assigned if replica != self._leader
        }

    @property
    def has_proposed(self) -> bool:
        return self._proposed is not None

    def propose(self, in_sync: Sequence[BrokerId]) -> None:
        """Count ``in_sync`` too while it is on its way to the tree. One proposal at a time."""
        invariant(self._proposed is None, "a second proposal of an in-sync set", proposed=list(in_sync))
        invariant(self._leader in in_sync, "the leader leaves its own in-sync set", in_sync=list(in_sync))
        self._proposed = tuple(in_sync)

    def withdraw(self) -> None:
        """Drop the proposal: it was adopted, or the tree has rejected it for good."""
        self._proposed = None

    def may_join(self, replica: BrokerId) -> bool:
        """True if a follower outside the maximal set has reached the high watermark."""
        follower = self._followers.get(replica)
        return (
            follower is not None
            and replica not in self._maximal()
            # It has fetched, in this leader epoch, from at least the start of the epoch (KAFKA-7128).
            and follower.end >= self.high_watermark
            and follower.end >= self.epoch_start
        )

    def lagging(self, leader_end: Offset, now_ms: int, lag_ms: int) -> list[BrokerId]:
        """In-sync members that have not been caught up for more than ``lag_ms``."""
        return [
            replica
            for replica in self.in_sync
            if (follower := self._followers.get(replica)) is not None
            and not follower.is_caught_up(leader_end, now_ms, lag_ms)
        ]

    def drop_stalled_joiners(self, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
        """Stop waiting for joining followers that have fallen behind. True if there were any."""
        stopped = [
            follower
            for follower in self._followers.values()
            if follower.is_joining and not follower.is_caught_up(leader_end, now_ms, lag_ms)
        ]
        for follower in stopped:
            follower.is_joining = False
        return bool(stopped)

    def advance(self, replica: BrokerId, end: Offset) -> Offset:
        """``replica`` vouches for everything before ``end``. Returns the high watermark."""
        if replica == self._leader:
            self._end = end
            if not self._followers:  # the only replica
                if end > self.high_watermark:
                    self.high_watermark = end
                return self.high_watermark
        elif (follower := self._followers.get(replica)) is not None:
            follower.end = end
        return self.settle()

    def settle(self) -> Offset:
        lowest = self._end
        # Invariants 1 and 2.
        if lowest <= self.high_watermark or not self.has_enough_in_sync():
            return self.high_watermark
        if self._followers:
            maximal = self._maximal()
            for replica, follower in self._followers.items():
                # Invariant 4: whichever set a controller elects from has every acknowledged record.
                if follower.end < lowest and (follower.is_joining or replica in maximal):
                    lowest = follower.end
        if lowest > self.high_watermark:
            self.high_watermark = lowest
        return self.high_watermark

    def successors(self) -> tuple[BrokerId, ...]:
        """The brokers that may have been elected instead."""
        return tuple(dict.fromkeys(member for member in self._maximal() if member != self._leader))

    def _maximal(self) -> tuple[BrokerId, ...]:
        return self.in_sync if self._proposed is None else (*self.in_sync, *self._proposed)
