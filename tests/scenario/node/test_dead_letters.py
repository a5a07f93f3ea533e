"""Dead letters of share groups at one broker (KIP-1191): written before their records are archived."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share.model import RecordState, ShareState, StateBatch
from oncelog.records.batch import iter_headers
from oncelog.records.record import Record, read_records
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import alter_brokers, create_topic, log_of
from tests.scenario.node.shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    HandPersister,
    Member,
    acquired,
    errors,
    set_group_configs,
    write,
)
from tests.unit.storage.replication import log_bytes

T = ("t", 0)
ENABLE = {"errors_deadletterqueue_group_enable": "true"}


@pytest.fixture
def persister() -> HandPersister:
    return HandPersister()


@pytest.fixture
def driver(persister) -> Driver:
    """A group whose dead letters, with their records, go to ``dlq.t``, which does not exist yet."""
    driver = Driver()
    driver.node.share.persister = persister
    peer = driver.connect()
    create_topic(peer, "t")
    set_group_configs(
        peer,
        "g",
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name="dlq.t",
        errors_deadletterqueue_copy_record_enable="true",
    )
    return driver


@pytest.fixture
def member(driver) -> Member:
    return Member(driver)


def letters(driver: Driver, partition: int = 0) -> list[Record]:
    data = log_bytes(log_of(driver, "dlq.t", partition))
    return [record for at, header in iter_headers(data) for record in read_records(data, at, header, 1 << 20)]


def states(persister: HandPersister) -> dict[int, RecordState]:
    (state,) = persister.states.values()
    return {batch.first_offset: RecordState(batch.delivery_state) for batch in state.batches}


def test_a_rejected_record_becomes_a_dead_letter(driver, member) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 3)
    got = member.fetch(T)
    member.acknowledge(("t", 0, 0, 2, ACCEPT, REJECT, RELEASE))
    (letter,) = letters(driver)
    (original,) = [
        record
        for answer in got.responses[0].partitions
        for at, header in iter_headers(bytes(answer.records))
        for record in read_records(bytes(answer.records), at, header, 1 << 20)
        if record.offset == 1
    ]
    assert (letter.key, letter.value) == (original.key, original.value)
    assert letter.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert acquired(member.fetch()) == [(2, 2, 2)]
    driver.advance(0)
    assert driver.node.share.partitions.counters.dead_letters == 1


def test_a_record_delivered_too_often_becomes_a_dead_letter(driver, member) -> None:
    set_group_configs(driver.connect(), "g", share_delivery_count_limit="2")
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 1)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 0, RELEASE))
    assert acquired(member.fetch()) == [(0, 0, 2)]
    driver.advance(30_000)
    (letter,) = letters(driver)
    assert dict(letter.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"2"
    assert acquired(member.fetch()) == []


def test_the_topic_is_made_if_the_cluster_allows(driver, member) -> None:
    alter_brokers(driver.connect(), errors_deadletterqueue_auto_create_topics_enable="true")
    write(driver, "t", 1)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 0, REJECT))
    assert len(letters(driver)) == 1
    topic = driver.node.cluster.image.topics["dlq.t"]
    assert topic.configs == {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize("configs", [None, {}])
def test_records_are_archived_without_a_usable_topic(driver, member, configs) -> None:
    if configs is not None:
        create_topic(driver.connect(), "dlq.t", **configs)
    write(driver, "t", 2)
    member.fetch(T)
    assert errors(member.acknowledge(("t", 0, 0, 1, REJECT))) == [E.NONE]
    assert acquired(member.fetch()) == []
    assert driver.node.share.partitions.counters.failed_dead_letters == 2
    assert [report for report in driver.reports if "dlq.t" in report]


def test_a_letter_is_durable_before_its_record_is_archived(driver, member, persister) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 2)
    member.fetch(T)
    driver.hold_syncs = True
    assert errors(member.acknowledge(("t", 0, 0, 0, REJECT))) == [E.NONE]
    assert states(persister)[0] is RecordState.ARCHIVING
    driver.release()
    driver.advance(0)
    assert states(persister).get(0, RecordState.ARCHIVED) is RecordState.ARCHIVED


def test_letters_that_a_former_leader_left_are_written(driver, member, persister) -> None:
    write(driver, "t", 3)
    member.fetch(T)
    assert errors(member.acknowledge(("t", 0, 0, 2, REJECT, ACCEPT, ACCEPT))) == [E.NONE]
    (key,) = persister.states
    driver.disconnect(member.peer)
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    persister.states[key] = ShareState(0, 0, 0, [StateBatch(0, 1, RecordState.ARCHIVING, 5)])
    again = Member(driver)
    assert acquired(again.fetch(T)) == [(2, 2, 1)]
    assert [dict(letter.headers)["__dlq.errors.offset"] for letter in letters(driver)] == [b"0", b"1"]


def test_only_headers_without_the_groups_wish(driver, member) -> None:
    set_group_configs(driver.connect(), "g", errors_deadletterqueue_copy_record_enable="false")
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 1)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 0, REJECT))
    (letter,) = letters(driver)
    assert (letter.key, letter.value) == (None, None)


def test_many_letters_in_batches_that_fit(driver, member) -> None:
    create_topic(driver.connect(), "dlq.t", max_message_bytes="2000", **ENABLE)
    write(driver, "t", 100)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 99, REJECT))
    driver.advance(0)
    assert [dict(letter.headers)["__dlq.errors.offset"] for letter in letters(driver)] == [
        b"%d" % offset for offset in range(100)
    ]
    assert all(letter.value is not None for letter in letters(driver))
