"""When offsets and groups are forgotten (KIP-211), and what an open transaction keeps."""

from __future__ import annotations

import pytest

from oncelog.base.ids import GroupId, Offset, ProducerId, TopicName
from oncelog.base.units import DAY_MS, MINUTE_MS
from oncelog.core.groups import shard as shard_module
from oncelog.core.groups.model import CommittedOffset, GroupSettings, Record
from oncelog.core.groups.persistence import offset_record
from tests.scenario.groups.driver import GROUP, TOPIC, Driver

WEEK_MS = 7 * DAY_MS
CHECK_MS = 10 * MINUTE_MS
PRODUCER = ProducerId(7)


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

    def pending(self, driver: Driver, offset: int = 5, group: str = GROUP) -> Record:
        """Apply a transactional commit of partition 0."""
        record = offset_record(GroupId(group), TopicName(TOPIC), 0, CommittedOffset(Offset(offset)))
        driver.shard.apply(*record, producer_id=PRODUCER)
        return record

    def test_it_is_not_seen_before_the_commit_and_a_stable_fetch_says_so(self) -> None:
        driver = Driver()
        driver.commit({0: 1, 1: 1})
        self.pending(driver)
        driver.shard.check()
        assert driver.fetch() == {("t", 0): 1, ("t", 1): 1}
        assert driver.fetch(require_stable=True) == {("t", 0): -1, ("t", 1): 1}
        driver.shard.apply_end_transaction(PRODUCER, committed=True)
        assert driver.fetch(require_stable=True) == {("t", 0): 5, ("t", 1): 1}
        driver.shard.check()

    def test_an_abort_drops_it(self) -> None:
        driver = Driver()
        driver.commit({0: 1})
        self.pending(driver)
        driver.shard.apply_end_transaction(PRODUCER, committed=False)
        assert driver.fetch(require_stable=True) == {("t", 0): 1}

    def test_a_later_plain_commit_wins_over_the_transaction(self) -> None:
        driver = Driver()
        self.pending(driver)
        driver.shard.apply(*offset_record(GROUP, TOPIC, 0, CommittedOffset(Offset(9))))
        driver.shard.apply_end_transaction(PRODUCER, committed=True)
        assert driver.fetch() == {("t", 0): 9}

    def test_an_open_transaction_keeps_offsets_and_group(self) -> None:
        driver = Driver()
        driver.shard.apply(*offset_record(GROUP, TOPIC, 0, CommittedOffset(Offset(1), commit_timestamp_ms=0)))
        self.pending(driver)
        assert driver.shard.tick(driver.now_ms + 2 * WEEK_MS).records == []

    def test_deleting_the_group_drops_pending_offsets_too(self) -> None:
        driver = Driver()
        self.pending(driver)
        for key, value in driver.shard.delete_group(GROUP, 0, 0).records:
            driver.shard.apply(key, value)
        driver.shard.check()
        driver.shard.apply_end_transaction(PRODUCER, committed=True)
        assert (driver.fetch(), driver.state()) == ({}, "Dead")


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
