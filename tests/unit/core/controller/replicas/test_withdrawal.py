"""A replica with damaged records leaves the in-sync set where another one has them; a leader hands over first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.tree import Check, Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Change, ClusterImage, PartitionImage
from oncelog.core.controller.replicas.withdrawal import withdrawn, without_lost
from oncelog.core.controller.topics.changes import NewTopic
from tests.unit.core.controller.cluster import applied, cluster

T0 = TopicPartition(TopicName("t"), 0)


def led(isr: list[int], elr: tuple[int, ...] = (), *, dead: tuple[int, ...] = (), min_isr: str = "1") -> ClusterImage:
    """A partition of brokers 1, 2 and 3, led by broker 1 in epoch 4."""
    topic = NewTopic("t", assignments=[(0, [1, 2, 3])], configs=[("min.insync.replicas", min_isr)])
    image = cluster(brokers=3, topics=[topic])
    state = PartitionImage(BrokerId(1), LeaderEpoch(4), (), tuple(map(BrokerId, isr)), elr=tuple(map(BrokerId, elr)))
    changes = [Change(layout.state_path(T0.topic, 0), layout.state_value(state, 1), 1)]
    changes += [Change(layout.broker_path(BrokerId(number)), None, -1) for number in dead]
    return image.apply(changes).image


def test_another_member_leads_and_the_damaged_replica_is_neither_in_sync_nor_eligible() -> None:
    image = led([1, 2], min_isr="2")
    operations = withdrawn(image, T0, 4)
    partition = applied(image, operations).partition(T0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.elr) == (2, 5, (2,), ())
    assert isinstance(operations[-1], Set)
    assert operations[-1].expected_version == 1
    checked = {operation.path for operation in operations if isinstance(operation, Check)}
    assert {layout.broker_path(BrokerId(1)), layout.broker_path(BrokerId(2))} <= checked


def test_an_eligible_leader_will_do_where_no_member_is_left() -> None:
    image = led([1], elr=(3,), min_isr="2")
    partition = applied(image, withdrawn(image, T0, 4)).partition(T0)
    assert partition is not None
    assert (partition.leader, partition.isr) == (3, (3,))


@pytest.mark.parametrize("image", [led([1]), led([1, 2], dead=(2,)), led([1, 2], dead=(1,))])
def test_nothing_changes_where_nobody_else_may_lead_or_the_leader_is_gone(image: ClusterImage) -> None:
    assert withdrawn(image, T0, 4) == []


def test_nothing_changes_in_another_leader_epoch_or_without_the_partition() -> None:
    assert withdrawn(led([1, 2]), T0, 3) == []
    assert withdrawn(led([1, 2]), TopicPartition(TopicName("t"), 1), 4) == []


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (led([2, 1, 3]), (NO_BROKER, 5, (2, 3), ())),
        (led([1], elr=(3,), min_isr="2"), (NO_BROKER, 5, (), (3,))),
        (led([1, 2], dead=(2,), min_isr="2"), (NO_BROKER, 5, (2,), ())),
        (led([1]), None),
    ],
)
def test_who_has_lost_records_leaves_the_sets_unless_it_is_the_last(
    image: ClusterImage, expected: tuple[object, ...] | None
) -> None:
    changes = without_lost(image, BrokerId(1), [T0, TopicPartition(TopicName("gone"), 0)])
    value = changes.get(T0.topic, {}).get(0)
    assert (value and (value.leader, value.leader_epoch, value.isr, value.elr)) == expected


def test_a_follower_that_has_lost_records_leaves_and_the_leader_leads_on_in_its_epoch() -> None:
    for image in (led([1, 2]), led([1], elr=(2,), min_isr="2")):
        result = without_lost(image, BrokerId(2), [T0])[T0.topic][0]
        assert (result.leader, result.leader_epoch, result.isr, result.elr) == (1, 4, (1,), ())


def test_a_fenced_replica_is_no_other_to_count_on() -> None:
    image = led([1], elr=(3,), min_isr="2")
    record = image.broker_records[BrokerId(3)]._replace(fenced=True)
    image = replace(image, broker_records={**image.broker_records, BrokerId(3): record})
    assert without_lost(image, BrokerId(1), [T0]) == {}
