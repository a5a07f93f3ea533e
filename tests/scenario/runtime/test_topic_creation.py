"""A topic that a broker has not heard of for a while after it was created, as Apache Kafka's do."""

from __future__ import annotations

from oncelog.client.blocking import Client
from oncelog.client.blocking.transaction_admin import ensure_topic
from oncelog.testing import Broker


def test_creation_ends_when_the_broker_tells_of_the_topic() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers, config={"unknown.topic.grace.ms": "0"}) as client:
        with broker.faults.answer("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=1, topic="new") as unheard:
            ensure_topic(client, "new", 2, {})
        assert unheard.hit
        assert len(client.topic("new").partitions) == 2
