"""When an OffsetFetch would pass over offsets that a transaction has sent, and what a coordinator of transactions knows
of them: which decided ones lack their marker."""

from __future__ import annotations

import pytest

from oncelog.base.ids import NO_TOPIC_ID, GroupId, ProducerId, TopicName
from oncelog.core.groups.model import FetchedOffset, PendingOffsets
from tests.scenario.groups.driver import GROUP, TOPIC, Driver

A, B = ProducerId(7), ProducerId(8)


@pytest.fixture
def driver() -> Driver:
    """Two transactions: one has sent offsets of partitions 0 and 1, one of 1 and 2; 0 and 3 had one before."""
    driver = Driver()
    driver.commit({0: 1, 3: 1})
    driver.send({0: 5, 1: 5}, producer_id=A)
    driver.send({1: 6, 2: 6}, producer_id=B)
    return driver


def fetch(driver: Driver, *partitions: int, group: GroupId = GROUP, stable: bool = False, undecided=()) -> object:
    """OffsetFetch of some partitions, of all where none is named: offsets by partition, or who is waited for."""
    requests = [(TopicName(TOPIC), NO_TOPIC_ID, index) for index in partitions] or None
    reply = driver.shard.fetch_offsets(group, requests, 0, 0, require_stable=stable, undecided=undecided).reply
    if isinstance(reply, PendingOffsets):
        assert reply.partition == driver.shard.partition
        return reply.producer_ids
    assert isinstance(reply, list)
    assert all(isinstance(found, FetchedOffset) for found in reply)
    return {batch.partition: batch.committed.offset for batch in reply}


def test_only_who_has_sent_an_offset_of_what_is_asked_for_counts(driver: Driver) -> None:
    assert fetch(driver, 0) == {A}
    assert fetch(driver, 1) == {A, B}
    assert fetch(driver, 0, 2, 3) == {A, B}
    assert fetch(driver, 3) == {3: 1}
    assert fetch(driver, 0, group=GroupId("another")) == {0: -1}


def test_undecided_transactions_hold_nobody_up(driver: Driver) -> None:
    assert fetch(driver, 0, undecided={A}) == {0: 1}
    assert fetch(driver, 0, 1, undecided={A}) == {B}
    assert fetch(driver, 0, 1, 2, undecided={A, B}) == {0: 1, 1: -1, 2: -1}


def test_everything_is_also_what_is_not_committed_yet(driver: Driver) -> None:
    assert fetch(driver) == {A, B}
    assert fetch(driver, undecided={A, B}) == {0: 1, 3: 1}


def test_stable_offsets_say_so_themselves_unless_they_are_not_listed(driver: Driver) -> None:
    assert fetch(driver, 0, 1, 2, stable=True) == {0: -1, 1: -1, 2: -1}, "unstable, each of them"
    assert fetch(driver, stable=True) == {A, B}, "1 and 2 are not listed"
    driver.end(B)
    assert fetch(driver, stable=True) == {0: -1, 1: -1, 2: 6, 3: 1}, "the first two are unstable"


def test_nobody_is_waited_for_after_the_marker(driver: Driver) -> None:
    driver.end(A, committed=True)
    assert fetch(driver, 0) == {0: 5}
    driver.end(B, committed=False)
    assert fetch(driver) == {0: 5, 1: 5, 3: 1}
