"""Share fetches and acknowledgements that meet others of the same member, former writes, and hostile numbers."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.handlers.share import reads
from oncelog.storage.segment.batch_scan import iter_batches
from oncelog.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.driver import Driver
from tests.scenario.share.members import ACCEPT, Member, acquired, errors, set_group_configs, write

T = ("t", 0)


def test_a_partition_named_twice_is_answered_when_all_of_it_is_durable(driver, member, persister) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    persister.holds = True
    batches = [AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[ACCEPT])]
    named = [AcknowledgePartition(partition_index=0, acknowledgement_batches=each) for each in (batches, [])]
    topic = AcknowledgeTopic(topic_id=member.topic_id("t"), partitions=named)
    request = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=member.epoch, topics=[topic])
    member.peer.send(request, 2)
    assert not member.peer.responses
    persister.error = E.COORDINATOR_NOT_AVAILABLE
    persister.release(driver)
    assert errors(member.answer()) == [E.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("is_fetch", [False, True])
def test_a_last_request_does_not_end_the_session_that_replaced_its_own(driver, member, persister, is_fetch) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    persister.holds = True
    member.epoch = -1
    if is_fetch:
        member.send_fetch(acks=[("t", 0, 0, 2, ACCEPT)])
    else:
        member.send_acknowledge(("t", 0, 0, 2, ACCEPT))
    write(driver, "t", 3)
    persister.holds = False  # the write stays held
    again = Member(driver)
    assert acquired(again.fetch(T)) == [(3, 5, 1)]
    persister.release(driver)
    assert member.answer().error_code == E.NONE
    assert errors(again.acknowledge(("t", 0, 3, 5, ACCEPT))) == [E.NONE]


def test_a_repeated_fetch_displaces_the_first(driver, member) -> None:
    member.fetch(T)
    member.send_fetch(max_wait_ms=60_000)
    again = Member(driver)
    again.epoch = member.epoch - 1
    again.send_fetch(max_wait_ms=60_000)
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    write(driver, "t", 3)
    assert acquired(again.answer()) == [(0, 2, 1)]


def test_a_session_that_begins_anew_ends_the_wait_of_the_former_one(driver, member) -> None:
    member.fetch(T)
    member.send_fetch(max_wait_ms=60_000)
    again = Member(driver)
    again.send_fetch(T, max_wait_ms=60_000)
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert not again.peer.responses


def test_an_acknowledgement_that_takes_the_session_over_ends_a_wait(driver, member) -> None:
    write(driver, "t", 1)
    member.fetch(T)
    member.send_fetch(max_wait_ms=60_000)
    again = Member(driver)
    again.epoch = member.epoch - 1
    assert errors(again.acknowledge(("t", 0, 0, 0, ACCEPT))) == [E.NONE]
    assert member.answer().error_code == E.INVALID_SHARE_SESSION_EPOCH


def test_a_member_that_goes_during_a_search_acquires_nothing(driver, member) -> None:
    set_group_configs(driver.connect(), "g", share_auto_offset_reset="by_duration:PT1M")
    write(driver, "t", 30_000)
    other = Member(driver, member_id="other")
    other.fetch()
    driver.hold_jobs = True
    member.send_fetch(T, max_wait_ms=500)
    assert driver.held
    driver.disconnect(member.peer)
    driver.release()
    assert acquired(other.fetch(T))[0][::2] == (0, 1)


def test_a_fetch_of_any_number_of_records_reads_no_more_headers_than_the_window_takes(
    driver, member, monkeypatch
) -> None:
    set_group_configs(driver.connect(), "g", share_partition_max_record_locks="100")
    for _ in range(5):
        write(driver, "t", 100)
    headers = []

    def scanned(*args):
        for header in iter_batches(*args):
            headers.append(header)
            yield header

    monkeypatch.setattr(reads, "iter_batches", scanned)
    assert acquired(member.fetch(T, max_records=2**31 - 1)) == [(0, 99, 1)]
    assert len(headers) == 2


def set_share_version(driver: Driver, level: int, upgrade_type: int) -> None:
    update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=upgrade_type)
    driver.connect().ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)


def test_a_state_is_read_again_when_all_older_writes_have_ended(driver, member, persister) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    persister.holds = True
    member.send_acknowledge(("t", 0, 0, 2, ACCEPT))
    set_share_version(driver, 0, 2)
    set_share_version(driver, 2, 1)
    persister.holds = False
    other = Member(driver, member_id="other")
    other.send_fetch(T, max_wait_ms=60_000)
    persister.release(driver)
    assert errors(member.answer()) == [E.NONE]
    assert not other.peer.responses
    write(driver, "t", 1)
    assert acquired(other.answer()) == [(3, 3, 1)]


def test_a_fenced_share_partition_waits_for_its_other_writes(driver, member, persister) -> None:
    write(driver, "t", 4)
    member.fetch(T)
    persister.holds = True
    other = Member(driver, member_id="other")
    other.fetch(T)
    member.send_acknowledge(("t", 0, 0, 0, ACCEPT))
    fenced = persister.held.pop()
    again = Member(driver, member_id="m", peer=driver.connect())
    again.epoch = member.epoch
    again.send_acknowledge(("t", 0, 1, 3, ACCEPT))
    durable = persister.held.pop()
    persister.error = E.FENCED_STATE_EPOCH
    fenced()
    persister.error, persister.holds = E.NONE, False
    other.send_fetch(max_wait_ms=60_000)
    persister.held.append(durable)
    persister.release(driver)
    assert errors(again.answer()) == [E.NONE]
    assert acquired(other.answer()) == [(0, 0, 1)]


def test_a_fetch_returns_what_the_member_still_has_when_its_acknowledgements_are_durable(
    driver, member, persister
) -> None:
    write(driver, "t", 1)
    write(driver, "t", 2)
    member.fetch(T, max_records=1)
    persister.holds = True
    member.send_fetch(acks=[("t", 0, 0, 0, ACCEPT)])
    persister.holds = False  # the write stays held
    driver.advance(30_000)
    other = Member(driver, member_id="other")
    assert acquired(other.fetch(T)) == [(1, 2, 2)]
    persister.release(driver)
    assert acquired(member.answer()) == []
    assert errors(other.acknowledge(("t", 0, 1, 2, ACCEPT))) == [E.NONE]


def test_a_fetch_whose_leadership_ends_before_its_acknowledgements_returns_no_records(
    driver, member, persister
) -> None:
    write(driver, "t", 1)
    write(driver, "t", 2)
    member.fetch(T, max_records=1)
    persister.holds = True
    member.send_fetch(acks=[("t", 0, 0, 0, ACCEPT)])
    persister.error = E.FENCED_STATE_EPOCH
    persister.release(driver)
    answer = member.answer()
    assert errors(answer) == [E.NOT_LEADER_OR_FOLLOWER]
    assert not answer.responses[0].partitions[0].acquired_records
