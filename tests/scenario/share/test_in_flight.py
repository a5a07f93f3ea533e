"""DescribeShareGroupOffsets with ``led_here``: records in flight as their leader has them (KIP-932)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.handlers.groups import share_in_flight
from oncelog.wire.messages import describe_share_group_offsets as wire
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.driver import Driver
from tests.scenario.share.members import ACCEPT, REJECT, RELEASE, Member, acquired, write

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
LOCK_MS = 30_000
T = ("t", 0)


def described(driver: Driver, *partitions: int, group: str = "g", topic: str = "t"):
    topics = [wire.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))]
    asked = wire.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    request = wire.DescribeShareGroupOffsetsRequest(groups=[asked], led_here=True)
    [answer] = driver.connect().ask(request, 1).groups
    return answer


def rows(partition) -> list[tuple[int, int, int, int, str]]:
    return list(
        zip(
            partition.first_offsets,
            partition.last_offsets,
            partition.delivery_states,
            partition.delivery_counts,
            partition.member_ids,
            strict=True,
        )
    )


def test_who_holds_what_since_when_and_until_when(driver) -> None:
    write(driver, "t", 5)
    write(driver, "t", 5)
    first, second = Member(driver, member_id="m1"), Member(driver, member_id="m2")
    assert acquired(first.fetch(T)) == [(0, 9, 1)]
    first.acknowledge(("t", 0, 0, 0, ACCEPT), ("t", 0, 2, 2, ACCEPT), ("t", 0, 3, 3, REJECT), ("t", 0, 4, 4, RELEASE))
    driver.advance(1000)
    assert acquired(second.fetch(T)) == [(4, 4, 2)]
    [topic] = described(driver, 0, 1).topics
    [partition] = topic.partitions
    assert rows(partition) == [
        (1, 1, ACQUIRED, 1, "m1"),
        (2, 2, ACKNOWLEDGED, 1, ""),
        (3, 3, ARCHIVED, 1, ""),
        (4, 4, ACQUIRED, 2, "m2"),
        (5, 9, ACQUIRED, 1, "m1"),
    ]
    now_ms = driver.now_ms
    assert partition.locked_since_ms == [now_ms - 1000, 0, 0, now_ms, now_ms - 1000]
    until_ms = now_ms + LOCK_MS
    assert partition.locked_until_ms == [until_ms - 1000, 0, 0, until_ms, until_ms - 1000]
    assert (partition.start_offset, partition.in_flight_records, partition.most_in_flight) == (1, 9, 2000)
    assert partition.batches_left_off == 0


def test_a_lock_that_has_ended(driver) -> None:
    write(driver, "t", 2)
    member = Member(driver)
    member.fetch(T)
    driver.advance(LOCK_MS)
    [topic] = described(driver, 0).topics
    assert rows(topic.partitions[0]) == [(0, 1, AVAILABLE, 1, "")]
    assert topic.partitions[0].locked_until_ms == [0]


def test_partitions_that_the_group_has_not_fetched_from_are_left_out(driver) -> None:
    assert described(driver, 0, 1, 7).topics == []
    assert described(driver, 0, topic="u").topics == []
    assert described(driver, 0, group="another").topics == []
    assert described(driver, 0).error_code == E.NONE


def test_a_long_window_is_cut(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_in_flight, "MOST_BATCHES", 3)
    write(driver, "t", 8)
    member = Member(driver)
    member.fetch(T)
    member.acknowledge(*[("t", 0, offset, offset, ACCEPT) for offset in (1, 3, 5)])
    [topic] = described(driver, 0, 0, 0).topics
    [partition] = topic.partitions
    assert (len(partition.first_offsets), partition.batches_left_off) == (3, 4)
    assert partition.in_flight_records == 8


def test_a_partition_that_is_asked_for_many_times_is_described_once(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    write(driver, "t", 8)
    Member(driver).fetch(T)
    walks = []
    describe = share_in_flight._partition
    monkeypatch.setattr(share_in_flight, "_partition", lambda *given: walks.append(given) or describe(*given))
    topic = wire.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0, 0])
    group = wire.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic, topic])
    request = wire.DescribeShareGroupOffsetsRequest(groups=[group] * 2000, led_here=True)
    [answer] = driver.connect().ask(request, 1).groups
    assert [len(topic.partitions) for topic in answer.topics] == [1]
    assert len(walks) == 1


def test_batches_of_all_partitions_are_bounded(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_in_flight, "_MOST_OF_ALL", 2)
    for partition in (0, 1):
        write(driver, "t", 8, partition)
        member = Member(driver)
        member.fetch(("t", partition))
        member.acknowledge(*[("t", partition, offset, offset, ACCEPT) for offset in (1, 3, 5)])
    [topic] = described(driver, 0, 1).topics
    first, second = topic.partitions
    assert (len(first.first_offsets), first.batches_left_off) == (2, 5)
    assert (len(second.first_offsets), second.batches_left_off) == (0, 7)


def test_share_groups_that_are_off(driver) -> None:
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert driver.connect().ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == E.NONE
    assert described(driver, 0).error_code == E.UNSUPPORTED_VERSION
