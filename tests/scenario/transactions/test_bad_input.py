"""Bad transactional requests: Apache Kafka's error, and not one state changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from oncelog.base.errors import ErrorCode
from tests.scenario.node.requests import log_of, produced
from tests.scenario.transactions.bad_input import (
    CASES,
    Case,
    add,
    commit_offset,
    error_codes,
    marker,
    produce,
    the_same_batch,
)
from tests.scenario.transactions.node_client import (
    GROUP,
    TOPIC,
    Client,
    StepwiseDriver,
    committed_offset,
    read,
    run,
    state_of,
)
from tests.scenario.transactions.node_scenes import new_driver
from tests.scenario.transactions.test_node_restart import look_at


def begun(v2: bool) -> tuple[StepwiseDriver, Client]:
    """A node with a client that has a transaction open in partition 0, and an offset pending."""
    driver = new_driver()
    client = Client("x", v2)
    for _ in range(2):  # so that there is an earlier epoch
        run(driver.connect(), client.initialise())
    run(driver.connect(), client.transaction("a", (0,), None, 5))
    return driver, client


def states(driver: StepwiseDriver) -> object:
    """Everything that is in a log or made from one, as it is now."""
    return copy.deepcopy(look_at(driver))


REFUSED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
}


@pytest.mark.parametrize("case", CASES, ids=[f"{case.name} {'v2' if case.v2 else 'v1'}" for case in CASES])
def test_it_is_refused_and_changes_nothing(case: Case) -> None:
    driver, client = begun(case.v2)
    before = states(driver)
    assert error_codes(driver.connect().ask(*case.request(client))) == case.expected
    assert states(driver) == before


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
def test_what_comes_after_the_end_is_refused_on_any_connection(v2: bool) -> None:
    """Late: the client has been told of the commit. V1 gives no new epoch, so there the end itself is recognised."""
    driver, client = begun(v2)
    late = replace(client, sequences=dict(client.sequences))
    run(driver.connect(), client.end(True))
    before = states(driver)
    requests = [produce(late), commit_offset(late)] + ([add(late, 1), late.end_request(False)] if v2 else [])
    for request, version in requests:
        assert error_codes(driver.connect().ask(request, version)) & REFUSED
    assert error_codes(driver.connect().ask(*late.end_request(True))) == frozenset()
    assert states(driver) == before


def test_a_batch_repeated_on_another_connection_answers_its_first_offset() -> None:
    driver, client = begun(True)
    again, version = the_same_batch(client)
    assert produced(driver.connect().ask(again, version)) == (0, 0)
    assert log_of(driver, TOPIC).log_end_offset == 2


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
def test_markers_out_of_order_change_nothing(v2: bool) -> None:
    """After the end: the commit's marker of the epoch before, and one of an older coordinator."""
    driver, client = begun(v2)
    before_the_end = client.epoch
    run(driver.connect(), client.end(True))
    run(driver.connect(), client.transaction("b", (0,), None, None))
    before = states(driver)
    request, version = marker(client, epoch=before_the_end - 1)
    assert error_codes(driver.connect().ask(request, version)) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    request, version = marker(client, epoch=client.epoch + 1)
    request.markers[0].coordinator_epoch = -5
    assert error_codes(driver.connect().ask(request, version)) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert states(driver) == before
    run(driver.connect(), client.end(True))
    assert len(read(driver, 0)[0]) == 4
    assert committed_offset(driver, GROUP) == 5
    assert state_of(driver, "x") == "CompleteCommit"
