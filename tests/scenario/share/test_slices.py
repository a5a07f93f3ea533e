"""What may happen between the slices of a ShareFetch of many partitions."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.node.kernel.events import Continued
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic
from tests.scenario.share.members import Member

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


def test_settings_of_a_group_go_with_its_last_share_partition(driver, member) -> None:
    shares = driver.node.share.partitions
    member.fetch(("t", 0), ("t", 1))
    assert list(shares._settings_of_groups) == ["g"]
    driver.disconnect(member.peer)
    assert not shares._settings_of_groups
