"""The transactions of a shard: those that the log holds, at rest still as the bytes that were read.

A broker that starts may find a million transactional ids, nearly all of them at rest and not to be heard of again
before they expire. Those are kept *packed*, as the values of their records (a third of the memory, and no work for the
garbage collector), and unpacked whenever somebody asks. Whatever has changed since the load is kept as it is, because
the log lacks its last epoch.

It knows the records' bytes and nothing of requests, timers or markers. Records of versions or states that are not known
are passed over, and counted in ``skipped``: the state that an earlier record gave stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from oncelog.base.ids import ProducerId, TransactionalId
from oncelog.core.transactions.persistence import transaction_of
from oncelog.core.transactions.states import STORED, TransactionState
from oncelog.core.transactions.transaction import Transaction
from oncelog.records.internal import transaction_records
from oncelog.records.internal.transaction_records import Unknown

_STATES: Final = tuple(TransactionState)
"""By number."""


class Transactions:
    """By transactional id. An id is packed or it is not, never both."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        """Records that could not be read, by reason; for the node to log."""
        self.counts = [0] * len(_STATES)
        """How many there are of each state, by number. Kept all along: to count a million would hold up the loop."""
        self._live: dict[TransactionalId, Transaction] = {}
        self._packed: dict[TransactionalId, bytes] = {}

    def __len__(self) -> int:
        return len(self._live) + len(self._packed)

    def get(self, transactional_id: TransactionalId) -> Transaction | None:
        """The transaction of an id, None when there is no such id."""
        held = self._live.get(transactional_id)
        if held is None and (packed := self._packed.get(transactional_id)) is not None:
            held = _unpacked(transactional_id, packed)
        return held

    def put(self, transaction: Transaction) -> None:
        """The transaction of its id from now on."""
        self._count_out(transaction.transactional_id)
        self._live[transaction.transactional_id] = transaction
        self.counts[transaction.state] += 1

    def remove(self, transactional_id: TransactionalId) -> None:
        """Forget an id, if it is known."""
        if self._count_out(transactional_id):
            self._live.pop(transactional_id, None)

    def _count_out(self, transactional_id: TransactionalId) -> bool:
        """Take what an id was out of the counts, and out of what is packed; whether it is among the unpacked."""
        held = self._live.get(transactional_id)
        if held is not None:
            self.counts[held.state] -= 1
            return True
        packed = self._packed.pop(transactional_id, None)
        if packed is not None:
            self.counts[transaction_records.status_of(packed)] -= 1
        return False

    def clear(self) -> None:
        """Forget all."""
        self.counts = [0] * len(_STATES)
        self._live.clear()
        self._packed.clear()

    def load(self, key: bytes, value: bytes | None) -> None:
        """Take over one record of the log that is being read."""
        name = transaction_records.decode_key(key)
        if isinstance(name, Unknown):
            self.skipped[name.reason] += 1
            return
        transactional_id = TransactionalId(name)
        if value is None:
            self.remove(transactional_id)
        elif transaction_records.is_usual_at_rest(value):
            if transactional_id in self._live or transactional_id in self._packed:
                self.remove(transactional_id)
            self._packed[transactional_id] = value
            self.counts[transaction_records.status_of(value)] += 1
        elif (transaction := self.read(transactional_id, value)) is not None:
            self.put(transaction)

    def read(self, transactional_id: TransactionalId, value: bytes) -> Transaction | None:
        """The transaction in a record's value; None, and counted, when it cannot be one."""
        decoded = transaction_records.decode_value(value)
        if isinstance(decoded, Unknown):
            self.skipped[decoded.reason] += 1
            return None
        if decoded.status not in STORED:
            self.skipped[f"state {decoded.status}"] += 1
            return None
        return transaction_of(transactional_id, decoded)

    def ids(self) -> list[TransactionalId]:
        """All of them, in no order that means anything."""
        return [*self._packed, *self._live]

    def items(self) -> Iterator[tuple[TransactionalId, Transaction]]:
        """All of them, unpacked one at a time. For tests: with a million ids it takes seconds."""
        for transactional_id, packed in self._packed.items():
            yield transactional_id, _unpacked(transactional_id, packed)
        yield from self._live.items()

    def unpacked(self) -> Iterator[tuple[TransactionalId, Transaction]]:
        """Those that are not at rest, and others."""
        yield from self._live.items()

    def states(self) -> Iterator[tuple[TransactionalId, TransactionState, ProducerId, int]]:
        """Id, state, producer id and start time of each, without unpacking."""
        for transactional_id, packed in self._packed.items():
            status, producer_id, start_ms = transaction_records.state_of(packed)
            yield transactional_id, _STATES[status], ProducerId(producer_id), start_ms
        for transactional_id, held in self._live.items():
            yield transactional_id, held.state, held.identity.producer_id, held.start_ms


def _unpacked(transactional_id: TransactionalId, packed: bytes) -> Transaction:
    decoded = transaction_records.decode_value(packed)
    assert not isinstance(decoded, Unknown)  # or it would not have been packed
    return transaction_of(transactional_id, decoded)
