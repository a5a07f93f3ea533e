from __future__ import annotations

import json
from collections import Counter

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicId, TopicName
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage, BrokerRecord
from oncelog.core.controller.outcomes import Refused
from oncelog.core.controller.replicas.placement import (
    check_can_lead,
    check_replicas,
    more_replicas,
    partition_nodes,
    place,
)

ID = TopicId(bytes(16))


def brokers(racks: str) -> ClusterImage:
    """Brokers 1…, each on the rack of its letter; ``.``: no rack."""
    result = {
        BrokerId(number): BrokerImage(BrokerId(number), "h", 1, None if rack == "." else rack, 0)
        for number, rack in enumerate(racks, 1)
    }
    return ClusterImage(brokers=result)


@pytest.mark.parametrize("racks", ["...", "......", "aabbcc", "abcabc", "aaabbc", "ab"])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_leaders_and_replicas_are_spread_evenly_and_over_racks(racks: str, factor: int) -> None:
    image = brokers(racks)
    if factor > len(racks):
        return
    count = 10 * len(racks)
    placed = place(image, ID, 0, count, factor)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    for replicas in placed:
        assert len(set(replicas)) == factor
        on = {image.brokers[replica].rack for replica in replicas}
        assert len(on) == min(factor, len(set(racks)))


def test_the_partitions_that_one_broker_leads_have_their_followers_on_all() -> None:
    placed = place(brokers("....."), ID, 0, 20, 2)
    for leader in range(1, 6):
        assert len({replicas[1] for replicas in placed if replicas[0] == leader}) == 4


def test_nothing_is_placed_on_a_broker_that_is_fenced_or_stops() -> None:
    image = brokers("....")
    changed = {
        **image.brokers,
        BrokerId(2): image.brokers[BrokerId(2)]._replace(fenced=True),
        BrokerId(3): image.brokers[BrokerId(3)]._replace(in_controlled_shutdown=True),
    }
    image = ClusterImage(brokers=changed)
    assert {broker for replicas in place(image, ID, 0, 9, 2) for broker in replicas} == {1, 4}
    check_can_lead(image, 0, (BrokerId(2), BrokerId(1)))
    with pytest.raises(Refused, match="for partition 7 are fenced or in controlled shutdown"):
        check_can_lead(image, 7, (BrokerId(2), BrokerId(3)))


def test_brokers_that_are_down_have_replicas_where_the_others_are_too_few() -> None:
    image = brokers("...")
    records = {broker_id: BrokerRecord(directory_id="", epoch=1) for broker_id in map(BrokerId, (2, 4, 5))}
    image = ClusterImage(brokers={BrokerId(1): image.brokers[BrokerId(1)]}, broker_records=records)
    placed = place(image, ID, 0, 3, 3)
    assert [replicas[0] for replicas in placed] == [1, 1, 1]
    assert {replicas[1:] for replicas in placed} == {(2, 4), (4, 5), (5, 2)}
    nodes = partition_nodes(image, TopicName("t"), 0, placed)
    states = [json.loads(node.value) for node in nodes if node.value]
    assert [(state["leader"], state["isr"]) for state in states] == [(1, [1])] * 3
    with pytest.raises(Refused, match="only 4 broker\\(s\\) are registered") as refused:
        place(image, ID, 0, 1, 5)
    assert refused.value.refusal.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(Refused, match="All brokers are currently fenced"):
        place(ClusterImage(broker_records=records), ID, 0, 1, 1)
    assert check_replicas(image, [5, 1], 2) == (5, 1)
    with pytest.raises(Refused, match="includes broker 3, but no such broker is registered"):
        check_replicas(image, [1, 3], 2)


def test_more_replicas_come_from_other_racks_first() -> None:
    one = (BrokerId(1),)
    assert more_replicas(brokers("aabc"), one, 0, 3) == (1, 3, 4)
    assert more_replicas(brokers("..."), one, 0, 3) == (1, 2, 3)
    assert more_replicas(brokers("..."), one, 2, 2) == (1, 3)
    assert more_replicas(brokers(".."), one, 0, 3) == (1, 2)
