"""A blocking consumer in a group: after a failure, and in the consumer protocol."""

from __future__ import annotations

from typing import cast

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.join_group import JoinGroupRequest
from tests.unit.client.programs.fake_brokers import BlockingRunner, FakeBrokers
from tests.unit.client.programs.fake_consumer_group import INTERVAL_MS, ConsumerCoordinator
from tests.unit.client.programs.test_group import T0, T1, Coordinator


def test_a_leader_that_could_not_look_topics_up_assigns_later() -> None:
    brokers = FakeBrokers()
    Coordinator(brokers)
    joined = brokers.answers[JoinGroupRequest]

    def refusing(broker: int, message: JoinGroupRequest) -> ResponseMessage | None:
        brokers.metadata_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return joined(broker, message)

    brokers.answers[JoinGroupRequest] = refusing
    consumer = GroupConsumer(cast("Client", BlockingRunner(brokers)), "g", ["t"])
    with pytest.raises(BrokerRefused):
        consumer._keep_up()
    brokers.metadata_error = 0
    consumer._keep_up()
    assert (consumer.assignment, consumer.has_joined) == ((T0, T1), True)
    assert len(brokers.asked(JoinGroupRequest)) == 1


def test_partitions_come_and_go_one_by_one_in_the_consumer_protocol() -> None:
    brokers = FakeBrokers()
    coordinator = ConsumerCoordinator(brokers)
    told: list[tuple[str, list[TopicPartition]]] = []
    with GroupConsumer(
        cast("Client", BlockingRunner(brokers)),
        "g",
        ["t"],
        protocol="consumer",
        on_assigned=lambda positions: told.append(("assigned", list(positions))),
        on_revoked=lambda partitions: told.append(("revoked", list(partitions))),
        on_lost=lambda partitions: told.append(("lost", list(partitions))),
    ) as consumer:

        def after_a_heartbeat() -> tuple[TopicPartition, ...]:
            brokers.now_ms += 2 * INTERVAL_MS
            consumer._keep_up()
            return consumer.assignment

        assert after_a_heartbeat() == (T0, T1)
        consumer.processed(T0, 4)
        consumer.seek({T1: 7})
        coordinator.target = {"t": [1]}
        assert after_a_heartbeat() == (T1,)
        assert (coordinator.offsets, consumer.position(T1), consumer.has_joined) == ({0: 4}, 7, True)
        coordinator.codes = [ErrorCode.FENCED_MEMBER_EPOCH]
        consumer.processed(T1, 9)
        assert after_a_heartbeat() == (T1,)
        assert (coordinator.offsets, consumer.position(T1)) == ({0: 4}, 300)
    assert told == [
        ("assigned", [T0, T1]),
        ("revoked", [T0]),
        ("lost", [T1]),
        ("assigned", []),
        ("assigned", [T1]),
        ("revoked", [T1]),
    ]


def test_closing_an_expelled_member_tells_of_a_loss_and_commits_nothing() -> None:
    brokers = FakeBrokers()
    coordinator = ConsumerCoordinator(brokers)
    told: list[str] = []
    with GroupConsumer(
        cast("Client", BlockingRunner(brokers)),
        "g",
        ["t"],
        protocol="consumer",
        on_revoked=lambda _: told.append("revoked"),
        on_lost=lambda _: told.append("lost"),
    ) as consumer:
        consumer._keep_up()
        consumer.processed(T0, 4)
        coordinator.commit_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
        consumer.commit()
        consumer.processed(T0, 5)
    assert (told, coordinator.offsets) == (["lost"], {})
