"""Dead letters of share groups at one broker (KIP-1191): written before their records are archived."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.share.model import DeadLetterCause, DeadLetters, RecordState, ShareState, StateBatch
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.broker.shares import LedSharePartition
from oncelog.node.kernel.events import DeadlineReached
from oncelog.node.share import dead_letter_appends, dead_letter_records
from oncelog.records.batch import iter_headers
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records
from oncelog.storage.log.read import read_batches
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.hanging import Producer
from tests.scenario.node.requests import PRODUCE_VERSION, alter_brokers, batch, create_topic, log_of, produce, produced
from tests.scenario.share.members import (
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

T = ("t", 0)
ENABLE = {"errors_deadletterqueue_group_enable": "true"}


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


def letters(driver: Driver, partition: int = 0) -> list[Record]:
    log = log_of(driver, "dlq.t", partition)
    records: list[Record] = []
    while len(records) < log.log_end_offset:  # batch by batch, however large they are
        (chunk,) = read_batches(log, Offset(len(records)), max_bytes=1).chunks
        data = bytes(chunk.file.read(chunk.position, chunk.size_bytes))
        records += [record for at, header in iter_headers(data) for record in read_records(data, at, header, 1 << 24)]
    return records


def offsets(letters: list[Record]) -> list[int]:
    return [int(dict(letter.headers)["__dlq.errors.offset"] or b"") for letter in letters]


def write_values(driver: Driver, *values: bytes, **options) -> None:
    assert produced(driver.connect().ask(produce("t", batch(driver, *values, **options)), PRODUCE_VERSION))[0] == 0


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
    assert offsets(letters(driver)) == list(range(100))
    assert all(letter.value is not None for letter in letters(driver))


@pytest.mark.parametrize("size", [10_000, 50_000])
def test_more_originals_than_one_read_takes(driver, member, size) -> None:
    create_topic(driver.connect(), "dlq.t", max_message_bytes="4000000", **ENABLE)
    for _ in range(3):
        write_values(driver, *[b"x" * size] * (600_000 // size))
    count = 3 * (600_000 // size)
    member.fetch(T, max_bytes=50 << 20, max_records=count, batch_size=count)
    assert errors(member.acknowledge(("t", 0, 0, count - 1, REJECT))) == [E.NONE]
    driver.advance(0)
    assert offsets(letters(driver)) == list(range(count))
    assert {len(letter.value or b"") for letter in letters(driver)} == {size}
    assert driver.node.share.partitions.counters.dead_letters == count


def test_a_batch_is_decoded_once_for_all_its_letters(driver, member, monkeypatch) -> None:
    decoded: list[int] = []

    def read(buffer, position, header, max_bytes):
        decoded.append(header.base_offset)
        return read_records(buffer, position, header, max_bytes)

    monkeypatch.setattr(dead_letter_records, "read_records", read)
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 60)
    write(driver, "t", 60)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 119, *[ACCEPT, REJECT] * 60))
    driver.advance(0)
    assert offsets(letters(driver)) == list(range(1, 120, 2))
    assert all(letter.value is not None for letter in letters(driver))
    # The first letter of a queue is under way before the others come.
    assert decoded == [0, 0, 60]


def test_records_that_cannot_be_read_are_counted_apart(driver, member) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write_values(driver, *[b"x" * 1000] * 1200, codec=Codec.GZIP)
    write(driver, "t", 1)
    member.fetch(T, max_records=2000, batch_size=2000)
    member.acknowledge(("t", 0, 1199, 1200, REJECT))
    driver.advance(0)
    damaged, sound = letters(driver)
    assert (damaged.value, sound.value is None) == (None, False)
    counters = driver.node.share.partitions.counters
    assert (counters.dead_letters, counters.dead_letters_without_record) == (1, 1)
    assert [report for report in driver.reports if "headers alone" in report]


def test_no_letter_has_a_record_of_a_later_topic(driver, member, persister) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 3)
    member.fetch(T)
    persister.holds = True
    member.send_acknowledge(("t", 0, 1, 1, REJECT))
    driver.connect().ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
    driver.advance(10)
    create_topic(driver.connect(), "t")
    write_values(driver, b"new0", b"new1")
    persister.holds = False
    persister.release(driver)
    driver.advance(100)
    assert letters(driver) == []


def test_a_later_topic_is_not_read(driver) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 3)
    key = ShareKey(GroupId("g"), TopicId(b"\x07" * 16), 0)
    led = LedSharePartition(key, TopicPartition(TopicName("t"), 0), LeaderEpoch(0))
    done: list[tuple[bool, int]] = []
    letter = DeadLetters(Offset(1), Offset(1), 1, DeadLetterCause.REJECTED)
    Member(driver).fetch(T)  # makes the writer
    driver.node.share.partitions._dead_letters.copy(led, letter, lambda *outcome: done.append(outcome))
    driver.dispatch(DeadlineReached())
    driver.advance(0)
    assert done == [(True, 1)]
    assert [letter.value for letter in letters(driver)] == [None]


def failed(driver: Driver) -> int:
    return driver.node.share.partitions.counters.failed_dead_letters


def test_letters_larger_than_their_topic_takes_are_given_up(driver, member) -> None:
    create_topic(driver.connect(), "dlq.t", max_message_bytes="100", **ENABLE)
    write(driver, "t", 2)
    member.fetch(T)
    assert errors(member.acknowledge(("t", 0, 0, 1, REJECT))) == [E.NONE]
    driver.advance(0)
    assert (letters(driver), failed(driver)) == ([], 2)
    assert [report for report in driver.reports if "MESSAGE_TOO_LARGE" in report]
    assert acquired(member.fetch()) == []


def test_letters_whose_topic_is_deleted_before_they_are_durable(driver, member, persister) -> None:
    """They are written again if the topic may be made again."""
    alter_brokers(driver.connect(), errors_deadletterqueue_auto_create_topics_enable="true")
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 1)
    member.fetch(T)
    driver.hold_syncs = True
    member.acknowledge(("t", 0, 0, 0, REJECT))
    assert log_of(driver, "dlq.t").log_end_offset == 1
    driver.connect().ask(DeleteTopicsRequest(topic_names=["dlq.t"], timeout_ms=1000), 4)
    driver.hold_syncs = False
    driver.release()
    driver.advance(2_000)
    assert offsets(letters(driver)) == [0]
    assert failed(driver) == 0
    assert states(persister).get(0, RecordState.ARCHIVED) is RecordState.ARCHIVED


def test_a_full_disk_is_waited_for(driver, member, monkeypatch) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 1)
    member.fetch(T)

    def full(*_arguments, **_options):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(dead_letter_appends, "append_batch", full)
        member.acknowledge(("t", 0, 0, 0, REJECT))
        driver.advance(3_500)
    assert (letters(driver), failed(driver)) == ([], 0)
    driver.advance(4_000)
    assert offsets(letters(driver)) == [0]


def test_records_of_transactions_become_letters_outside_of_them(driver, member) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    producer = Producer(driver, "x")
    producer.add(0)
    producer.write()
    producer.end()
    got = acquired(member.fetch(T))
    member.acknowledge(("t", 0, 0, got[-1][1], REJECT))
    driver.advance(0)
    log = log_of(driver, "dlq.t")
    assert offsets(letters(driver))[0] == 0
    assert log.last_stable_offset == log.high_watermark


def is_led_again(driver: Driver) -> bool:
    """True if a share partition that was fenced is read again."""
    again = Member(driver, member_id="again")
    again.send_fetch(T, max_wait_ms=500)
    driver.advance(500)
    return bool(again.answer().responses) and not driver.node.share.partitions._ending


def fence(driver: Driver, member: Member, persister: HandPersister, offset: int) -> None:
    """An administrator has changed the state: an acknowledgement is refused, and the share partition dropped."""
    persister.error = E.FENCED_STATE_EPOCH
    assert errors(member.acknowledge(("t", 0, offset, offset, ACCEPT))) == [E.NOT_LEADER_OR_FOLLOWER]
    persister.error = E.NONE


def test_a_fenced_share_partition_whose_letters_wait_for_their_topic(driver, member, persister) -> None:
    alter_brokers(driver.connect(), errors_deadletterqueue_auto_create_topics_enable="true")
    write(driver, "t", 3)
    member.fetch(T)
    driver.hold_metadata = True
    member.acknowledge(("t", 0, 0, 0, REJECT))
    fence(driver, member, persister, 1)
    driver.hold_metadata = False
    driver.release()
    assert is_led_again(driver)
    assert failed(driver) == 0


def test_a_fenced_share_partition_whose_letters_wait_behind_others(driver, member, persister) -> None:
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 4)
    member.fetch(T)
    driver.hold_syncs = True
    member.acknowledge(("t", 0, 0, 0, REJECT))
    member.acknowledge(("t", 0, 1, 1, REJECT))
    fence(driver, member, persister, 2)
    driver.hold_syncs = False
    driver.release()
    assert is_led_again(driver)
    assert (offsets(letters(driver))[0], failed(driver)) == (0, 0)


def test_a_fenced_leader_writes_no_letters(driver, member, persister) -> None:
    """The lock of a last delivery ends while its acceptance is written, which is then fenced."""
    set_group_configs(driver.connect(), "g", share_delivery_count_limit="2")
    create_topic(driver.connect(), "dlq.t", **ENABLE)
    write(driver, "t", 1)
    member.fetch(T)
    member.acknowledge(("t", 0, 0, 0, RELEASE))
    assert acquired(member.fetch()) == [(0, 0, 2)]
    persister.holds = True
    member.send_acknowledge(("t", 0, 0, 0, ACCEPT))
    driver.advance(31_000)
    persister.holds, persister.error = False, E.FENCED_STATE_EPOCH
    persister.release(driver)
    assert errors(member.answer()) == [E.NOT_LEADER_OR_FOLLOWER]
    driver.advance(1_000)
    assert letters(driver) == []
