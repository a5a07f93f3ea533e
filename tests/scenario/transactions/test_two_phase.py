"""Two-phase commit with an outside coordinator (KIP-939): prepare in one process, end in another."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.transactions.model import InitReply
from oncelog.core.transactions.settings import TransactionSettings
from tests.scenario.transactions.driver import Driver, identity, partitions


@pytest.fixture
def driver() -> Driver:
    """A broker that allows it; markers are written when a test says so."""
    return Driver(TransactionSettings(two_phase_commit_enable=True), writes_markers=False)


def test_it_has_to_be_allowed() -> None:
    """As Apache Kafka answers, in its order."""
    driver = Driver()
    assert driver.init(two_phase=True).error_code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert driver.init(two_phase=True, keep=True).error_code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert driver.init(keep=True).error_code is E.UNSUPPORTED_VERSION
    assert driver.log == []


def test_it_never_times_out(driver: Driver) -> None:
    """Whoever prepared it must end it."""
    me = driver.init(two_phase=True, timeout_ms=5).identity
    driver.add(me, 0)
    driver.advance(10**9)
    assert driver.state() == "Ongoing"


def test_the_stored_identity_ends_it_from_any_process(driver: Driver) -> None:
    """As long as no other instance has come: also after a crash of the coordinator."""
    me = driver.init(two_phase=True).identity
    driver.add(me, 0)
    again = driver.restarted()
    assert again.end(me, commit=True).identity == (1000, 1)
    assert again.state() == "PrepareCommit"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_new_instance_ends_what_the_old_one_prepared(driver: Driver, commit: bool, version: int) -> None:
    """With the epoch it was given; the markers carry that of the transaction."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0, version=version)
    reply = driver.init(two_phase=True, keep=True)
    assert reply == InitReply(E.NONE, identity(1000, 1), ongoing=old)
    assert driver.end(old, commit=not commit, version=version).error_code is E.PRODUCER_FENCED
    ended = driver.end(reply.identity, commit=commit, version=version)
    assert ended.identity == (1000, 2 if version else 1)
    assert (driver.sent[-1].identity, driver.sent[-1].committed) == ((1000, 1 if version else 0), commit)
    driver.write_markers()
    assert driver.held().identity == ended.identity
    assert driver.end(reply.identity, commit=commit, version=version) == ended


def test_the_ongoing_identity_stays_that_of_the_first_prepare(driver: Driver) -> None:
    """Over repeated calls and crashes of the coordinator: what is returned rises, what is open stays."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0, 1)
    for epoch in (1, 2, 3):
        assert driver.init(two_phase=True, keep=True) == InitReply(E.NONE, identity(1000, epoch), ongoing=old)
        driver = driver.restarted()
    for fenced in (old, identity(1000, 1), identity(1000, 2)):
        assert driver.end(fenced, commit=True).error_code is E.PRODUCER_FENCED
    assert driver.held().partitions == partitions(0, 1)
    assert driver.end(identity(1000, 3), commit=True).identity == (1000, 4)
    assert driver.sent[-1].identity == (1000, 1)


def test_exhaustion_while_a_transaction_is_kept(driver: Driver) -> None:
    """KIP-939's example: three producer ids, and the retry names the one in the middle."""
    driver.init(two_phase=True)
    old = driver.at_epoch(32766)
    driver.add(old, 0)
    assert driver.init(two_phase=True, keep=True) == InitReply(E.NONE, identity(1001, 0), ongoing=old)
    assert driver.init(two_phase=True, keep=True) == InitReply(E.NONE, identity(1001, 1), ongoing=old)
    driver._install(driver.held()._replace(next_identity=identity(1001, 32766)))
    last = identity(1001, 32766)
    assert driver.end(old, commit=True).error_code is E.PRODUCER_FENCED
    ended = driver.end(last, commit=True)
    assert (ended.identity, driver.sent[-1].identity) == ((1002, 0), (1000, 32767))
    again = driver.restarted()
    again.write_markers()
    assert again.end(last, commit=True) == ended
    assert again.end(last, commit=False).error_code is E.INVALID_TXN_STATE
    assert again.add(ended.identity, 0) is E.NONE


def test_a_kept_transaction_can_only_be_ended(driver: Driver) -> None:
    """Nothing is added to it, and what the old instance still sends is refused."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0)
    new = driver.init(two_phase=True, keep=True).identity
    assert driver.add(new, 1) is E.INVALID_TXN_STATE
    assert driver.add(old, 1) is E.PRODUCER_FENCED
    assert driver.add(identity(5, 0), 1) is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.verify(old, 0) is E.PRODUCER_FENCED
    assert driver.verify(new, 0) == [E.TRANSACTION_ABORTABLE]


def test_an_instance_that_does_not_keep_aborts(driver: Driver) -> None:
    """As without two-phase commit."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0)
    driver.init(two_phase=True, keep=True)
    driver.writes_markers = True
    assert driver.init(two_phase=True) == InitReply(E.NONE, identity(1000, 3))
    assert driver.sent[-1].committed is False
    assert driver.state() == "Empty"


def test_keeping_where_nothing_is_open_is_initialising(driver: Driver) -> None:
    """No ongoing identity; and it waits for markers as every request does."""
    assert driver.init(two_phase=True, keep=True) == InitReply(E.NONE, identity(1000, 0))
    me = driver.init(two_phase=True, keep=True).identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    assert driver.init(two_phase=True, keep=True) is None
    driver.write_markers()
    assert driver.replies[driver.last_token] == InitReply(E.NONE, identity(1000, 3))


def test_keeping_with_an_expectation(driver: Driver) -> None:
    """A retry gets the same answer, an older instance is fenced, and neither changes what is open."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0)
    first = driver.init(old, two_phase=True, keep=True)
    assert driver.init(old, two_phase=True, keep=True) == first
    second = driver.init(first.identity, two_phase=True, keep=True)
    assert second.identity == (1000, 2)
    assert driver.init(old, two_phase=True, keep=True).error_code is E.PRODUCER_FENCED
    assert driver.init(old, two_phase=True).error_code is E.PRODUCER_FENCED
    assert driver.state() == "Ongoing"


def test_the_kept_transaction_of_an_ordinary_producer_keeps_its_time_out(driver: Driver) -> None:
    """KeepPreparedTxn does not need Enable2Pc; who asks for it as well stops the clock."""
    me = driver.init(timeout_ms=25_000).identity
    driver.add(me, 0)
    kept = driver.init(timeout_ms=1, keep=True).identity
    driver.advance(20_000)
    assert driver.state() == "Ongoing"
    driver.advance(20_000)
    assert driver.state() == "PrepareAbort"
    driver.write_markers()
    assert driver.end(kept, commit=True).error_code is E.PRODUCER_FENCED
    assert driver.end(kept, commit=False).identity == (1000, 2)


def test_a_kept_transaction_is_written_with_tags_whatever_the_feature_level(driver: Driver) -> None:
    """Or a restart would forget who may end it."""
    driver.settings.transaction_version = 0
    old = driver.init(two_phase=True).identity
    driver.add(old, 0, version=0)
    new = driver.init(two_phase=True, keep=True).identity
    again = driver.restarted()
    assert [record[1][1] for record in again.log if record[1]] == [0, 0, 1]
    assert again.end(new, commit=True, version=0).error_code is E.NONE


@pytest.mark.parametrize("kept", [False, True])
def test_an_operator_terminates_what_was_prepared(driver: Driver, kept: bool) -> None:
    """InitProducerId without either flag, as Apache Kafka's forceTerminateTransaction: aborted, and whoever prepared it
    or had it handed over can commit it no more, also not through a coordinator that was restarted."""
    old = driver.init(two_phase=True).identity
    driver.add(old, 0)
    new = driver.init(two_phase=True, keep=True).identity if kept else old
    assert driver.init(timeout_ms=1000) is None  # waits for the markers of the abort
    assert (driver.state(), driver.sent[-1].committed, driver.sent[-1].identity) == ("PrepareAbort", False, (1000, 1))
    again = driver.restarted()
    again.write_markers()
    ended = again.held().identity
    assert again.end(new, commit=True).error_code is E.PRODUCER_FENCED
    after = again.init(timeout_ms=1000).identity
    assert after.producer_epoch == ended.producer_epoch + 1
    assert [again.end(who, commit=True).error_code for who in (old, new)] == [E.PRODUCER_FENCED] * 2
    assert (again.state(), again.held().timeout_ms) == ("Empty", 1000)


def test_an_operator_terminates_at_the_last_epoch(driver: Driver) -> None:
    """The instance that may end it has the last epoch of its producer: the abort takes a new producer id."""
    driver.init(two_phase=True)
    old = driver.at_epoch(32766)
    driver.add(old, 0)
    driver.init(two_phase=True, keep=True)
    driver._install(driver.held()._replace(next_identity=identity(1001, 32766)))
    assert driver.init(timeout_ms=1000) is None
    assert driver.sent[-1].identity == (1000, 32767)
    driver.write_markers()
    assert driver.replies[driver.last_token].identity == (1002, 1)
    # Not a retry of the end any more: a new instance has come since.
    assert driver.end(identity(1001, 32766), commit=True).error_code is E.INVALID_PRODUCER_ID_MAPPING


def test_keeping_again_and_again_across_exhaustion_and_restarts(driver: Driver) -> None:
    """The open transaction keeps the first identity while the one that may end it uses up two producer ids."""
    driver.init(two_phase=True)
    old = driver.at_epoch(32765)
    driver.add(old, 0)
    seen = []
    for _ in range(4):
        reply = driver.init(two_phase=True, keep=True)
        assert reply.ongoing == old
        seen.append(reply.identity)
        driver = driver.restarted()
        assert (driver.held().identity, driver.held().next_identity) == (old, reply.identity)
        if reply.identity == (1001, 0):
            driver._install(driver.held()._replace(next_identity=identity(1001, 32766)))
    assert seen == [(1000, 32766), (1001, 0), (1002, 0), (1002, 1)]
    assert driver.end(identity(1001, 32766), commit=True).error_code is not E.NONE
    ended = driver.end(seen[-1], commit=True)
    assert (ended.identity, driver.sent[-1].identity) == ((1002, 2), (1000, 32766))
