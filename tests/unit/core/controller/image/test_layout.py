from __future__ import annotations

import json

import pytest

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId
from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.core.controller.image.model import Assignment, BrokerImage, BrokerRecord, PartitionImage
from oncelog.ports import TreeNode

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = TopicId(bytes(15) + b"\1")

STATES = [
    PartitionImage(ONE, LeaderEpoch(3), (ONE,), (ONE,), 4),
    PartitionImage(ONE, LeaderEpoch(3), (ONE, TWO), (ONE,), 4, 17, (TWO,), (TWO,), (ONE,)),
    PartitionImage(BrokerId(-1), LeaderEpoch(0), (ONE, TWO), (), 0, -1, (TWO, ONE)),
]


@pytest.mark.parametrize("state", STATES)
def test_a_partition_is_read_as_it_was_written(state: PartitionImage) -> None:
    value = layout.state_value(state, 7)
    assert layout.read_state("/p", value, state.version, state.assignment) == state


def test_the_state_of_a_partition_is_apache_kafkas_where_nothing_else_is_to_say() -> None:
    assert layout.state_value(STATES[0], 7) == (
        b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1]}'
    )


def test_a_topic_is_read_as_it_was_written_and_names_only_partitions_on_the_move() -> None:
    moving = [Assignment((ONE, TWO)), Assignment((ONE, TWO, THREE), (THREE,), (ONE, TWO))]
    value = layout.topic_value(ID, moving)
    assert layout.read_topic("/t", value) == (ID, moving)
    facts = json.loads(value)
    assert (facts["adding_replicas"], facts["removing_replicas"]) == ({"1": [3]}, {"1": [1, 2]})


@pytest.mark.parametrize(
    "broker",
    [
        BrokerImage(ONE, "h", 9092, None, 5, 2),
        BrokerImage(ONE, "h", 9092, "r", 5, 2, "directory"),
        BrokerImage(ONE, "h", 9092, "r", 5, 2, "directory", True, False, True),
        BrokerImage(ONE, "h", 9092, "r", 5, 2, "directory", False, True, False),
    ],
)
def test_a_registration_is_read_as_it_was_written(broker: BrokerImage) -> None:
    assert layout.read_broker("/brokers/ids/1", layout.broker_value(broker, 0), 2) == broker


def test_a_tree_of_an_earlier_version_is_read_without_what_it_does_not_say() -> None:
    nodes = [
        TreeNode("/brokers/ids/1", b'{"host":"h","port":1,"version":5,"epoch":3}', 0),
        TreeNode("/brokers/topics/t", layout.topic_value(ID, [Assignment((ONE,))]), 0),
        TreeNode(
            "/brokers/topics/t/partitions/0/state",
            b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
            0,
        ),
    ]
    image = load_image(nodes)
    broker = image.brokers[ONE]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.directory_id, broker.may_lead) == (
        False,
        False,
        "",
        True,
    )
    (topic,) = image.topics.values()
    assert topic.partitions == (PartitionImage(ONE, LeaderEpoch(0), (ONE,), (ONE,), 0, -1, (), (), ()),)


@pytest.mark.parametrize(
    "record",
    [
        BrokerRecord("directory", 9, 4),
        BrokerRecord(
            "directory",
            9,
            4,
            fenced=True,
            unregistered=True,
            rack="a",
            endpoints=(
                Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "host", 1),
                Endpoint("INSIDE", SecurityProtocol.SASL_SSL, "::1", 2),
            ),
        ),
    ],
)
def test_the_record_of_a_broker_is_read_as_it_was_written(record: BrokerRecord) -> None:
    value = layout.broker_record_value(record)
    assert layout.read_broker_record(layout.broker_record_path(TWO), value, 4) == (TWO, record)
    with pytest.raises(layout.DamagedFact):
        layout.read_broker_record(layout.broker_record_path(TWO), b"{}", 4)
