"""The leader epochs of a log with their start offsets, both rising (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

UNDEFINED: Final = -1


class EpochStart(NamedTuple):
    """The first offset that a leader of this epoch wrote."""

    epoch: int
    start_offset: int


_start_offset: Final = attrgetter("start_offset")


class LeaderEpochs:
    """``changed``: the file is out of date."""

    __slots__ = ("changed", "entries")

    def __init__(self) -> None:
        self.entries: list[EpochStart] = []
        self.changed = False

    @property
    def latest(self) -> int:
        """The newest epoch, or −1."""
        return self.entries[-1].epoch if self.entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` begins at ``start_offset``, or began before; contradicting entries are dropped."""
        entries = self.entries
        if epoch < 0 or (entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset):
            return
        while entries and (entries[-1].epoch > epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        if not entries or entries[-1].epoch != epoch:
            entries.append(EpochStart(epoch, start_offset))
        self.changed = True

    def end_offset(self, epoch: int, log_end_offset: int, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch``, and the offset after its last record; (−1, −1) if unknown.
        ``leader_epoch`` is the leader's own."""
        entries = self.entries
        if leader_epoch > self.latest:
            # The leader's own epoch begins at the log's end until it has records.
            entries = [*entries, EpochStart(leader_epoch, log_end_offset)]
        if epoch == UNDEFINED or not entries or epoch > entries[-1].epoch:
            return UNDEFINED, UNDEFINED
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        at = bisect_right(entries, (epoch, 1 << 63))
        if at == 0:
            return epoch, entries[0].start_offset
        return entries[at - 1].epoch, entries[at].start_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote ``offset``, −1 if unknown."""
        at = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[at - 1].epoch if at else UNDEFINED

    def truncate_from_start(self, offset: int) -> None:
        """Drop all entries before ``offset``: the epoch that contains it begins there."""
        entries = self.entries
        at = 0
        while at + 1 < len(entries) and entries[at + 1].start_offset <= offset:
            at += 1
        if entries and (at or entries[0].start_offset < offset):
            first = entries[at]
            self.entries = [EpochStart(first.epoch, max(first.start_offset, offset)), *entries[at + 1 :]]
            self.changed = True

    def truncate_from_end(self, offset: int) -> None:
        while self.entries and self.entries[-1].start_offset >= offset:
            self.entries.pop()
            self.changed = True
