"""A client of small transactions: what it waits for, and what goes on after the answer."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from tests.scenario.node.requests import create_topic, log_of, produced
from tests.scenario.transactions.node_client import SETTINGS, TOPIC, Client, StepwiseDriver, run
from tests.scenario.transactions.node_scenes import begun, both, new_driver, nothing_open


def at_page_cache() -> StepwiseDriver:
    """A node that acknowledges from the page cache: nothing waits for a disk."""
    driver = StepwiseDriver({**SETTINGS, "log.sync.policy": "none"})
    create_topic(driver.connect(), TOPIC, 3)
    return driver


@both
def test_the_end_is_answered_before_the_markers_are_written(v2: bool) -> None:
    """They are with the next event, whatever it is: who is told of a commit and asks finds it."""
    driver = at_page_cache()
    client = begun(driver, v2, 0, 1)
    end = log_of(driver, TOPIC).log_end_offset
    driver.hold_turns = True
    assert driver.connect().ask(*client.end_request(True)).error_code == ErrorCode.NONE
    assert log_of(driver, TOPIC).log_end_offset == end
    assert nothing_open(driver)
    assert log_of(driver, TOPIC).log_end_offset == end + 1
    driver.finish_held()
    assert log_of(driver, TOPIC).log_end_offset == end + 1


def test_nobody_need_ask_for_the_markers_to_be_written() -> None:
    driver = at_page_cache()
    client = begun(driver, True, 0)
    driver.connect().ask(*client.end_request(True))
    assert log_of(driver, TOPIC).producers.first_unstable_offset() is None


def test_a_v1_produce_waits_only_where_its_addition_is_not_durable() -> None:
    """A crash in between would leave records of a transaction that nobody knows."""
    driver = new_driver()
    client = Client("x", False)
    run(driver.connect(), client.initialise())
    client.begin()
    driver.hold_syncs = True
    adding, producing = driver.connect(), driver.connect()
    adding.send(client.add_request(0), 3)
    request, version = client.produce_request(0, b"early")
    producing.send(request, version)
    assert (len(adding.responses), log_of(driver, TOPIC).log_end_offset) == (0, 0)
    driver.finish_held()
    assert (len(adding.responses), log_of(driver, TOPIC).log_end_offset) == (1, 1)
    driver.finish_held()
    assert produced(producing.responses.popleft())[0] == ErrorCode.NONE


def test_acks_all_waits_for_the_disk_where_the_policy_says_so() -> None:
    """And is answered at once where records count as kept when they are appended."""
    for driver, waits in ((at_page_cache(), False), (new_driver(), True)):
        client = begun(driver, True, 0)
        driver.hold_syncs = True
        peer = driver.connect()
        peer.send(*client.produce_request(0, b"more"))
        assert len(peer.responses) == (0 if waits else 1)
