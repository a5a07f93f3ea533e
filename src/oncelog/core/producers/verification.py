"""Verification of transactional batches on one partition: the guards of KIP-890 (docs/internals/transactions.md).

While the leader asks the coordinator, the transaction may end and its marker be written here. Appending the batch then
would open a transaction that never ends. So verification begins with a *guard*, which every append and every marker of
the producer invalidates; a new leader has none. A guard lives as long as requests verify under it, which bounds their
number.
"""

from __future__ import annotations


class Guard:
    """A verification in progress, shared by a producer's concurrent requests."""

    __slots__ = ("begins_at_zero", "producer_id", "requests")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.requests = 0
        # True for V2: each transaction has an epoch of its own, so its first sequence here is 0.
        self.begins_at_zero = False


class Verifications:
    """At most one guard per producer."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int) -> Guard:
        """Begin the verification of a request, before it asks the coordinator; :meth:`end` must follow."""
        # Clients that add partitions by producing (V2) verify again at once: the first verification may have waited for
        # the markers of the producer's previous transaction, and a new guard sees the present state.
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(producer_id)
        guard.requests += 1
        return guard

    def end(self, guard: Guard) -> None:
        """The request has appended or given up."""
        guard.requests -= 1
        # The last request under the guard; a stale guard has been replaced or dropped already.
        if not guard.requests and self.is_current(guard):
            del self._guards[guard.producer_id]

    def is_current(self, guard: Guard) -> bool:
        """True if nothing of the producer was appended since the verification began."""
        return self._guards.get(guard.producer_id) is guard

    def begins_at_zero(self, producer_id: int) -> bool:
        guard = self._guards.get(producer_id)
        return guard is not None and guard.begins_at_zero

    def appended(self, producer_id: int) -> None:
        self._guards.pop(producer_id, None)
