"""Compares a follower's log with its leader's: where they diverge, and where to truncate (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.ids import Offset

UNKNOWN_EPOCH = -1


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record in a log; (−1, −1) if unknown."""

    epoch: int
    end_offset: int


def diverges(leader_end: EpochEnd, fetch_offset: int, last_epoch: int) -> bool:
    """True if a follower with records up to ``fetch_offset``, the last of ``last_epoch``, has records that the leader
    lacks. ``leader_end`` is the end of the leader's largest epoch not above that one.
    """
    return leader_end.epoch < last_epoch or leader_end.end_offset < fetch_offset


def truncation_offset(leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int) -> Offset:
    """The offset at which to truncate a follower: the earlier of the two ends of the last common epoch. ``own_end`` is
    the follower's end of the epoch that the leader named."""
    # Without that epoch, everything up to the leader's end is kept.
    end = log_end_offset if own_end.epoch == UNKNOWN_EPOCH else own_end.end_offset
    # One truncation may not be enough: the logs may diverge at an earlier epoch too, which the next fetch shows.
    return Offset(max(0, min(leader_end.end_offset, end, log_end_offset)))
