"""Transactions that time out, and ids that expire."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import ProducerId, TransactionalId
from oncelog.core.transactions.model import EndReply
from oncelog.core.transactions.settings import TransactionSettings
from tests.scenario.transactions.driver import ID, Driver, identity


def test_a_time_out_raises_the_epoch_and_its_client_recovers() -> None:
    """KIP-890: EndTxn(abort) of the client then is a retry and returns the new epoch. A commit is fenced, so that the
    client begins anew (KAFKA-20785)."""
    driver = Driver()
    me = driver.init(timeout_ms=5_000).identity
    driver.add(me, 0)
    driver.advance(4_000)
    assert driver.state() == "Ongoing"
    driver.advance(11_002)
    assert driver.state() == "CompleteAbort"
    assert driver.end(me, commit=True).error_code is E.PRODUCER_FENCED
    assert driver.end(me, commit=False) == EndReply(E.NONE, identity(1000, 1))
    anew = driver.init().identity
    driver.add(anew, 0)
    driver.end(anew, commit=True)
    assert driver.state() == "CompleteCommit"


def test_a_time_out_before_v2_fences() -> None:
    """The client learns it from PRODUCER_FENCED."""
    driver = Driver(TransactionSettings(transaction_version=1))
    me = driver.init(timeout_ms=5_000).identity
    driver.add(me, 0, version=0)
    driver.advance(20_000)
    assert driver.state() == "CompleteAbort"
    assert driver.end(me, commit=False, version=0).error_code is E.PRODUCER_FENCED


def test_time_out_against_end() -> None:
    """Whoever is first in the log decides; the other finds nothing to do."""
    driver = Driver(writes_markers=False)
    me = driver.init(timeout_ms=5_000).identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.advance(60_000)
    assert driver.states() == ["Empty", "Ongoing", "PrepareCommit"]
    late = driver.shard.abort_timed_out(TransactionalId(ID), ProducerId(5), driver.now_ms)
    assert late.records == []


def test_a_time_out_of_a_later_transaction_counts_from_its_own_start() -> None:
    """The timer of the first one surfaces and finds another transaction."""
    driver = Driver()
    me = driver.init(timeout_ms=25_000).identity
    driver.add(me, 0)
    driver.advance(20_000)
    following = driver.end(me, commit=True).identity
    driver.add(following, 0)
    driver.advance(20_000)
    assert driver.state() == "Ongoing"
    driver.advance(20_000)
    assert driver.state() == "CompleteAbort"


def test_a_time_out_at_the_last_epoch_asks_for_a_producer_id() -> None:
    """And tries again with the next sweep when none comes."""
    driver = Driver()
    driver.init(timeout_ms=5_000)
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    driver.now_ms += 20_000
    decision = driver.shard.tick(driver.now_ms)
    assert (decision.needs_producer_id, decision.records) == (ID, [])
    driver.advance(20_000)
    assert driver.held().identity == (1001, 0)
    assert driver.end(me, commit=False).identity == (1001, 0)


def test_an_open_transaction_keeps_its_start_over_a_restart() -> None:
    """It is not aborted at load: its time-out does that."""
    driver = Driver()
    me = driver.init(timeout_ms=25_000).identity
    driver.add(me, 0)
    driver.advance(20_000)
    again = driver.restarted()
    assert again.state() == "Ongoing"
    again.advance(16_000)
    assert again.state() == "CompleteAbort"


def test_ids_expire_with_tombstones() -> None:
    """transactional.id.expiration.ms after the last change, never while a transaction is open."""
    settings = TransactionSettings(transactional_id_expiration_ms=5_000, remove_expired_interval_ms=1_000)
    driver = Driver(settings)
    for n in range(3):
        driver.init(tid=f"idle-{n}")
    me = driver.init(two_phase=False, timeout_ms=900_000).identity
    driver.add(me, 0)
    driver.advance(4_000)
    assert driver.state("idle-0") == "Empty"
    driver.advance(4_000)
    assert [driver.state(tid) for tid in ("idle-0", "idle-2", ID)] == ["Dead", "Dead", "Ongoing"]
    assert driver.log[-1][1] is None
    assert driver.init(tid="idle-0").identity == (1004, 0)
    assert driver.shard.describe(TransactionalId("idle-1")) is None


def test_a_refused_tombstone_leaves_the_id() -> None:
    """It expires with a later look."""
    driver = Driver(TransactionSettings(transactional_id_expiration_ms=5_000, remove_expired_interval_ms=10_000))
    driver.init()
    driver.refuse_appends = 1
    driver.advance(10_000)
    assert driver.state() == "Empty"
    driver.advance(10_000)
    assert driver.state() == "Dead"


def test_a_refused_abort_is_not_counted() -> None:
    """Without enough replicas in sync it is tried again and again."""
    driver = Driver()
    driver.add(driver.init(timeout_ms=5_000).identity, 0)
    driver.refuse_appends = 3
    driver.advance(20_000)
    assert (driver.state(), driver.shard.timed_out) == ("Ongoing", 0)
    driver.advance(60_000)
    assert (driver.state(), driver.shard.timed_out) == ("CompleteAbort", 1)
