"""The locks that a member holds on records, and its acknowledgements until they are sent; as ranges of offsets.

1. The ranges of a partition rise and do not overlap. A record that is delivered again replaces its former lock.
2. An acknowledgement takes its offsets out of the locks, but a renewal leaves them there.
3. An acknowledgement replaces a renewal of the same offset that has not been sent.
4. A leader carries out all acknowledgements of a partition in one request, or none. Locks that were acquired together
   end together: ranges whose locks end at different times are not joined, and may be sent apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final, NamedTuple

from oncelog.client.machine.share.values import Acknowledge, SharePartition

LOST: Final = -1


class Lock(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int
    until_ms: int
    leader: int
    """The broker that granted it; ``LOST`` once that may have given it up."""


class Pending(NamedTuple):
    """An acknowledgement that has not been answered."""

    first_offset: int
    last_offset: int
    kind: Acknowledge
    until_ms: int
    """When the lock may end."""


_last = attrgetter("last_offset")


class Locks:
    """The locks of one member."""

    def __init__(self) -> None:
        self._ranges: dict[SharePartition, list[Lock]] = {}

    def __len__(self) -> int:
        """The number of ranges."""
        return sum(map(len, self._ranges.values()))

    def add(self, partition: SharePartition, lock: Lock) -> None:
        ranges = self._ranges.setdefault(partition, [])
        if ranges and ranges[-1].last_offset >= lock.first_offset:
            self._cut(ranges, lock.first_offset, lock.last_offset)
            ranges.insert(bisect_left(ranges, lock.first_offset, key=_last), lock)
        else:
            ranges.append(lock)

    def at(self, partition: SharePartition, offset: int) -> Lock | None:
        ranges = self._ranges.get(partition, [])
        index = bisect_left(ranges, offset, key=_last)
        return ranges[index] if index < len(ranges) and ranges[index].first_offset <= offset else None

    def take(self, partition: SharePartition, first_offset: int, last_offset: int) -> list[Lock]:
        """Remove the locks within a range of offsets, and return them."""
        ranges = self._ranges.get(partition)
        if ranges is None:
            return []
        taken = self._cut(ranges, first_offset, last_offset)
        if not ranges:
            del self._ranges[partition]
        return taken

    def within(self, partition: SharePartition, first_offset: int, last_offset: int) -> list[Lock]:
        """The locks within a range of offsets, cut to it."""
        ranges = self._ranges.get(partition, [])
        following = islice(ranges, bisect_left(ranges, first_offset, key=_last), None)
        touched = takewhile(lambda lock: lock.first_offset <= last_offset, following)
        return [_cut_to(lock, first_offset, last_offset) for lock in touched]

    def renewed(self, partition: SharePartition, pending: Pending, until_ms: int) -> None:
        """The leader has renewed locks: they hold until another time."""
        for lock in self.take(partition, pending.first_offset, pending.last_offset):
            self.add(partition, lock._replace(until_ms=until_ms))

    def drop_expired(self, before_ms: int) -> None:
        """Forget the locks that ended before a time: nothing else bounds what a caller never acknowledges."""
        self._keep(lambda lock: lock.until_ms >= before_ms)

    def lose(self, leader: int) -> None:
        """A leader has given up the locks that it granted, or may have."""
        for ranges in self._ranges.values():
            ranges[:] = [lock._replace(leader=LOST) if lock.leader == leader else lock for lock in ranges]

    def has_of(self, leader: int) -> bool:
        return any(lock.leader == leader for ranges in self._ranges.values() for lock in ranges)

    def items(self) -> Iterator[tuple[SharePartition, Lock]]:
        for partition, ranges in self._ranges.items():
            for lock in ranges:
                yield partition, lock

    def _keep(self, is_kept: Callable[[Lock], bool]) -> None:
        kept = {partition: list(filter(is_kept, ranges)) for partition, ranges in self._ranges.items()}
        self._ranges = {partition: ranges for partition, ranges in kept.items() if ranges}

    def _cut(self, ranges: list[Lock], first_offset: int, last_offset: int) -> list[Lock]:
        start = end = bisect_left(ranges, first_offset, key=_last)
        while end < len(ranges) and ranges[end].first_offset <= last_offset:
            end += 1
        if start == end:
            return []
        touched = ranges[start:end]
        left = []
        if touched[0].first_offset < first_offset:
            left.append(touched[0]._replace(last_offset=first_offset - 1))
        if touched[-1].last_offset > last_offset:
            left.append(touched[-1]._replace(first_offset=last_offset + 1))
        ranges[start:end] = left
        return [_cut_to(lock, first_offset, last_offset) for lock in touched]


class AcknowledgementQueue:
    """Acknowledgements for one leader, until they are sent."""

    def __init__(self) -> None:
        self._groups: dict[SharePartition, list[list[Pending]]] = {}
        """A partition's ranges for the next request, possibly none, and then ranges for requests of their own."""
        self._renews: set[SharePartition] = set()
        """Partitions with a renewal."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, partition: SharePartition, pending: Pending) -> None:
        if partition in self._renews:
            self.cut(partition, pending.first_offset, pending.last_offset)
        if pending.kind is Acknowledge.RENEW:
            self._renews.add(partition)
        ranges = self._groups.setdefault(partition, [[]])[0]
        last = ranges[-1] if ranges else None
        if last is not None and (last.last_offset + 1, last[2:]) == (pending.first_offset, pending[2:]):
            ranges[-1] = last._replace(last_offset=pending.last_offset)
        else:
            ranges.append(pending)

    def add_apart(self, partition: SharePartition, ranges: list[Pending]) -> None:
        """Add ranges that go in a request without others of their partition."""
        self._groups.setdefault(partition, [[]]).append(ranges)
        if any(pending.kind is Acknowledge.RENEW for pending in ranges):
            self._renews.add(partition)

    @property
    def has_renewals(self) -> bool:
        return bool(self._renews)

    @property
    def has_apart(self) -> bool:
        """True if one request is not enough."""
        return any(len(groups) > 1 for groups in self._groups.values())

    def cut(self, partition: SharePartition, first_offset: int, last_offset: int) -> list[Pending]:
        """Remove the acknowledgements within a range of offsets, and return them."""
        cut: list[Pending] = []
        kept: list[list[Pending]] = []
        other = Pending(first_offset, last_offset, Acknowledge.GAP, 0)
        for ranges in self._groups.get(partition, ()):
            kept.append([])
            for queued in ranges:
                parts = list(_without(queued, other))
                kept[-1] += parts
                if parts != [queued]:
                    first, last = max(queued.first_offset, first_offset), min(queued.last_offset, last_offset)
                    cut.append(queued._replace(first_offset=first, last_offset=last))
        self._keep(partition, kept)
        return cut

    def take(self, now_ms: int) -> dict[SharePartition, list[Pending]]:
        """The acknowledgements of the next request, in the order of offsets, which leaders demand. Ranges whose lock
        may have ended stay for later requests: they would make the others fail."""
        taken: dict[SharePartition, list[Pending]] = {}
        for partition, (ranges, *apart) in list(self._groups.items()):
            if not ranges:
                ranges, *apart = apart
            elif live := [pending for pending in ranges if pending.until_ms > now_ms]:
                apart.insert(0, [pending for pending in ranges if pending.until_ms <= now_ms])
                ranges = live
            taken[partition] = sorted(ranges)
            self._keep(partition, [[], *apart])
        return taken

    def take_all(self) -> dict[SharePartition, list[Pending]]:
        """Everything. The queue is empty then."""
        taken = {at: sorted(p for ranges in groups for p in ranges) for at, groups in self._groups.items()}
        self._groups, self._renews = {}, set()
        return taken

    def _keep(self, partition: SharePartition, groups: list[list[Pending]]) -> None:
        """Replace the groups of a partition."""
        self._groups.pop(partition, None)
        kept = [*groups[:1], *filter(None, groups[1:])]
        if any(kept):
            self._groups[partition] = kept
        if not any(pending.kind is Acknowledge.RENEW for ranges in kept for pending in ranges):
            self._renews.discard(partition)


def _cut_to(lock: Lock, first_offset: int, last_offset: int) -> Lock:
    return lock._replace(
        first_offset=max(lock.first_offset, first_offset), last_offset=min(lock.last_offset, last_offset)
    )


def _without(queued: Pending, other: Pending) -> Iterator[Pending]:
    """The parts of a range outside another one."""
    if queued.first_offset < other.first_offset:
        yield queued._replace(last_offset=min(queued.last_offset, other.first_offset - 1))
    if queued.last_offset > other.last_offset:
        yield queued._replace(first_offset=max(queued.first_offset, other.last_offset + 1))
