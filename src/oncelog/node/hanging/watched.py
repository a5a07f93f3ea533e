"""A transaction that the watch looks at from time to time, and the state of its partition when it asked about it."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.core.producers.entry import ProducerEntry
from oncelog.handlers.broker.leadership import LeaderLog
from oncelog.storage.transactions.open_transactions import OpenTransaction


class Asked(NamedTuple):
    """The leadership of a partition and its producer's entry when the coordinator was asked."""

    leader: LeaderLog
    entry: ProducerEntry

    def is_still_so(self, leader: LeaderLog | ErrorCode) -> bool:
        """True if nothing has come from the producer since, in the same leadership."""
        return leader is self.leader and leader.log.producers.entries.get(self.entry.producer_id) == self.entry


class Watched:
    """A transaction that has been open for a while, and when to look at it next."""

    __slots__ = ("at_ms", "found_ms", "order", "reported", "timeout_ms", "transaction", "unknown_looks")

    def __init__(self, transaction: OpenTransaction, at_ms: int, order: int) -> None:
        self.transaction = transaction
        self.at_ms = at_ms
        self.order = order
        self.timeout_ms = -1
        """The transaction's own time-out, once its coordinator has said it: the coordinator may forget it later."""
        self.found_ms: int | None = None
        """Since when it is known to hang."""
        self.reported = False
        self.unknown_looks = 0
        """Rounds in a row in which nobody could say anything about it."""

    def __lt__(self, other: Watched) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)
