"""Whose transactional batches are being verified for one partition: the guard of KIP-890.

Before the first batch of a transaction is appended its coordinator is asked whether the transaction has this partition.
While the answer is under way the transaction may be ended, and its marker written here: the batch must not be appended
then, although the answer says yes, or it would open a transaction that nobody ends. So verification begins with a
*guard*; every append and every marker of the producer makes its guards stale, and what was verified under a stale guard
is refused. Asked again, the coordinator will say how things stand; who adds partitions by producing to them (V2) has it
asked again at once, for it may have waited for the markers of the producer's transaction before.

All of it is soft: a leader that starts anew has no guards, so what was verified before is refused. A guard is kept as
long as requests are under way that verify under it, which bounds how many there are.
"""

from __future__ import annotations


class Guard:
    """One verification that has begun, shared by the requests of a producer that verify at the same time."""

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
        """A request is about to ask the coordinator; it must call :meth:`end`."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(producer_id)
        guard.requests += 1
        return guard

    def end(self, guard: Guard) -> None:
        """The request has appended, or given up."""
        guard.requests -= 1
        if not guard.requests and self.is_current(guard):
            del self._guards[guard.producer_id]

    def is_current(self, guard: Guard) -> bool:
        """Whether nothing of the producer has been appended since the verification began."""
        return self._guards.get(guard.producer_id) is guard

    def appended(self, producer_id: int) -> None:
        """A batch or a marker of the producer is in the log."""
        self._guards.pop(producer_id, None)
