"""franz-go, sarama, kafka-go and KafkaJS, from their own registries."""

from __future__ import annotations

import pytest

from oncelog.testing import Broker
from tests.peers.clients import foreign
from tests.peers.clients.scenario import Scenario

pytestmark = pytest.mark.slow
_GO = {**foreign.FRANZ_GO, **foreign.SARAMA, **foreign.KAFKA_GO}


@pytest.mark.peer("go")
@pytest.mark.parametrize("scenario", list(_GO.values()), ids=list(_GO))
def test_a_go_client_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)


@pytest.mark.peer("kafkajs")
@pytest.mark.parametrize("scenario", list(foreign.KAFKAJS.values()), ids=list(foreign.KAFKAJS))
def test_kafkajs_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)
