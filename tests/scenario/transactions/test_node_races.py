"""Requests that come late, wrong or to what is gone, against a whole node: coordinator, leader and disk."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CoordinatorEpoch, TopicPartition
from oncelog.core.transactions.transitions import EXHAUSTED
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.node.requests import batch, create_topic, log_of, produce, produced
from tests.scenario.transactions.node_client import (
    SETTINGS,
    TOPIC,
    Client,
    StepwiseDriver,
    committed_offset,
    read,
    run,
    state_of,
)
from tests.scenario.transactions.node_scenes import begun, both, new_driver, nothing_open


@pytest.fixture
def driver() -> StepwiseDriver:
    return new_driver()


@both
def test_kip_890_a_late_produce_after_the_abort_opens_nothing(driver: StepwiseDriver, v2: bool) -> None:
    client = begun(driver, v2, 0)
    late, version = client.produce_request(0, b"late")
    never_added, _ = client.produce_request(1, b"late")
    run(driver.connect(), client.end(False))
    for request in (late, never_added):
        error_code, _ = produced(driver.connect().ask(request, version))
        assert error_code == (ErrorCode.INVALID_PRODUCER_EPOCH if v2 else ErrorCode.TRANSACTION_ABORTABLE)
    assert nothing_open(driver)
    assert [log_of(driver, TOPIC, p).log_end_offset for p in range(3)] == [3, 0, 0]


def test_kip_890_a_produce_verified_before_the_abort_is_refused_after_it(driver: StepwiseDriver) -> None:
    """The guard: the produce waits for the durable addition of its partition while the abort overtakes it."""
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    producer, ender = driver.connect(), driver.connect()
    request, version = client.produce_request(1, b"late")
    producer.send(request, version)  # adds the partition, and waits for the disk
    ender.send(*client.end_request(False))
    while driver.held:
        driver.finish_held()
    driver.hold_syncs = False
    assert ender.responses.popleft().error_code == ErrorCode.NONE
    error_code, _ = produced(producer.responses.popleft())
    assert error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE)
    assert nothing_open(driver)
    assert read(driver, 1)[0] == []


def test_who_was_told_of_a_commit_sees_it_although_its_markers_are_left_for_the_next_turn() -> None:
    driver = StepwiseDriver({**SETTINGS, "log.sync.policy": "none"})
    create_topic(driver.connect(), TOPIC, 3)
    client = begun(driver, True, 0, 1)
    driver.hold_turns = True
    run(driver.connect(), client.end(True))
    assert log_of(driver, TOPIC, 0).log_end_offset == 2, "answered, and no marker yet"
    assert read(driver, 0)[0] == [b"x/a/0/0", b"x/a/0/1"]


def test_a_produce_of_the_next_transaction_may_come_before_the_markers_of_the_last(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0, 1)
    driver.hold_turns = True
    run(driver.connect(), client.end(True))
    client.begin()
    assert run(driver.connect(), client.produce(0, b"next")) == (ErrorCode.NONE, 3)
    assert run(driver.connect(), client.end(True)) == ErrorCode.NONE
    assert read(driver, 0)[0] == [b"x/a/0/0", b"x/a/0/1", b"next"]
    assert nothing_open(driver)


@both
def test_kafka_9144_a_late_write_of_the_old_epoch_after_the_marker_is_refused(driver: StepwiseDriver, v2: bool) -> None:
    """The time-out raises the epoch and aborts; then the producer's batch arrives."""
    client = begun(driver, v2, 0)
    late, version = client.produce_request(0, b"late")
    driver.advance(40_000)
    assert state_of(driver, "x") == "CompleteAbort"
    assert produced(driver.connect().ask(late, version))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    driver.session.close()
    driver.start()  # the producer's epoch in the log is that of the marker
    assert produced(driver.connect().ask(late, version))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert nothing_open(driver)


def test_kafka_17754_a_late_end_does_not_end_the_next_transaction(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    late = client.end_request(False)
    run(driver.connect(), client.end(True))
    run(driver.connect(), client.transaction("b", (0, 1), None, None))
    assert driver.connect().ask(*late).error_code == ErrorCode.PRODUCER_FENCED
    assert state_of(driver, "x") == "Ongoing"
    run(driver.connect(), client.end(True))
    assert len(read(driver, 0)[0]) == 4


@both
def test_a_retried_end_is_answered_alike_and_writes_no_marker_again(driver: StepwiseDriver, v2: bool) -> None:
    client = begun(driver, v2, 0, 1)
    request = client.end_request(True)
    first = driver.connect().ask(*request)
    ends = [log_of(driver, TOPIC, p).log_end_offset for p in range(3)]
    again = driver.connect().ask(*request)
    assert (first.error_code, again.error_code) == (0, 0)
    assert (first.producer_id, first.producer_epoch) == (again.producer_id, again.producer_epoch)
    assert [log_of(driver, TOPIC, p).log_end_offset for p in range(3)] == ends


def test_a_v1_produce_to_a_partition_not_added_is_refused(driver: StepwiseDriver) -> None:
    client = begun(driver, False, 0)
    for version, expected in ((11, ErrorCode.TRANSACTION_ABORTABLE), (10, ErrorCode.INVALID_TXN_STATE)):
        request, _ = client.produce_request(1, b"stray")
        assert produced(driver.connect().ask(request, version))[0] == expected
    assert log_of(driver, TOPIC, 1).log_end_offset == 0
    run(driver.connect(), client.end(True))
    assert nothing_open(driver)


def test_epochs_run_out_and_the_producer_goes_on_with_a_new_id(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    run(driver.connect(), client.end(True))
    shard = next(iter(driver.node.transactions.shards()))
    held = shard._transactions.get("x")
    shard._transactions.put(held._replace(identity=held.identity._replace(producer_epoch=EXHAUSTED - 1)))
    before = client.producer_id
    client.epoch = EXHAUSTED - 1
    for label in "bcd":
        run(driver.connect(), client.transaction(label, (0, 1), True, 7))
    assert client.producer_id > before
    assert client.epoch < 10
    assert nothing_open(driver)
    assert [len(read(driver, p)[0]) for p in range(2)] == [8, 6]
    driver.crash_and_restart(1)
    run(driver.connect(), client.transaction("e", (0, 1), True, 8))
    assert [len(read(driver, p)[0]) for p in range(2)] == [10, 8]
    assert committed_offset(driver) == 8


def test_pending_offsets_are_unstable_until_the_marker(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    run(driver.connect(), client.commit_offset(42))
    assert committed_offset(driver) == -1
    assert committed_offset(driver, require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    run(driver.connect(), client.end(False))
    assert committed_offset(driver, require_stable=True) == -1


def test_a_request_that_meets_a_completing_transaction_waits_for_it(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    ender, newcomer = driver.connect(), driver.connect()
    ender.send(*client.end_request(True))
    driver.finish_held()
    newcomer.send(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000), 5)
    assert not newcomer.responses
    while driver.held:
        driver.finish_held()
    assert newcomer.responses.popleft().error_code == ErrorCode.NONE


def test_who_waits_for_a_transaction_that_does_not_complete_is_told(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    driver.connect().send(*client.end_request(True))
    driver.finish_held()
    newcomer = driver.connect()
    newcomer.send(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000), 5)
    driver.advance(5_000)
    assert newcomer.responses.popleft().error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_ordinary_write_inside_an_open_transaction_is_refused(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    records = batch(driver, b"plain", producer_id=client.producer_id, producer_epoch=client.epoch, base_sequence=2)
    assert produced(driver.connect().ask(produce(TOPIC, records), 9))[0] == ErrorCode.INVALID_TXN_STATE
    assert log_of(driver, TOPIC).log_end_offset == 2


def test_control_batches_of_clients_are_refused(driver: StepwiseDriver) -> None:
    records = batch(driver, b"x", producer_id=1, producer_epoch=0, base_sequence=0, control=True)
    response = driver.connect().ask(produce(TOPIC, records), 9)
    assert produced(response)[0] == ErrorCode.INVALID_RECORD
    assert log_of(driver, TOPIC).log_end_offset == 0


def test_a_marker_of_an_older_coordinator_is_fenced_and_changes_nothing(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    log = log_of(driver, TOPIC)
    entry = log.producers.entries[client.producer_id]
    log.producers.entries[client.producer_id] = entry._replace(coordinator_epoch=CoordinatorEpoch(9))
    before = log.producers.entries[client.producer_id]
    marker = WritableTxnMarker(
        producer_id=client.producer_id,
        producer_epoch=client.epoch + 1,
        transaction_result=True,
        coordinator_epoch=3,
        transaction_version=2,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    response = driver.connect().ask(WriteTxnMarkersRequest(markers=[marker]), 2)
    (result,) = response.markers[0].topics[0].partitions
    assert result.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.producers.entries[client.producer_id] == before
    assert log.log_end_offset == 2


def verify_request(client: Client, partition: int) -> AddPartitionsToTxnRequest:
    """The question of a partition's leader about a client's transaction."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=client.transactional_id,
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
            )
        ]
    )


def test_a_verification_waits_for_its_own_id_and_for_no_other(driver: StepwiseDriver) -> None:
    """Both ids are in one partition of the log, and the disk has only the first one's records."""
    client, other = begun(driver, False, 0), begun(driver, False, 1, transactional_id="y")
    driver.hold_syncs = True
    ender, leader = driver.connect(), driver.connect()
    ender.send(*other.end_request(True))
    answer = leader.ask(verify_request(client, 0), 5)
    assert answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code == 0
    assert not ender.responses
    adding = driver.connect()
    adding.send(client.add_request(2), 3)
    leader.send(verify_request(client, 2), 5)
    assert not leader.responses
    while driver.held:
        driver.finish_held()
    answer = leader.responses.popleft()
    assert answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code == 0


def initialising(name: str) -> InitProducerIdRequest:
    """InitProducerId of a new instance."""
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)


def test_the_very_first_request_is_answered_once_its_coordinator_is_there() -> None:
    """It makes the internal topic, and waits for it; Apache Kafka says NOT_COORDINATOR until somebody looks for one."""
    answer = StepwiseDriver().connect().ask(initialising("x"), 4)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)


def killed_while_loading(driver: StepwiseDriver) -> None:
    """Start again over a log that is in the page cache only, on a disk that takes its time."""
    driver.session.close()
    driver.hold_syncs = True
    driver.start()
    assert not list(driver.node.transactions.shards())


def test_requests_wait_for_their_coordinator_to_load(driver: StepwiseDriver) -> None:
    """In the order in which they came; not for ever; that of a client that has gone is carried out, too."""
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    driver.connect().send(*client.end_request(False))  # so that the log has an end that is not on disk
    driver.held.clear()
    killed_while_loading(driver)
    first, second, gone, impatient = (driver.connect() for _ in range(4))
    impatient.send(initialising("x"), 4)
    driver.advance(5000)
    assert impatient.responses.popleft().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for peer in (first, second, gone):
        peer.send(initialising("x"), 4)
    driver.disconnect(gone)
    assert not first.responses
    driver.hold_syncs = False
    driver.release()
    answers = [peer.responses.popleft() for peer in (first, second)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 2
    assert answers[1].producer_epoch == answers[0].producer_epoch + 1
    assert driver.connect().ask(initialising("x"), 4).producer_epoch == answers[1].producer_epoch + 2


def test_transactions_in_one_request_are_asked_about_side_by_side(driver: StepwiseDriver) -> None:
    """The first is still completing and waits; the second is added meanwhile; the answer names both, in order."""
    client, other = begun(driver, True, 0), begun(driver, True, 1, transactional_id="y")
    driver.hold_syncs = True
    ender, leader = driver.connect(), driver.connect()
    ender.send(*client.end_request(True))
    request = verify_request(client, 2)
    request.transactions += verify_request(other, 2).transactions
    for transaction in request.transactions:
        transaction.verify_only = False
    request.transactions[0].producer_epoch += 1  # as its client knows after the end
    leader.send(request, 5)
    assert TopicPartition(TOPIC, 2) in driver.node.transactions.shard_of("y").describe("y").partitions
    assert not leader.responses
    while driver.held:
        driver.finish_held()
    results = leader.responses.popleft().results_by_transaction
    assert [result.transactional_id for result in results] == ["x", "y"]
    told = [result.topic_results[0].results_by_partition[0].partition_error_code for result in results]
    assert told == [ErrorCode.NONE, ErrorCode.NONE]
    assert state_of(driver, "x") == "Ongoing"


def test_who_does_not_want_requests_to_wait_may_say_so() -> None:
    """As Apache Kafka: its clients are told to come again at once."""
    driver = StepwiseDriver({**SETTINGS, "oncelog.transaction.wait.ms": "0"})
    create_topic(driver.connect(), TOPIC, 3)
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    driver.connect().send(*client.end_request(True))
    other = driver.connect()
    other.send(initialising("x"), 4)
    driver.advance(0)
    while not other.responses:
        driver.finish_held()
    assert other.responses.popleft().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
