"""The power goes, or topics go, between the decision of a transaction and its last marker: against a whole node."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.scenario.node.requests import create_topic, produced
from tests.scenario.transactions.node_client import Client, StepwiseDriver, committed_offset, read, run, state_of
from tests.scenario.transactions.node_scenes import begun, both, new_driver, nothing_open


@pytest.fixture
def driver() -> StepwiseDriver:
    return new_driver()


@both
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_failover_between_prepare_and_each_marker(driver: StepwiseDriver, v2: bool, committed: bool) -> None:
    """The power goes when the decision and so many of its markers, one to four, are durable."""
    client = begun(driver, v2, 0, 1, 2)
    run(driver.connect(), client.commit_offset(42))
    for durable in range(5):
        driver.hold_syncs = True
        ender = driver.connect()
        ender.send(*client.end_request(committed))
        driver.finish_held()
        assert state_of(driver, "x") == ("PrepareCommit" if committed else "PrepareAbort")
        told = ender.responses.popleft()
        assert (told.error_code, len(driver.held)) == (ErrorCode.NONE, 4)
        for effect in driver.held[:durable]:
            driver.finish(effect)
        driver.hold_syncs = False
        driver.crash_and_restart(durable)
        assert state_of(driver, "x") == ("CompleteCommit" if committed else "CompleteAbort")
        assert nothing_open(driver)
        assert [len(read(driver, p)[0]) for p in range(3)] == [2 * (durable + 1) if committed else 0] * 3
        assert committed_offset(driver, require_stable=True) == (42 if committed else -1)
        again = driver.connect().ask(*client.end_request(committed))
        assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, told.producer_epoch), "the same answer"
        if v2:
            client.producer_id, client.epoch = told.producer_id, told.producer_epoch
            client.sequences.clear()
        run(driver.connect(), client.transaction("b", (0, 1, 2), None, 42))


@both
def test_a_prepared_transaction_is_finished_when_its_coordinator_loads(driver: StepwiseDriver, v2: bool) -> None:
    client = begun(driver, v2, 0, 1, 2)
    run(driver.connect(), client.commit_offset(42))
    driver.hold_syncs = True
    ender = driver.connect()
    ender.send(*client.end_request(True))
    driver.finish_held()
    assert ender.responses.popleft().error_code == ErrorCode.NONE
    driver.hold_syncs = False
    for seed in range(3):  # the markers may be lost, or there; a second time changes nothing
        driver.crash_and_restart(seed)
        assert state_of(driver, "x") == "CompleteCommit"
        assert [len(read(driver, p)[0]) for p in range(3)] == [2, 2, 2]
        assert committed_offset(driver, require_stable=True) == 42
        assert nothing_open(driver)


@both
def test_a_topic_deleted_while_its_marker_is_pending_holds_nobody_up(driver: StepwiseDriver, v2: bool) -> None:
    create_topic(driver.connect(), "gone", 1)
    client = begun(driver, v2, 0)
    if not v2:
        _add(driver, client, "gone")
    request, version = client.produce_request(0, b"gone", topic="gone")
    request.topic_data[0].partition_data[0].records = _restarted_sequence(client, 0)
    assert produced(driver.connect().ask(request, version))[0] == ErrorCode.NONE
    driver.hold_syncs = True
    ender = driver.connect()
    ender.send(*client.end_request(True))
    driver.finish_held()  # the decision is durable; markers wait for the disk
    assert ender.responses.popleft().error_code == ErrorCode.NONE
    assert state_of(driver, "x") == "PrepareCommit"
    deleted = driver.connect().ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 3)
    assert [topic.error_code for topic in deleted.responses] == [0]
    while driver.held:
        driver.finish_held()
    assert state_of(driver, "x") == "CompleteCommit"
    assert len(read(driver, 0)[0]) == 2


def test_a_topic_deleted_while_nobody_coordinates_holds_nobody_up(driver: StepwiseDriver) -> None:
    """Deleted between Prepare and the restart: the loaded transaction names a partition that is gone."""
    create_topic(driver.connect(), "gone", 1)
    client = begun(driver, True, 0)
    request, version = client.produce_request(0, b"gone", topic="gone")
    request.topic_data[0].partition_data[0].records = _restarted_sequence(client, 0)
    assert produced(driver.connect().ask(request, version))[0] == ErrorCode.NONE
    driver.connect().ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 3)
    driver.hold_syncs = True
    driver.connect().send(*client.end_request(True))
    driver.finish_held()
    driver.hold_syncs = False
    driver.crash_and_restart(4)
    assert state_of(driver, "x") == "CompleteCommit"
    assert len(read(driver, 0)[0]) == 2


def _add(driver: StepwiseDriver, client: Client, topic: str) -> None:
    request, version = next(client.add(0))
    request.v3_and_below_topics[0].name = topic
    assert (
        driver.connect()
        .ask(request, version)
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code
        == 0
    )


def _restarted_sequence(client: Client, sequence: int) -> bytes:
    sequences, client.sequences = client.sequences, {0: sequence}
    request: ProduceRequest = client.produce_request(0, b"gone")[0]
    client.sequences = sequences
    return request.topic_data[0].partition_data[0].records
