"""Sessions and share partitions that end between the slices of a ShareFetch of many partitions."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share import partition as machine
from oncelog.core.share.model import RecordState
from oncelog.handlers.broker.shares import NOT_LEADER, LedSharePartition
from oncelog.node.kernel.events import Continued
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic
from tests.scenario.share.members import ACCEPT, Member, acquired, write

COUNT = 260
KEYS = [("many", index) for index in range(COUNT)]


@pytest.fixture(autouse=True)
def many(driver: Driver) -> None:
    create_topic(driver.connect(), "many", COUNT)


def go_on(driver: Driver, slices: int = 20) -> None:
    for _ in range(slices):
        driver.dispatch(Continued())


def test_a_member_that_goes_leaves_no_share_partitions(driver, member) -> None:
    shares = driver.node.share.partitions
    driver.hold_slices = True
    member.send_fetch(*KEYS)
    assert 0 < len(shares.led_partitions) < COUNT
    driver.disconnect(member.peer)
    driver.advance(10)
    go_on(driver)
    assert len(shares.led_partitions) == 0


def test_a_request_whose_session_is_replaced_does_not_go_on(driver, member) -> None:
    member.fetch(*KEYS)
    driver.disconnect(member.peer)
    driver.hold_slices = True
    displaced, last = Member(driver), Member(driver)
    displaced.send_fetch(*KEYS)
    last.send_fetch(*KEYS)
    go_on(driver, 1)
    assert displaced.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    go_on(driver)
    assert last.answer().error_code == E.NONE


def test_members_that_only_pass_by_leave_nothing_to_release(driver, member) -> None:
    shares = driver.node.share.partitions
    driver.hold_slices = True
    for _ in range(3):
        passing = Member(driver)
        passing.send_fetch(*KEYS)
        driver.disconnect(passing.peer)
        assert len(shares.led_partitions) <= 50
        assert shares._releases.partition_count == 0
    go_on(driver)
    driver.advance(100)
    assert len(shares.led_partitions) == 0


def acquire_first_slice(driver: Driver, member: Member, count: int) -> list[LedSharePartition]:
    """A fetch of records in so many partitions has acquired those of its first slice; returns where."""
    keys = KEYS[:count]
    member.fetch(*keys)
    for _, index in keys:
        write(driver, "many", 1, index)
    driver.hold_slices = True
    member.send_fetch(max_records=1_000)
    for _ in range(10):
        acquired_from = held(driver)
        if acquired_from:
            break
        go_on(driver, 1)
    assert 0 < len(acquired_from) < count
    assert not member.peer.responses
    return acquired_from


def held(driver: Driver) -> list[LedSharePartition]:
    """Share partitions with records that a member holds."""
    led = driver.node.share.partitions.led_partitions
    return [
        entry
        for entry in led
        if entry.machine and any(run.delivery_state is RecordState.ACQUIRED for run in entry.machine.in_flight())
    ]


def held_records(driver: Driver) -> int:
    runs = (
        run
        for entry in driver.node.share.partitions.led_partitions
        if entry.machine
        for run in entry.machine.in_flight()
    )
    return sum(run.last_offset - run.first_offset + 1 for run in runs if run.delivery_state is RecordState.ACQUIRED)


def test_a_share_partition_that_is_lost_between_slices_returns_no_records(driver, member) -> None:
    lost = acquire_first_slice(driver, member, 120)[0]
    driver.node.share.partitions._drop(lost, NOT_LEADER)  # as at the end of a leadership
    other = Member(driver, member_id="other")
    other.send_fetch(("many", lost.key.partition))
    go_on(driver)
    got = other.answer()
    assert acquired(got, lost.key.partition) == [(0, 0, 1)]
    parts = {part.partition_index: part for topic in member.answer().responses for part in topic.partitions}
    assert parts[lost.key.partition].error_code == E.NOT_LEADER_OR_FOLLOWER
    assert not parts[lost.key.partition].acquired_records
    assert sum(bool(part.acquired_records) for part in parts.values()) == 119


@pytest.mark.parametrize("repeats", [False, True])
def test_a_request_displaced_between_slices_gives_back_what_it_acquired(driver, member, repeats) -> None:
    acquire_first_slice(driver, member, 120)
    again = Member(driver)
    again.epoch = member.epoch - 1 if repeats else 0
    again.send_fetch(*([] if repeats else [("t", 0)]), max_records=0)
    go_on(driver)
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert again.answer().error_code == E.NONE
    assert held(driver) == []


def test_records_of_a_later_delivery_are_not_given_back(driver, member) -> None:
    """The locks of the first slice end, and the member's next session gets its records again."""
    acquire_first_slice(driver, member, 120)
    driver.advance(30_010)
    assert held(driver) == []
    again = Member(driver)
    got = again.fetch(*KEYS[:40], max_records=1_000)
    go_on(driver)
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert sum(len(topic.partitions) for topic in got.responses) == len(held(driver)) == 40


def test_many_locks_that_expire_together_end_in_steps(driver, member, monkeypatch) -> None:
    monkeypatch.setattr(machine, "LOCKS_PER_STEP", 2)
    write(driver, "t", 5)
    for _ in range(5):
        member.fetch(("t", 0), max_records=1, share_acquire_mode=1)
    driver.advance(30_000)
    ended = [5 - held_records(driver)]
    while held_records(driver):
        driver.advance(1)
        ended.append(5 - held_records(driver))
    assert ended == [2, 4, 5]


def test_a_request_displaced_while_its_acknowledgements_are_written_gives_back_what_it_acquired(
    driver, member, persister
) -> None:
    write(driver, "t", 1)
    write(driver, "t", 2)
    member.fetch(("t", 0), max_records=1)
    persister.holds = True
    member.send_fetch(acks=[("t", 0, 0, 0, ACCEPT)])
    Member(driver).send_fetch(("t", 1))
    persister.holds = False
    persister.release(driver)
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert acquired(Member(driver, member_id="other").fetch(("t", 0))) == [(1, 2, 2)]


def test_settings_of_a_group_go_with_its_last_share_partition(driver, member) -> None:
    shares = driver.node.share.partitions
    member.fetch(("t", 0), ("t", 1))
    assert list(shares._settings_of_groups) == ["g"]
    driver.disconnect(member.peer)
    assert not shares._settings_of_groups
