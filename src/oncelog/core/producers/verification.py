"""Verification of transactional batches on one partition: the guards of KIP-890.

Before the first batch of a transaction is appended its coordinator is asked whether the transaction has this partition.
While the answer is under way the transaction may be ended, and its marker written here: the batch must not be appended
then, although the answer says yes, or it would open a transaction that is never ended. So verification begins with a
*guard*; every append and every marker of the producer makes its guards stale, and a batch verified under a stale guard
is refused. A new verification then tells the present state; for clients that add partitions by producing to them (V2)
it is made at once, because the first may have waited for the markers of the producer's previous transaction.

All of it is soft state: a leader that starts anew has no guards, so batches verified before are refused. A guard is
kept as long as requests are under way that verify under it, which bounds their number.
"""

from __future__ import annotations


class Guard:
    """A verification under way, shared by the requests of a producer that verify at the same time."""

    __slots__ = ("producer_id", "requests")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.requests = 0


class Verifications:
    """The guards of one partition, at most one a producer."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int) -> Guard:
        """Begin the verification of a request that is about to ask the coordinator; :meth:`end` must follow."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(producer_id)
        guard.requests += 1
        return guard

    def end(self, guard: Guard) -> None:
        """End the verification of a request that has appended or given up."""
        guard.requests -= 1
        if not guard.requests and self.is_current(guard):
            del self._guards[guard.producer_id]

    def is_current(self, guard: Guard) -> bool:
        """True if nothing of the producer has been appended since the verification began."""
        return self._guards.get(guard.producer_id) is guard

    def appended(self, producer_id: int) -> None:
        """Make the producer's guard stale: a batch or a marker of it was appended."""
        self._guards.pop(producer_id, None)
