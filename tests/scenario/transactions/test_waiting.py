"""Wait, don't refuse: who is parked for how long, and what becomes of it."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import TransactionalId
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, EndRequest, InitReply
from oncelog.core.transactions.settings import TransactionSettings
from tests.scenario.transactions.driver import ID, Driver, identity, partitions


def test_everything_that_meets_a_completing_transaction_waits_and_then_is_decided() -> None:
    """AddPartitionsToTxn of the next transaction arrives while markers are written, the usual case."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    following = driver.end(me, commit=True).identity
    assert driver.add(following, 5) is None
    assert driver.init(identity(9, 9)) is None
    driver.write_markers()
    assert driver.replies[5] == AddReply(E.NONE)
    assert driver.replies[6] == InitReply(E.PRODUCER_FENCED)
    assert driver.held().partitions == partitions(5)


def test_waiting_has_a_bound() -> None:
    """transaction markers that cannot be written: CONCURRENT_TRANSACTIONS, and the client sleeps."""
    driver = Driver(TransactionSettings(concurrent_wait_ms=50), writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    following = driver.end(me, commit=True).identity
    driver.add(following, 0)
    driver.advance(20)
    driver.init()
    driver.advance(30)
    assert driver.replies[5] == AddReply(E.CONCURRENT_TRANSACTIONS)
    assert 6 not in driver.replies
    driver.advance(20)
    assert driver.replies[6] == InitReply(E.CONCURRENT_TRANSACTIONS)
    driver.write_markers()
    assert driver.state() == "CompleteCommit"


def test_who_is_parked_again_keeps_the_deadline() -> None:
    """Two instances fence each other's transactions; the second does not wait twice as long."""
    driver = Driver(TransactionSettings(concurrent_wait_ms=50), writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    following = driver.end(me, commit=True).identity
    driver.add(following, 1)
    driver.init()
    driver.advance(40)
    markers = driver.markers.pop()
    driver.carry_out(driver.shard.markers_written(markers, markers.partitions, driver.now_ms))
    assert driver.replies[5] == AddReply(E.NONE)
    assert driver.state() == "PrepareAbort"
    driver.advance(10)
    assert driver.replies[6] == InitReply(E.CONCURRENT_TRANSACTIONS)


def test_requests_wait_for_a_record_that_is_applied_later() -> None:
    """A node may apply when the record is durable: until then whoever meets it waits."""
    driver = Driver()
    me = driver.init().identity
    decision = driver.shard.decide(_add(me, 0), 99, driver.now_ms)
    assert driver.shard.decide(_end(me), 100, driver.now_ms).reply is None
    driver.carry_out(decision, 99)
    assert driver.replies[99] == AddReply(E.NONE)
    assert driver.replies[100].error_code is E.NONE
    assert driver.state() == "CompleteCommit"


def test_who_is_parked_is_sent_away_when_the_coordinator_moves() -> None:
    """NOT_COORDINATOR; the markers of this epoch do not count any more."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.init()
    assert driver.shard.unloaded(driver.now_ms).released == [(5, InitReply(E.NOT_COORDINATOR))]
    assert driver.shard.deadline_ms() is None or driver.shard.tick(10**9).released == []


def _add(who: Identity, *indexes: int) -> AddRequest:
    return AddRequest(TransactionalId(ID), who, partitions(*indexes), 2)


def _end(who: Identity) -> EndRequest:
    return EndRequest(TransactionalId(ID), who, committed=True, client_version=2)
