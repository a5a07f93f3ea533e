"""A blocking consumer in a group goes on after a failure."""

from __future__ import annotations

from typing import cast

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.join_group import JoinGroupRequest
from tests.unit.client.programs.fake_brokers import BlockingRunner, FakeBrokers
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
