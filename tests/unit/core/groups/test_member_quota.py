"""The memory that members of groups may hold until they leave, and what many protocols of one cost."""

from __future__ import annotations

import time

from oncelog.base.errors import ErrorCode as E
from oncelog.core.groups.model import Protocol
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import Driver


def offering(size: int) -> tuple[Protocol, ...]:
    return (Protocol("range", bytes(size)),)


def test_beyond_the_bound_newcomers_wait_until_some_have_gone_and_members_go_on() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3000, members_max_bytes=100_000))
    tokens = []
    for name in "abc":
        driver.join(name=name, version=3, protocols=offering(30_000))
        tokens.append(driver.last_token)
    refused = driver.join(name="d", version=3, protocols=offering(30_000))
    assert refused.error_code is E.COORDINATOR_NOT_AVAILABLE
    driver.advance(6000)
    members = [driver.replies[token].member_id for token in tokens]
    again = driver.join(members[0], version=3, protocols=offering(30_000))
    assert again is None or again.error_code is E.NONE, "who is a member may say it again"
    more = driver.join(members[1], version=3, protocols=offering(60_000))
    assert more.error_code is E.COORDINATOR_NOT_AVAILABLE
    driver.advance(60_000)  # nobody has said a word for as long as a session is
    assert driver.join(name="d", version=3, protocols=offering(30_000)) is None


def test_members_without_a_common_protocol_are_told_apart_without_comparing_all_with_all() -> None:
    took_s = []
    for count in (1_000, 8_000):
        driver = Driver()
        driver.join(name="a", version=3, protocols=tuple(Protocol(f"a{index}", b"") for index in range(count)))
        others = tuple(Protocol(f"b{index}", b"") for index in range(count))
        started_s = time.thread_time()
        assert driver.join(name="b", version=3, protocols=others).error_code is E.INCONSISTENT_GROUP_PROTOCOL
        took_s.append(time.thread_time() - started_s)
    assert took_s[1] < 32 * took_s[0] + 0.01, "eight times as many: not sixty-four times as long"
