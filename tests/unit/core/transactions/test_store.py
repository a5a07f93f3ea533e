"""The transactions of a shard as a load leaves them: packed when nothing is open, and the same when asked about."""

from __future__ import annotations

from oncelog.base.ids import CoordinatorEpoch, ProducerId, TransactionalId
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.store import TransactionStore, record_of
from oncelog.core.transactions.transitions import Transaction
from oncelog.records.internal.transaction_records import encode_key
from tests.scenario.transactions.driver import identity, partitions

S = TransactionState
SETTINGS = TransactionSettings(transactional_id_expiration_ms=1000, remove_expired_interval_ms=10)
WHO = identity(9, 1)


def transaction(name: str, state: TransactionState, now_ms: int = 100) -> Transaction:
    """One as a log may hold it."""
    taking_part = partitions(0) if state not in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT) else ()
    start_ms = -1 if state is S.EMPTY else 50
    return Transaction(TransactionalId(name), WHO, 60_000, state, now_ms, start_ms, taking_part, ProducerId(9))


STORED = [transaction(state.name, state) for state in S if state not in (S.DEAD, S.PREPARE_EPOCH_FENCE)]


def loaded(*held: Transaction) -> TransactionStore:
    """From their records."""
    store = TransactionStore()
    for item in held:
        store.load(*record_of(item, SETTINGS))
    return store


def test_what_was_loaded_is_what_was_stored() -> None:
    """Whatever the state, asked for by id, in full, or only for what a listing says."""
    held = loaded(*STORED)
    assert [held.get(item.transactional_id) for item in STORED] == STORED
    assert dict(held.items()) == {item.transactional_id: item for item in STORED}
    expected = {(item.transactional_id, item.state, item.identity.producer_id, item.start_ms) for item in STORED}
    assert set(held.states()) == expected
    assert {name for name, _ in held.unpacked()} == {"ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT"}
    assert len(held) == len(held.ids()) == len(STORED)
    assert held.counts == [1, 1, 1, 1, 1, 1, 0, 0]


def test_the_last_record_of_an_id_counts() -> None:
    """At rest, open, at rest again, and gone."""
    name = TransactionalId("x")
    first, then, last = (transaction("x", state) for state in (S.EMPTY, S.ONGOING, S.COMPLETE_ABORT))
    assert dict(loaded(first, then).items()) == {name: then}
    held = loaded(first, then, last)
    assert dict(held.items()) == {name: last}
    assert loaded(first, last, first).counts == [1, 0, 0, 0, 0, 0, 0, 0]
    assert held.counts == [0, 0, 0, 0, 0, 1, 0, 0]
    held.load(encode_key("x"), b"\0\x09")
    assert (held.get(name), dict(held.skipped)) == (last, {"value of version 9": 1})
    held.load(encode_key("x"), None)
    assert (held.get(name), len(held), sum(held.counts)) == (None, 0, 0)


def test_ids_that_were_only_loaded_are_listed_and_expire() -> None:
    """They are never touched between."""
    shard = TransactionShard(0, CoordinatorEpoch(1), SETTINGS)
    for item in STORED:
        shard.apply(*record_of(item, SETTINGS))
    shard.apply(*record_of(transaction("young", S.EMPTY, now_ms=1500), SETTINGS))
    shard.loaded(2000)
    listings = shard.listings(2000, states=[S.EMPTY, S.ONGOING], producer_ids=[ProducerId(9)], longer_than_ms=1000)
    assert {(listing.transactional_id, listing.state) for listing in listings} == {
        ("EMPTY", "Empty"),
        ("ONGOING", "Ongoing"),
        ("young", "Empty"),
    }
    tombstones = set()
    for now_ms in range(2000, 2020):
        while (due_ms := shard.deadline_ms()) is not None and due_ms <= now_ms:
            decision = shard.tick(now_ms)
            tombstones |= {key for key, value in decision.records if value is None}
            for key, value in decision.records:
                shard.apply(key, value)
    assert tombstones == {encode_key(name) for name in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")}
    assert shard.describe(TransactionalId("EMPTY")) is None
    assert shard.describe(TransactionalId("young")) is not None
