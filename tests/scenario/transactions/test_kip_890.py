"""The races that KIP-890 closes, each by its name: late, retried and stray requests of the transaction before."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import TransactionalId
from oncelog.core.transactions.model import EndReply
from tests.scenario.transactions.driver import ID, Driver, identity, partitions


def test_a_transaction_from_begin_to_complete() -> None:
    """The answer to EndTxn waits for Prepare, not for markers; TV2's epoch is in the Prepare record."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    assert driver.add(me, 0, 1) is E.NONE
    reply = driver.end(me, commit=True)
    assert reply == EndReply(E.NONE, identity(1000, 1))
    assert driver.state() == "PrepareCommit"
    (markers,) = driver.sent
    assert (markers.identity, markers.committed, markers.partitions) == ((1000, 1), True, partitions(0, 1))
    assert (markers.coordinator_epoch, markers.client_version) == (7, 2)
    driver.carry_out(driver.shard.markers_written(markers, partitions(0), driver.now_ms))
    assert driver.shard.outstanding(TransactionalId(ID)) == partitions(1)
    driver.carry_out(driver.shard.markers_written(markers, partitions(1), driver.now_ms))
    assert driver.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_a_retried_end_is_recognised_by_its_previous_epoch() -> None:
    """KIP-890: the same answer again, before and after the markers; the other outcome is refused."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    first = driver.end(me, commit=True)
    assert driver.end(me, commit=True) is None
    parked = driver.last_token
    driver.write_markers()
    assert driver.replies[parked] == first
    assert driver.end(me, commit=True) == first
    assert driver.end(me, commit=False).error_code is E.INVALID_TXN_STATE
    assert driver.restarted().end(me, commit=True) == first


def test_kafka_17754_a_late_end_does_not_decide_the_next_transaction() -> None:
    """KAFKA-17754: EndTxn of transaction N arrives while N + 1 is open."""
    driver = Driver()
    me = driver.init().identity
    driver.add(me, 0)
    following = driver.end(me, commit=True).identity
    assert driver.add(following, 1) is E.NONE
    before = driver.log[:]
    for commit in (True, False):
        assert driver.end(me, commit=commit).error_code is E.PRODUCER_FENCED
    assert driver.log == before
    assert driver.state() == "Ongoing"


def test_kafka_17754_also_across_a_rotation() -> None:
    """The previous producer id is not a retry once a new transaction is open."""
    driver = Driver()
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    following = driver.end(me, commit=True).identity
    assert following == (1001, 0)
    driver.add(following, 1)
    assert driver.end(me, commit=False).error_code is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.state() == "Ongoing"


def test_a_late_add_does_not_open_the_next_transaction() -> None:
    """KIP-890: AddPartitionsToTxn of transaction N after its end (a hanging transaction otherwise)."""
    driver = Driver()
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=False)
    assert driver.add(me, 1) is E.PRODUCER_FENCED
    assert driver.verify(me, 0) is E.PRODUCER_FENCED
    assert driver.state() == "CompleteAbort"


def test_verification_sees_only_what_is_in_the_transaction() -> None:
    """A stray transactional write is refused before it is appended."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    assert driver.verify(me, 0) == [E.TRANSACTION_ABORTABLE]
    driver.add(me, 0, version=0)
    assert driver.verify(me, 0, 1) == [E.NONE, E.TRANSACTION_ABORTABLE]
    driver.end(me, commit=True, version=0)
    assert driver.verify(me, 0) is E.CONCURRENT_TRANSACTIONS
    assert driver.verify(identity(5, 0), 0) is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.verify(me, 0, tid="other") is E.INVALID_PRODUCER_ID_MAPPING


def test_an_abort_of_nothing_raises_the_epoch_with_one_append() -> None:
    """KIP-890: the client does not know whether its partitions were added. Nothing has to be marked."""
    driver = Driver()
    me = driver.init().identity
    assert driver.end(me, commit=True).error_code is E.INVALID_TXN_STATE
    following = driver.end(me, commit=False).identity
    assert following == (1000, 1)
    assert driver.states() == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert driver.sent == []
    assert driver.end(me, commit=False).identity == following
    assert driver.end(following, commit=False).identity == (1000, 2)
    assert driver.end(identity(1000, 2), commit=False, version=0).error_code is E.NONE
