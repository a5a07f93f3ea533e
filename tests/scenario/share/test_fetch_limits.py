"""Limits of ShareFetch: records, bytes, partitions, sessions and quotas (KIP-932)."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from tests.scenario.node.requests import batch, create_topic, produce
from tests.scenario.node.test_quotas import set_quota
from tests.scenario.share.members import Member, acquired, errors, write

T = ("t", 0)


def test_limits_of_records_and_bytes(driver, member) -> None:
    for _ in range(4):
        write(driver, "t", 10)
    assert acquired(member.fetch(T, max_records=15))[-1][1] == 19  # whole batches
    one = member.fetch(max_bytes=1)  # at least a batch, however large
    assert acquired(one) == [(20, 29, 1)]
    assert member.fetch(max_records=0, max_wait_ms=500).responses == []
    assert acquired(member.fetch(batch_size=0, max_records=1))[0][0] == 30
    assert errors(member.fetch(max_bytes=-1)) == [E.UNKNOWN_SERVER_ERROR]


def test_the_record_limit_cuts_batches(driver, member) -> None:
    write(driver, "t", 10)
    assert acquired(member.fetch(T, max_records=4, share_acquire_mode=1)) == [(0, 3, 1)]
    assert acquired(member.fetch(max_records=4, share_acquire_mode=1)) == [(4, 7, 1)]


def test_partitions_take_turns(driver, member) -> None:
    for partition in (0, 1):
        for _ in range(3):
            write(driver, "t", 1, partition)
    first = member.fetch(T, ("t", 1), max_records=1)
    second = member.fetch(max_records=1)
    assert {index for index in (0, 1) if acquired(first, index)} != {
        index for index in (0, 1) if acquired(second, index)
    }


def test_more_partitions_than_are_read_at_once(driver, member) -> None:
    create_topic(driver.connect(), "many", 60)
    keys = [("many", index) for index in range(60)]
    assert acquired(member.fetch(*keys)) == []
    for _, index in keys:
        write(driver, "many", 1, index)
    first = [*partitions_with_records(member.fetch(max_records=55))]
    assert len(first) == 55
    member.send_fetch(max_records=1_000, max_wait_ms=500)
    second = [*partitions_with_records(member.answer())]
    assert sorted(first + second) == list(range(60))
    other = Member(driver, member_id="other")
    other.send_fetch(*keys, max_wait_ms=500)
    driver.disconnect(member.peer)
    driver.advance(500)
    released = partitions_with_records(other.answer())
    released += partitions_with_records(other.fetch(max_records=1_000))
    assert sorted(released) == list(range(60))


def test_a_member_that_begins_again_at_once_gets_what_its_session_had(driver, member) -> None:
    create_topic(driver.connect(), "many", 60)
    keys = [("many", index) for index in range(60)]
    for _, index in keys:
        write(driver, "many", 1, index)
    member.fetch(*keys)
    driver.disconnect(member.peer)
    again = Member(driver)
    assert len(partitions_with_records(again.fetch(*keys))) == 60


def partitions_with_records(response) -> list[int]:
    assert response.error_code == E.NONE
    return [part.partition_index for topic in response.responses for part in topic.partitions if part.acquired_records]


def test_min_bytes_are_waited_for(driver, member) -> None:
    write(driver, "t", 1)
    member.send_fetch(T, min_bytes=1000, max_wait_ms=500)
    write(driver, "t", 1)
    assert not member.peer.responses
    write(driver, "t", 200)
    assert acquired(member.answer())[-1][1] == 201


def test_the_session_limit_answers_after_the_wait(driver, persister) -> None:
    driver.node.share.partitions.sessions._most = 1
    Member(driver).fetch(T)
    late = Member(driver, member_id="n")
    late.send_fetch(T, max_wait_ms=500)
    assert not late.peer.responses
    driver.advance(500)
    assert late.answer().error_code == E.SHARE_SESSION_LIMIT_REACHED


def test_a_member_over_its_quota_gets_its_records_and_waits_afterwards(driver, member) -> None:
    set_quota(driver.connect(), consumer_byte_rate=1000.0)
    for _ in range(2):
        assert not member.peer.paused
        member.driver.connect().ask(produce("t", batch(driver, b"x" * 6000)), 9)
        got = member.fetch(T)
        assert acquired(got)
    assert 1000 <= got.throttle_time_ms <= 3000
    assert member.peer.paused
    driver.advance(got.throttle_time_ms)
    assert not member.peer.paused
