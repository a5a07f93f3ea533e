"""The races that transactions are known to lose, each by its name, and what is parked for how long."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CoordinatorEpoch, ProducerId, TransactionalId
from oncelog.base.invariant import InvariantViolation
from oncelog.core.transactions.model import (
    AddReply,
    AddRequest,
    EndReply,
    EndRequest,
    Identity,
    InitReply,
    MarkersToWrite,
    NeedsProducerId,
    TransactionSettings,
)
from oncelog.core.transactions.transaction import NEVER_TIMES_OUT
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


# KIP-890


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


# Epochs


def test_the_last_epoch_rotates_the_producer_id_and_the_retry_is_recognised() -> None:
    """Exhaustion at EndTxn: markers carry 32767, the client goes on with a new id; a retry names the old one."""
    driver = Driver(writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    first = driver.end(me, commit=True)
    assert first.identity == (1001, 0)
    assert driver.sent[0].identity == (1000, 32767)
    driver.write_markers()
    assert driver.held().identity == (1001, 0)
    assert driver.end(me, commit=True) == first
    assert driver.restarted().end(me, commit=True) == first
    assert driver.end(me, commit=False).error_code is E.INVALID_TXN_STATE
    assert driver.add(first.identity, 0) is E.NONE


def test_a_rotation_survives_a_crash_between_prepare_and_complete() -> None:
    """The next producer id is in the log."""
    driver = Driver(writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    driver.end(me, commit=True)
    again = driver.restarted()
    again.write_markers()
    assert again.held().identity == (1001, 0)
    assert again.end(me, commit=True).identity == (1001, 0)


def test_initialising_with_an_exhausted_epoch_rotates() -> None:
    """And a retry of that is given the same answer (KIP-360)."""
    driver = Driver()
    driver.init()
    me = driver.at_epoch(32766)
    assert driver.init(me).identity == (1001, 0)
    assert driver.init(me).identity == (1001, 0)
    assert driver.init().identity == (1001, 1)
    assert driver.init(me).error_code is E.PRODUCER_FENCED


def test_no_client_gets_epoch_32767() -> None:
    """Before V2 a fence may use it; the next instance gets a new producer id."""
    driver = Driver(TransactionSettings(transaction_version=0))
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    assert driver.init().identity == (1001, 0)
    assert driver.sent[-1].identity == (1000, 32767)
    assert driver.add(identity(1000, 32767), 0, version=0) is E.INVALID_PRODUCER_ID_MAPPING


def test_who_waited_may_have_to_fetch_a_producer_id() -> None:
    """It is sent to fetch one when the transaction has completed, and asks again."""
    driver = Driver(TransactionSettings(transaction_version=0), writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    driver.end(me, commit=True, version=0)
    assert driver.init(me) is None
    driver.write_markers()
    assert driver.replies[driver.last_token] == NeedsProducerId()
    assert driver.init(me).identity == (1001, 0)


def test_epoch_32767_opens_nothing() -> None:
    """Nobody was given it: who names it has guessed."""
    driver = Driver(TransactionSettings(transaction_version=0))
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    driver.advance(100_000)
    assert driver.held().identity == (1000, 32767)
    guess = identity(1000, 32767)
    assert driver.add(guess, 0, version=0) is E.PRODUCER_FENCED
    assert driver.end(guess, commit=False).error_code is E.PRODUCER_FENCED
    assert driver.end(guess, commit=False, version=0).error_code is E.PRODUCER_FENCED
    assert driver.end(me, commit=False).error_code is E.PRODUCER_FENCED


# InitProducerId meets


def test_initialising_meets_an_open_transaction() -> None:
    """It is fenced and aborted, and only then the new instance gets its epoch: it is not told to come again."""
    driver = Driver(writes_markers=False)
    old = driver.init().identity
    driver.add(old, 0)
    assert driver.init() is None
    parked = driver.last_token
    assert (driver.state(), driver.sent[-1].committed, driver.sent[-1].identity) == ("PrepareAbort", False, (1000, 1))
    assert driver.end(old, commit=True) is None
    ending = driver.last_token
    driver.write_markers()
    assert driver.replies[parked] == InitReply(E.NONE, identity(1000, 2))
    assert driver.replies[ending].error_code is E.PRODUCER_FENCED
    assert driver.add(old, 0) is E.PRODUCER_FENCED


def test_initialising_meets_a_prepared_transaction() -> None:
    """It waits for the markers; two that wait get different epochs, in order."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    assert driver.init() is None
    assert driver.init() is None
    driver.write_markers()
    assert [driver.replies[token].identity for token in (5, 6)] == [(1000, 2), (1000, 3)]


def test_a_stale_epoch_aborts_nothing() -> None:
    """Apache Kafka lets a zombie that brings its old epoch abort its successor's transaction."""
    driver = Driver()
    old = driver.init().identity
    me = driver.init().identity
    driver.add(me, 0)
    assert driver.init(old).error_code is E.PRODUCER_FENCED
    assert driver.state() == "Ongoing"
    assert driver.init(me).identity == (1000, 2)


def test_a_retried_initialisation_gets_the_same_epoch() -> None:
    """KIP-360, until another instance comes."""
    driver = Driver()
    me = driver.init().identity
    raised = driver.init(me).identity
    assert driver.init(me).identity == raised == (1000, 1)
    driver.init()
    assert driver.init(me).error_code is E.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs_have_limits(timeout_ms: int) -> None:
    """transaction.max.timeout.ms; not in two-phase commit."""
    driver = Driver(TransactionSettings(two_phase_commit_enable=True))
    assert driver.init(timeout_ms=timeout_ms).error_code is E.INVALID_TRANSACTION_TIMEOUT
    assert driver.init(timeout_ms=timeout_ms, two_phase=True).error_code is E.NONE
    assert driver.held().timeout_ms == NEVER_TIMES_OUT
    assert driver.init(tid="").error_code is E.INVALID_REQUEST
    assert driver.init(tid="é" * 16_384).error_code is E.INVALID_REQUEST


# Wait, don't refuse


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
    decision = driver.shard.add_partitions(_add(me, 0), 99, driver.now_ms)
    assert driver.shard.end(_end(me), 100, driver.now_ms).reply is None
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


# Time-outs


def test_a_time_out_raises_the_epoch_and_its_client_recovers() -> None:
    """KIP-890: EndTxn(abort) of the client then is a retry and tells the new epoch; a commit is refused."""
    driver = Driver()
    me = driver.init(timeout_ms=5_000).identity
    driver.add(me, 0)
    driver.advance(4_000)
    assert driver.state() == "Ongoing"
    driver.advance(11_002)
    assert driver.state() == "CompleteAbort"
    assert driver.end(me, commit=True).error_code is E.INVALID_TXN_STATE
    assert driver.end(me, commit=False) == EndReply(E.NONE, identity(1000, 1))


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


# Crashes and refusing logs


def test_a_prepared_transaction_is_driven_on_by_the_next_coordinator() -> None:
    """At each marker; the leaders get all of them again."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, 1)
    driver.end(me, commit=False)
    driver.carry_out(driver.shard.markers_written(driver.markers[0], partitions(0), driver.now_ms))
    again = driver.restarted()
    assert [m.partitions for m in again.markers] == [partitions(0, 1)]
    again.write_markers()
    assert again.state() == "CompleteAbort"


def test_late_reports_about_markers_do_not_complete_another_transaction() -> None:
    """Before V2 the next transaction has the same identity; the number tells them apart, and the coordinator epoch."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, version=0)
    driver.end(me, commit=True, version=0)
    (first,) = driver.markers
    driver.write_markers()
    driver.add(me, 0, version=0)
    driver.end(me, commit=False, version=0)
    for late in (first, replace_epoch(driver)):
        driver.carry_out(driver.shard.markers_written(late, late.partitions, driver.now_ms))
        assert driver.state() == "PrepareAbort"


def test_deleted_partitions_need_no_marker() -> None:
    """Or a transaction would never complete."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, 1)
    driver.end(me, commit=True)
    driver.carry_out(driver.shard.partitions_deleted(partitions(1, 2, 3), driver.now_ms))
    assert driver.state() == "PrepareCommit"
    driver.carry_out(driver.shard.partitions_deleted(partitions(0), driver.now_ms))
    assert driver.state() == "CompleteCommit"


def test_a_refused_append_changes_nothing() -> None:
    """Whatever was asked; the same request then succeeds."""
    driver = Driver()
    driver.refuse_appends = 1
    assert driver.init() is E.COORDINATOR_NOT_AVAILABLE
    me = driver.init().identity
    driver.refuse_appends = 1
    assert driver.add(me, 0) is E.COORDINATOR_NOT_AVAILABLE
    driver.add(me, 0)
    driver.refuse_appends = 1
    assert driver.end(me, commit=True) is E.COORDINATOR_NOT_AVAILABLE
    driver.refuse_appends = 1
    assert driver.init() is E.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Ongoing"
    assert driver.end(me, commit=True).identity == (1001, 1)


def test_a_complete_record_that_was_refused_is_tried_again() -> None:
    """Nobody else would."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.refuse_appends = 2
    driver.write_markers()
    assert driver.state() == "PrepareCommit"
    driver.init()
    driver.advance(200)
    assert driver.states()[-2:] == ["CompleteCommit", "Empty"]
    assert driver.replies[driver.last_token].identity == (1000, 2)


def test_a_refused_append_of_a_waiting_request_is_told() -> None:
    """It was parked, became ready, and its record was refused."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.init()
    markers = driver.markers.pop()
    completing = driver.shard.markers_written(markers, markers.partitions, driver.now_ms)
    driver.log += completing.records
    for key, value in completing.records:
        driver.shard.apply(key, value)
    driver.refuse_appends = 1
    driver.run_due()
    assert driver.replies[driver.last_token] == InitReply(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.init().identity == (1000, 2)


# Expiry


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


# Loading


def test_records_of_newer_versions_are_passed_over() -> None:
    """And counted; what the log said before them stays."""
    driver = Driver()
    driver.init()
    key = driver.log[0][0]
    driver.log += [(b"\x00\x09x", b""), (key, b"\x00\x02abc"), (b"\x00\x00\x00\x01y", b"\x00\x00")]
    again = driver.restarted()
    assert sum(again.shard.skipped.values()) == 3
    assert again.state() == "Empty"
    assert again.shard.describe(TransactionalId("y")) is None


def test_only_what_was_decided_is_applied() -> None:
    """X7: a record from elsewhere in a partition that is led is a broken invariant."""
    driver = Driver()
    driver.init()
    with pytest.raises(InvariantViolation, match="X7"):
        driver.shard.apply(*driver.log[0])


def replace_epoch(driver: Driver) -> MarkersToWrite:
    """The outstanding markers as another coordinator epoch would report them."""
    return driver.markers[0]._replace(coordinator_epoch=CoordinatorEpoch(6))


def _add(who: Identity, *indexes: int) -> AddRequest:
    return AddRequest(TransactionalId(ID), who, partitions(*indexes), 2)


def _end(who: Identity) -> EndRequest:
    return EndRequest(TransactionalId(ID), who, committed=True, client_version=2)
