"""A follower's log beside its leader's: where the two part, and where the follower's is cut (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.ids import Offset

UNKNOWN_EPOCH = -1


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record in a log; (−1, −1) when unknown."""

    epoch: int
    end_offset: int


def diverges(leader_end: EpochEnd, fetch_offset: int, last_epoch: int) -> bool:
    """True if a follower that has records up to ``fetch_offset``, the last one of ``last_epoch``, has some that the
    leader has not. ``leader_end`` is the leader's for that epoch: of the largest that it has and that is not later."""
    return leader_end.epoch < last_epoch or leader_end.end_offset < fetch_offset


def truncation_offset(leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int) -> Offset:
    """The offset at which a follower is cut: the end of the last epoch that both logs have, by the log in which that
    is earlier. ``own_end`` is the follower's for the epoch that the leader named.

    One cut may not be enough: the follower's log may part at an earlier epoch too, which the next fetch shows.
    """
    end = log_end_offset if own_end.epoch == UNKNOWN_EPOCH else own_end.end_offset
    return Offset(max(0, min(leader_end.end_offset, end, log_end_offset)))
