"""ShareFetch and ShareAcknowledge at one broker, in virtual time (KIP-932)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share.model import ShareState
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.hanging import Producer, made
from tests.scenario.node.requests import batch, log_of, produce
from tests.scenario.node.test_quotas import set_quota
from tests.scenario.share.members import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    ack_errors,
    acquired,
    errors,
    set_group_configs,
    values,
    write,
)

LOCK_MS = 30_000
T = ("t", 0)


def test_records_are_acquired_acknowledged_and_never_come_again(driver, member) -> None:
    write(driver, "t", 3)
    first = member.fetch(T)
    assert (acquired(first), len(values(first))) == ([(0, 2, 1)], 3)
    assert first.acquisition_lock_timeout_ms == LOCK_MS
    accepted = member.acknowledge(("t", 0, 0, 2, ACCEPT))
    assert (accepted.error_code, errors(accepted), accepted.acquisition_lock_timeout_ms) == (0, [E.NONE], LOCK_MS)
    assert acquired(member.fetch()) == []
    write(driver, "t", 1)
    assert acquired(member.fetch()) == [(3, 3, 1)]


def test_two_members_get_different_records(driver, member) -> None:
    other = Member(driver, member_id="n")
    write(driver, "t", 1)
    write(driver, "t", 1)
    assert acquired(member.fetch(T, max_records=1)) == [(0, 0, 1)]
    assert acquired(other.fetch(T)) == [(1, 1, 1)]


def test_released_records_come_again_and_rejected_ones_do_not(driver, member) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 2, ACCEPT, RELEASE, REJECT))
    assert acquired(member.fetch()) == [(1, 1, 2)]


def test_a_waiting_fetch_gets_records_as_they_are_written(driver, member) -> None:
    member.send_fetch(T, max_wait_ms=500)
    driver.advance(499)
    assert not member.peer.responses
    write(driver, "t", 2)
    assert acquired(member.answer()) == [(0, 1, 1)]


def test_a_waiting_fetch_ends_without_records(driver, member) -> None:
    member.send_fetch(T, max_wait_ms=500)
    driver.advance(500)
    answer = member.answer()
    assert (acquired(answer), errors(answer)) == ([], [E.NONE])  # the first answer of a session names its partitions
    member.send_fetch(max_wait_ms=500)
    driver.advance(500)
    assert member.answer().responses == []


def test_records_whose_lock_expires_go_to_the_fetch_that_waits(driver, member) -> None:
    other = Member(driver, member_id="n")
    write(driver, "t", 2)
    member.fetch(T)
    other.send_fetch(T, max_wait_ms=60_000)
    driver.advance(LOCK_MS - 1)
    assert not other.peer.responses
    driver.advance(1)
    assert acquired(other.answer()) == [(0, 1, 2)]
    late = member.acknowledge(("t", 0, 0, 1, ACCEPT))
    assert errors(late) == [E.INVALID_RECORD_STATE]


def test_records_released_by_one_member_wake_another(driver, member) -> None:
    other = Member(driver, member_id="n")
    write(driver, "t", 2)
    member.fetch(T)
    other.send_fetch(T, max_wait_ms=500)
    member.acknowledge(("t", 0, 0, 1, RELEASE))
    assert acquired(other.answer()) == [(0, 1, 2)]


def test_waiting_members_are_served_in_order_of_arrival(driver, member) -> None:
    others = [Member(driver, member_id=f"n{number}") for number in range(3)]
    for waiting in (member, *others):
        waiting.send_fetch(T, max_wait_ms=500, max_records=1)
    for number, waiting in enumerate((member, *others)):
        write(driver, "t", 1)
        assert acquired(waiting.answer()) == [(number, number, 1)]


def test_renewed_locks_last_longer(driver, member) -> None:
    write(driver, "t", 1)
    member.fetch(T)
    driver.advance(LOCK_MS - 1)
    assert errors(member.acknowledge(("t", 0, 0, 0, RENEW), renews=True)) == [E.NONE]
    driver.advance(LOCK_MS - 1)
    assert errors(member.acknowledge(("t", 0, 0, 0, ACCEPT))) == [E.NONE]


def test_acknowledgements_within_a_fetch(driver, member) -> None:
    write(driver, "t", 2)
    write(driver, "t", 1)
    assert acquired(member.fetch(T, max_records=1)) == [(0, 1, 1)]
    answer = member.fetch(acks=[("t", 0, 0, 1, ACCEPT)])
    assert (acquired(answer), ack_errors(answer)) == ([(2, 2, 1)], [E.NONE])
    answer = member.fetch(acks=[("t", 0, 0, 1, ACCEPT)])
    assert ack_errors(answer) == [E.NONE]  # records below the start offset are done


def test_the_last_fetch_acknowledges_and_releases_the_rest(driver, member) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    member.epoch = -1
    assert ack_errors(member.fetch(acks=[("t", 0, 0, 0, ACCEPT)])) == [E.NONE]
    assert acquired(Member(driver, member_id="n").fetch(T)) == [(1, 2, 2)]


def test_the_last_acknowledgement_releases_the_rest(driver, member) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    member.epoch = -1
    assert errors(member.acknowledge(("t", 0, 0, 1, ACCEPT))) == [E.NONE]
    assert acquired(Member(driver, member_id="n").fetch(T)) == [(2, 2, 2)]


def test_a_closed_connection_releases_its_members_records(driver, member) -> None:
    other = Member(driver, member_id="n")
    write(driver, "t", 2)
    member.fetch(T)
    other.send_fetch(T, max_wait_ms=500)
    driver.disconnect(member.peer)
    assert acquired(other.answer()) == [(0, 1, 2)]
    assert len(driver.node.share.partitions.sessions) == 1


def test_a_fetch_that_waits_when_its_client_goes_acquires_nothing(driver, member) -> None:
    other = Member(driver, member_id="n")
    member.send_fetch(T, max_wait_ms=500)
    driver.disconnect(member.peer)
    write(driver, "t", 1)
    assert acquired(other.fetch(T)) == [(0, 0, 1)]


def test_a_client_that_stops_sending_gets_its_answer_at_once(driver, member) -> None:
    member.fetch(T)
    member.send_fetch(max_wait_ms=500)
    driver.half_close(member.peer)
    assert member.answer().error_code == 0
    assert member.peer.closed


def test_a_client_that_has_stopped_sending_does_not_wait(driver, member) -> None:
    driver.hold_syncs = True
    member.peer.send(produce("t", batch(driver, b"a")), 9)
    member.send_fetch(T, max_wait_ms=500)
    driver.half_close(member.peer)
    driver.release()
    assert len(member.peer.responses) == 2


def test_the_last_session_of_a_group_frees_its_share_partitions(driver, member) -> None:
    write(driver, "t", 2)
    member.fetch(T, ("t", 1))
    assert len(driver.node.share.partitions.led_partitions) == 2
    driver.disconnect(member.peer)
    assert len(driver.node.share.partitions.led_partitions) == 0
    assert driver.node.next_deadline_ms() is None or driver.node.next_deadline_ms() > driver.now_ms


def test_an_acknowledgement_is_answered_when_it_is_durable(driver, member, persister) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    persister.holds = True
    member.send_acknowledge(("t", 0, 0, 1, ACCEPT))
    assert not member.peer.responses
    persister.release(driver)
    assert errors(member.answer()) == [E.NONE]


def test_a_failed_write_is_rolled_back(driver, member, persister) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    persister.error = E.COORDINATOR_NOT_AVAILABLE
    refused = member.acknowledge(("t", 0, 0, 1, ACCEPT))
    assert errors(refused) == [E.COORDINATOR_NOT_AVAILABLE]
    persister.error = E.NONE
    assert errors(member.acknowledge(("t", 0, 0, 1, ACCEPT))) == [E.NONE]


def test_a_fenced_write_drops_the_share_partition(driver, member, persister) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    persister.error = E.FENCED_STATE_EPOCH
    refused = member.acknowledge(("t", 0, 0, 1, ACCEPT))
    assert errors(refused) == [E.NOT_LEADER_OR_FOLLOWER]
    persister.error = E.NONE
    assert errors(member.acknowledge(("t", 0, 0, 1, ACCEPT))) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert acquired(member.fetch()) == [(0, 1, 1)]
    assert persister.reads == 2


@pytest.mark.parametrize("state", [None, ShareState(1, 0, -1, ()), ShareState(4, 2, -1, ())])
def test_a_member_of_a_group_made_again_gets_the_new_state(driver, member, persister, state) -> None:
    """An administrator deletes the group of a member that hangs, or alters its offsets."""
    write(driver, "t", 2)
    assert acquired(member.fetch(T)) == [(0, 1, 1)]
    member.acknowledge(("t", 0, 0, 1, ACCEPT))
    (key,) = persister.states
    del persister.states[key]
    if state is not None:
        persister.states[key] = state
    write(driver, "t", 1)
    other = Member(driver, member_id="other")
    start = 0 if state is None else state.start_offset
    assert acquired(other.fetch(T)) == [(start, 2, 1)]
    assert errors(member.acknowledge(("t", 0, 2, 2, ACCEPT))) == [E.INVALID_RECORD_STATE]


def test_a_partition_that_a_session_adds_has_its_present_state(driver, member, persister) -> None:
    write(driver, "t", 2)
    hung = Member(driver, member_id="hung")
    assert acquired(hung.fetch(T)) == [(0, 1, 1)]
    (key,) = persister.states
    persister.states[key] = ShareState(4, 0, -1, ())
    member.fetch(("t", 1))
    assert acquired(member.fetch(T)) == [(0, 1, 1)]


def test_a_member_that_begins_leaves_the_others_their_records(driver, member, persister) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 0, ACCEPT))
    persister.holds = True
    member.send_acknowledge(("t", 0, 1, 1, ACCEPT))
    write(driver, "t", 1)
    other = Member(driver, member_id="other")
    other.send_fetch(T, max_wait_ms=1000)
    assert not other.peer.responses
    persister.holds = False
    persister.release(driver)
    assert acquired(other.answer()) == [(3, 3, 1)]
    assert errors(member.answer()) == [E.NONE]
    assert errors(member.acknowledge(("t", 0, 2, 2, ACCEPT))) == [E.NONE]
    assert persister.reads == 1


def test_nothing_is_acquired_while_a_state_is_compared(driver, member, persister) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 1, ACCEPT))
    persister.holds = True
    others = [Member(driver, member_id=name) for name in ("a", "b")]
    for other in others:
        other.send_fetch(T, max_wait_ms=1000)
    persister.release(driver)  # of the first; the second came later
    persister.states.clear()
    write(driver, "t", 1)
    assert not any(other.peer.responses for other in others)
    persister.holds = False
    persister.release(driver)
    assert [errors(other.answer()) for other in others] == [[E.NOT_LEADER_OR_FOLLOWER]] * 2
    assert acquired(others[0].fetch()) == [(0, 2, 1)]


def test_a_state_that_cannot_be_read(driver, member, persister) -> None:
    persister.error = E.COORDINATOR_NOT_AVAILABLE
    assert errors(member.fetch(T, max_wait_ms=500)) == [E.COORDINATOR_NOT_AVAILABLE]
    persister.error = E.NONE
    write(driver, "t", 1)
    assert acquired(member.fetch()) == [(0, 0, 1)]


def test_a_fetch_waits_for_a_state_that_is_being_read(driver, member, persister) -> None:
    write(driver, "t", 1)
    persister.holds = True
    member.send_fetch(T, max_wait_ms=500)
    persister.holds = False
    persister.release(driver)
    assert acquired(member.answer()) == [(0, 0, 1)]


@pytest.mark.parametrize(("reset", "expected"), [("latest", [(6, 6, 1)]), ("earliest", [(0, 6, 1)])])
def test_where_a_new_group_begins(driver, member, reset, expected) -> None:
    set_group_configs(driver.connect(), "g", share_auto_offset_reset=reset)
    write(driver, "t", 6)
    member.fetch(T)
    if reset == "earliest":
        member.acknowledge(("t", 0, 0, 5, RELEASE))
    write(driver, "t", 1)
    got = acquired(member.fetch())
    assert (got[0][0], got[-1][1]) == (expected[0][0], expected[-1][1])


def test_a_new_group_begins_by_duration(driver, member) -> None:
    set_group_configs(driver.connect(), "g", share_auto_offset_reset="by_duration:PT1M")
    write(driver, "t", 1)
    driver.advance(61_000)
    write(driver, "t", 1)
    driver.advance(10_000)
    write(driver, "t", 1)
    assert acquired(member.fetch(T)) in ([(1, 2, 1)], [(1, 1, 1), (2, 2, 1)])


def test_by_duration_without_such_records(driver, member) -> None:
    set_group_configs(driver.connect(), "g", share_auto_offset_reset="by_duration:PT1M")
    write(driver, "t", 2)
    driver.advance(61_000)
    assert acquired(member.fetch(T)) == []
    write(driver, "t", 1)
    assert acquired(member.fetch()) == [(2, 2, 1)]


def test_deleted_records_are_passed_over(driver, member) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 1, RELEASE))
    write(driver, "t", 2)
    log_of(driver, "t").raise_log_start(2)
    assert acquired(member.fetch()) == [(2, 3, 1)]


def test_a_deleted_topic(driver, member) -> None:
    write(driver, "t", 1)
    member.fetch(T)
    topic_id = member.topic_id("t")
    driver.connect().ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
    assert len(driver.node.share.partitions.led_partitions) == 0
    member.topic_id = lambda _name: topic_id
    assert errors(member.acknowledge(("t", 0, 0, 0, ACCEPT))) == [E.UNKNOWN_TOPIC_ID]
    assert errors(member.fetch()) == [E.UNKNOWN_TOPIC_ID]


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


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"member_id": "m" * 37}, E.INVALID_REQUEST),
        ({"member_id": None}, E.INVALID_REQUEST),
        ({"group": None}, E.INVALID_REQUEST),
    ],
)
def test_refused_requests(member, fields, error) -> None:
    for name, value in fields.items():
        setattr(member, name, value)
    assert member.fetch(T).error_code == error
    assert member.acknowledge(("t", 0, 0, 0, ACCEPT)).error_code == error


def test_more_refused_fetches(driver, member) -> None:
    write(driver, "t", 1)
    assert member.fetch(T, is_renew_ack=True, max_records=1).error_code == E.INVALID_REQUEST
    member.epoch = 0
    assert member.fetch(T, acks=[("t", 0, 0, 0, ACCEPT)]).error_code == E.INVALID_REQUEST
    member.epoch = 0
    assert member.fetch(T, share_acquire_mode=9).error_code == E.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "ack",
    [
        ("t", 0, 1, 0, ACCEPT),
        ("t", 0, 0, 1),
        ("t", 0, 0, 1, ACCEPT, ACCEPT, ACCEPT),
        ("t", 0, 0, 1, 5),
        ("t", 0, 0, 1, -1),
        ("t", 0, 0, 1, RENEW),
    ],
)
def test_malformed_acknowledgements(driver, member, ack) -> None:
    write(driver, "t", 2)
    member.fetch(T)
    assert errors(member.acknowledge(ack)) == [E.INVALID_REQUEST]
    assert errors(member.acknowledge(("t", 0, 0, 1, ACCEPT))) == [E.NONE]


def test_unknown_topics_and_partitions(driver, member) -> None:
    member.topic_id = lambda name: b"?" * 16 if name == "unknown" else Member.topic_id(member, name)
    got = member.fetch(("t", 7), ("unknown", 0))
    assert set(errors(got)) == {E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID}
    got = member.acknowledge(("t", 7, 0, 0, ACCEPT), ("unknown", 0, 0, 0, ACCEPT), ("t", 0, 0, 0, ACCEPT))
    assert sorted(errors(got)) == sorted(
        [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION]
    )


def test_share_groups_that_are_switched_off(driver, member) -> None:
    member.fetch(T)
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    driver.connect().ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)
    assert len(driver.node.share.partitions.sessions) == len(driver.node.share.partitions.led_partitions) == 0
    assert member.fetch(T).error_code == E.UNSUPPORTED_VERSION
    assert member.acknowledge(("t", 0, 0, 0, ACCEPT)).error_code == E.UNSUPPORTED_VERSION


def test_records_of_transactions(persister) -> None:
    driver = made()
    driver.node.share.persister = persister
    peer = driver.connect()
    for group, isolation in (("g", "read_committed"), ("u", "read_uncommitted")):
        set_group_configs(peer, group, share_auto_offset_reset="earliest", share_isolation_level=isolation)
    producer, other = Producer(driver, "x"), Producer(driver, "y")
    producer.add(0)
    producer.write()
    write(driver, "t", 1)
    assert acquired(Member(driver, "u").fetch(T)) == [(0, 1, 1)]
    member = Member(driver)
    member.send_fetch(T, max_wait_ms=60_000)
    assert not member.peer.responses  # the open transaction holds the last stable offset
    producer.end(committed=False)
    assert acquired(member.answer()) == [(1, 2, 1)]  # without the aborted record, with the marker
    other.add(0)
    assert other.write() == 3
    other.end()
    assert acquired(member.fetch())[0][0] == 3


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
