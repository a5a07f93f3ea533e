"""When offsets and groups are forgotten (KIP-211), and what an open transaction keeps."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import TopicPartition
from oncelog.base.units import DAY_MS, MINUTE_MS
from oncelog.core.groups import shard as shard_module
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import GROUP, TOPIC, Driver

WEEK_MS = 7 * DAY_MS
CHECK_MS = 10 * MINUTE_MS


def stable(driver: Driver, *, protocol_type: str = "consumer") -> str:
    """One member in a Stable group; its id."""
    driver.join(version=3, protocol_type=protocol_type, session_ms=30 * MINUTE_MS)
    driver.advance(3000)
    member_id = driver.replies[driver.last_token].member_id
    driver.sync(member_id, 1, {member_id: b""})
    return str(member_id)


def keep_alive(driver: Driver, member_id: str, milliseconds: int) -> None:
    """Let time pass while the member sends heartbeats."""
    for _ in range(milliseconds // (20 * MINUTE_MS)):
        driver.advance(20 * MINUTE_MS)
        driver.heartbeat(member_id, 1)


def test_offsets_of_a_simple_group_age_from_their_commit() -> None:
    driver = Driver()
    driver.commit({0: 1})
    driver.advance(WEEK_MS // 2)
    driver.commit({1: 1})
    driver.advance(WEEK_MS // 2 + CHECK_MS)
    assert driver.fetch() == {("t", 1): 1}
    driver.advance(WEEK_MS // 2)
    assert driver.fetch() == {}
    assert driver.state() == "Dead", "nothing is left of the group"


def test_offsets_of_a_group_with_members_age_from_when_it_became_empty() -> None:
    driver = Driver()
    member_id = stable(driver)
    driver.commit({0: 1}, member_id, 1)
    keep_alive(driver, member_id, 8 * DAY_MS)
    driver.leave(member_id)
    driver.advance(WEEK_MS - CHECK_MS)
    assert driver.fetch() == {("t", 0): 1}
    driver.advance(2 * CHECK_MS)
    assert (driver.fetch(), driver.state()) == ({}, "Dead")


def test_a_stable_consumer_group_forgets_topics_it_no_longer_consumes() -> None:
    driver = Driver()
    member_id = stable(driver)
    driver.commit({0: 1}, member_id, 1)
    driver.commit({0: 1}, member_id, 1, topic="former")
    keep_alive(driver, member_id, WEEK_MS + 2 * CHECK_MS)
    assert driver.fetch() == {("t", 0): 1}
    assert driver.state() == "Stable"


def test_a_busy_group_of_another_type_forgets_nothing() -> None:
    driver = Driver()
    member_id = stable(driver, protocol_type="connect")
    driver.commit({0: 1}, member_id, 1)
    keep_alive(driver, member_id, WEEK_MS + 2 * CHECK_MS)
    assert driver.fetch() == {("t", 0): 1}


def test_a_commit_that_named_its_retention_expires_then() -> None:
    driver = Driver()
    driver.commit({0: 1}, retention_ms=30 * MINUTE_MS)
    driver.advance(25 * MINUTE_MS)
    assert driver.fetch() == {("t", 0): 1}
    driver.advance(CHECK_MS)
    assert driver.fetch() == {}


def test_a_group_nobody_joined_is_forgotten_but_not_while_a_member_is_expected() -> None:
    driver = Driver()
    driver.join(session_ms=30 * MINUTE_MS)
    driver.advance(2 * CHECK_MS)
    assert driver.state() == "Empty"
    driver.advance(2 * CHECK_MS)
    assert driver.state() == "Dead"


def test_the_job_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "EXPIRY_GROUPS_PER_TICK", 3)
    driver = Driver(GroupSettings(offsets_retention_ms=1))
    for i in range(10):
        driver.commit({0: 1}, group=f"g{i}")
    driver.now_ms += CHECK_MS
    driver.carry_out(driver.shard.tick(driver.now_ms))
    assert len(driver.shard.listings()) == 7
    driver.advance(100)
    assert driver.shard.listings() == []


class TestTransactions:
    """Offsets that a transaction has sent (KIP-98, KIP-447)."""

    def test_it_is_not_seen_before_the_commit_and_a_stable_fetch_says_so(self) -> None:
        driver = Driver()
        driver.commit({0: 1, 1: 1})
        driver.send({0: 5})
        assert driver.fetch() == {("t", 0): 1, ("t", 1): 1}
        assert driver.fetch(require_stable=True) == {("t", 0): -1, ("t", 1): 1}
        driver.end(committed=True)
        assert driver.fetch(require_stable=True) == {("t", 0): 5, ("t", 1): 1}

    def test_an_abort_drops_it_and_leaves_an_empty_group(self) -> None:
        driver = Driver()
        driver.commit({0: 1})
        for group in (GROUP, "new"):
            driver.send({0: 5}, group=group)
        driver.end(committed=False)
        assert driver.fetch(require_stable=True) == {("t", 0): 1}
        assert (driver.fetch("new"), driver.state("new")) == ({}, "Empty")
        driver.advance(2 * CHECK_MS)
        assert (driver.state(), driver.state("new")) == ("Empty", "Dead")

    def test_a_later_plain_commit_wins_over_the_transaction(self) -> None:
        driver = Driver()
        driver.send({0: 5, 1: 5})
        driver.commit({0: 9})
        driver.end()
        assert driver.fetch() == {("t", 0): 9, ("t", 1): 5}

    def test_of_two_transactions_the_one_that_wrote_later_wins(self) -> None:
        driver = Driver()
        driver.send({0: 5}, producer_id=7)
        driver.send({0: 6}, producer_id=8)
        driver.end(8)
        assert driver.fetch(require_stable=True) == {("t", 0): -1}, "the other may still commit"
        driver.end(7)
        assert driver.fetch(require_stable=True) == {("t", 0): 6}

    def test_a_marker_for_nothing_does_nothing(self) -> None:
        driver = Driver()
        driver.send({0: 5})
        driver.end(8)
        driver.end(7)
        driver.end(7, committed=False)
        assert driver.fetch() == {("t", 0): 5}

    def test_an_open_transaction_keeps_what_it_sends_again_and_the_group(self) -> None:
        driver = Driver()
        driver.commit({0: 1, 1: 1})
        driver.send({0: 5})
        driver.advance(2 * WEEK_MS)
        assert driver.fetch() == {("t", 0): 1}
        driver.end(committed=False)
        driver.advance(2 * CHECK_MS)
        assert driver.state() == "Dead"

    def test_once_committed_it_ages_from_when_it_was_sent(self) -> None:
        driver = Driver()
        driver.send({0: 5})
        driver.advance(WEEK_MS - CHECK_MS)
        driver.end()
        assert driver.fetch() == {("t", 0): 5}
        driver.advance(2 * CHECK_MS)
        assert (driver.fetch(), driver.state()) == ({}, "Dead")

    def test_what_is_deleted_does_not_come_back_with_the_marker(self) -> None:
        driver = Driver()
        driver.send({0: 5, 1: 5, 2: 5})
        driver.carry_out(driver.shard.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)], 0, 0))
        driver.carry_out(driver.shard.partitions_deleted([TopicPartition(TOPIC, 1)], 0))
        assert driver.fetch(require_stable=True) == {}
        driver.end()
        assert driver.fetch() == {("t", 2): 5}

    def test_deleting_the_group_drops_pending_offsets_too(self) -> None:
        driver = Driver()
        driver.send({0: 5})
        driver.carry_out(driver.shard.delete_group(GROUP, 0, 0))
        assert driver.state() == "Dead"
        driver.end()
        assert (driver.fetch(), driver.state()) == ({}, "Dead")

    def test_a_transaction_does_not_prolong_the_members_session(self) -> None:
        driver = Driver()
        driver.join(version=3, session_ms=10_000)
        driver.advance(3000)
        member_id = driver.replies[driver.last_token].member_id
        driver.sync(member_id, 1, {member_id: b""})
        driver.advance(9_000)
        assert driver.send({0: 5}, member_id, 1).partitions == [E.NONE]
        driver.advance(1_000)
        assert driver.state() == "Empty"
        driver.end()
        assert driver.fetch() == {("t", 0): 5}


def test_what_cannot_be_read_is_passed_over() -> None:
    driver = Driver()
    for key, value in (
        (b"", b""),
        (b"\0\x03\0\0", b"\0\0"),
        (b"\x00\x02\x00\x01g", b"\0\x63"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\0\x63"),
    ):
        driver.shard.apply(key, value)
    assert driver.shard.listings() == []
