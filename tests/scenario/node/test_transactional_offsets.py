"""Offsets in transactions through the whole node: what clients see, in which order, and after a crash.

The error codes are those that Apache Kafka 4.3.1 gave to the same requests.
"""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.hashing import coordinator_partition
from oncelog.records.batch import iter_headers
from oncelog.storage.log.read import read_batches
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic, log_of
from tests.scenario.node.transactional_offsets import Copier, outcome

VERSIONS = (0, 2, 3, 4, 5)


@pytest.fixture
def driver():
    driver = Driver({"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"})
    create_topic(driver.connect(), "t", 2)
    return driver


def begun(driver, version: int = 5, name: str = "x") -> Copier:
    """A client whose transaction includes the group's offsets, if its version says so beforehand."""
    copier = Copier(driver, name, version=version).init()
    if version < 5:
        assert copier.add_offsets() is E.NONE
    return copier


def group_log(driver, group: str = "g"):
    """The log that keeps the group."""
    return log_of(driver, "__consumer_offsets", coordinator_partition(group, 4))


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_appear_with_the_marker_and_never_before(driver, version):
    copier = begun(driver, version)
    assert copier.commit_plainly(3) is E.NONE
    assert copier.commit(7) is E.NONE
    assert (copier.fetch(), copier.fetch(stable=False), copier.fetch(1)) == (E.UNSTABLE_OFFSET_COMMIT, 3, -1)
    assert copier.end(committed=True) is E.NONE
    assert (copier.fetch(), copier.fetch(stable=False)) == (7, 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_abort_leaves_what_was_committed_before(driver, version):
    copier = begun(driver, version)
    copier.commit_plainly(3)
    copier.commit(7)
    assert copier.end(committed=False) is E.NONE
    assert (copier.fetch(), copier.fetch(stable=False), copier.group_state()) == (3, 3, "Empty")


def test_the_batch_is_the_producers_as_apache_kafka_writes_it(driver):
    copier = begun(driver)
    copier.commit()
    log = group_log(driver)
    read = read_batches(log, 0, max_bytes=1 << 20, isolation_read_committed=False, minimum_one=True)
    data = b"".join(chunk.file.read(chunk.position, chunk.size_bytes) for chunk in read.chunks)
    ((_, header),) = iter_headers(data)
    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (copier.producer_id, copier.epoch, 0)
    assert log.last_stable_offset == 0
    copier.end()
    assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize(
    ("version", "told"), [(0, E.INVALID_TXN_STATE), (3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE), (5, E.NONE)]
)
def test_what_was_not_added_is_refused_and_leaves_no_trace_but_version_5_adds_it(driver, version, told):
    copier = Copier(driver, version=version).init()
    assert copier.commit() is told
    log = group_log(driver)
    assert (0 if log is None else log.log_end_offset) == (1 if told is E.NONE else 0)
    assert copier.fetch() == (E.UNSTABLE_OFFSET_COMMIT if told is E.NONE else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_foreign_identities(driver, version):
    copier = begun(driver, version)
    for written in (False, True):
        assert copier.commit(transactional_id="nobody") is E.INVALID_PRODUCER_ID_MAPPING
        assert copier.commit(transactional_id="") is E.INVALID_REQUEST
        assert copier.commit(producer_id=copier.producer_id + 1000) is E.INVALID_PRODUCER_ID_MAPPING
        assert copier.commit(producer_id=-1, producer_epoch=-1) is E.INVALID_PRODUCER_ID_MAPPING
        assert copier.commit(producer_epoch=copier.epoch - 1) is E.INVALID_PRODUCER_EPOCH
        assert copier.commit(producer_epoch=copier.epoch + 1) is E.INVALID_PRODUCER_EPOCH
        assert copier.commit(group_id="") is E.INVALID_GROUP_ID
        if not written:
            assert copier.fetch() == -1
            assert copier.commit() is E.NONE
    assert copier.end() is E.NONE
    assert copier.fetch() == 7


@pytest.mark.parametrize(
    ("version", "told"), [(0, E.INVALID_TXN_STATE), (3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)]
)
def test_a_late_commit_after_the_end_is_refused(driver, version, told):
    copier = begun(driver, version)
    copier.commit(7)
    copier.end()
    assert copier.commit(9) is told
    assert copier.fetch() == 7
    assert group_log(driver).last_stable_offset == group_log(driver).log_end_offset


def test_a_late_commit_of_version_2_has_an_old_epoch(driver):
    copier = begun(driver)
    copier.commit(7)
    late = copier.request(9)
    copier.end()
    assert outcome(copier.peer.ask(late, 5)) is E.INVALID_PRODUCER_EPOCH
    assert copier.fetch() == 7


@pytest.mark.parametrize("version", [4, 5])
def test_a_zombie_is_fenced_and_what_it_sent_is_dropped(driver, version):
    zombie = begun(driver, version)
    zombie.commit(7)
    successor = Copier(driver, version=version).init()
    assert zombie.commit(8) is E.INVALID_PRODUCER_EPOCH
    assert (successor.fetch(), successor.fetch(stable=False)) == (-1, -1)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_an_end_between_the_verification_and_the_append_refuses_the_append(driver, version, committed):
    """The guard of KIP-890: behind its marker an offset would be pending for ever."""
    copier = begun(driver, version)
    copier.commit_plainly(3)
    copier.commit(5, 1)
    impatient, hasty = driver.connect(), driver.connect()
    driver.hold_syncs = True
    hasty.send(copier.adding(group="h"), 3)  # not durable yet, so whoever verifies has to wait
    impatient.send(copier.request(9), version)
    hasty.send(copier.ending(committed=committed), copier.end_version)
    assert not impatient.responses
    release_one_by_one(driver, until=lambda: impatient.responses)
    told = E.INVALID_PRODUCER_EPOCH if version == 5 else E.CONCURRENT_TRANSACTIONS  # with V2 the epoch has risen
    assert outcome(impatient.responses.popleft()) is told
    driver.release()
    driver.hold_syncs = False
    driver.release()
    assert (copier.fetch(), copier.fetch(1)) == (3, 5 if committed else -1)
    assert group_log(driver).last_stable_offset == group_log(driver).log_end_offset


def test_an_offset_is_answered_when_it_and_its_place_in_the_transaction_are_on_disk(driver):
    copier = begun(driver)
    driver.hold_syncs = True
    copier.peer.send(copier.request(), 5)
    assert group_log(driver) is None or group_log(driver).log_end_offset == 0
    release_one_by_one(driver, until=lambda: group_log(driver).log_end_offset == 1)
    assert not copier.peer.responses
    release_one_by_one(driver, until=lambda: copier.peer.responses)
    assert outcome(copier.peer.responses.popleft()) is E.NONE


def test_what_is_said_of_a_transaction_is_on_disk(driver):
    """A power failure must not undo what an administrator was told (seed 26 of the simulator)."""
    copier = begun(driver)
    copier.commit(5)
    driver.hold_syncs = True
    copier.peer.send(copier.ending(committed=True), copier.end_version)
    describing = driver.connect()
    describing.send(DescribeTransactionsRequest(transactional_ids=["x", "nobody"]), 0)
    assert not describing.responses
    release_one_by_one(driver, until=lambda: describing.responses)
    told = describing.responses.popleft().transaction_states
    assert [state.transaction_state for state in told] == ["PrepareCommit", ""]
    assert E(told[1].error_code) is E.TRANSACTIONAL_ID_NOT_FOUND
    describing.send(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
    release_one_by_one(driver, until=lambda: describing.responses)
    assert describing.responses.popleft().transaction_states[0].transaction_state.endswith("Commit")


def release_one_by_one(driver, until):
    """Carry out the syncs that are held, and those that follow, one at a time."""
    while not until():
        effects, driver.held = driver.held, []
        assert effects, "nothing more to sync"
        for effect in effects:
            driver.dispatch(driver._sync(effect))


def test_two_transactions_of_one_partition_the_later_record_wins(driver):
    first, second = begun(driver, name="x"), begun(driver, name="y")
    first.commit(1)
    second.commit(2)
    assert second.end() is E.NONE
    assert first.fetch() is E.UNSTABLE_OFFSET_COMMIT
    assert first.end() is E.NONE
    assert first.fetch() == 2


def test_deleting_the_group_takes_what_is_pending_along(driver):
    copier = begun(driver)
    copier.commit(7)
    assert copier.delete_group() is E.NONE
    assert (copier.fetch(), copier.group_state()) == (-1, "")
    assert copier.end() is E.NONE
    assert (copier.fetch(), copier.group_state()) == (-1, "")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ended", [None, True, False])
def test_a_power_cut_keeps_pending_pending_and_decided_decided(driver, ended, seed):
    copier = begun(driver)
    copier.commit_plainly(3)
    assert copier.commit(7) is E.NONE
    if ended is not None:
        assert copier.end(committed=ended) is E.NONE
    driver.crash_and_restart(seed)
    copier.connect()
    before = {None: E.UNSTABLE_OFFSET_COMMIT, True: 7, False: 3}[ended]
    assert copier.fetch() == before
    assert copier.fetch(stable=False) == (7 if ended else 3)
    if ended is None:
        assert copier.commit(8, 1) is E.NONE
        assert copier.end() is E.NONE
        assert (copier.fetch(), copier.fetch(1)) == (7, 8)


def test_a_transaction_that_times_out_drops_its_offsets(driver):
    copier = begun(driver)
    copier.commit_plainly(3)
    copier.commit(7)
    driver.advance(80_000)
    assert copier.fetch() == 3
    assert copier.commit(8) is E.INVALID_PRODUCER_EPOCH
