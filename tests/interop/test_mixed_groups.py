"""One group with members of confluent-kafka (KIP-848) and kafka-python (classic), converted while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from oncelog.testing import Broker
from tests.waiting import HANG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
]
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONFIG) as running:
        yield running


class Members:
    """The consumers of one group, and the records that they have read."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.admin = AdminClient({"bootstrap.servers": servers})
        for created in self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            created.result()
        self.new: list[Consumer] = []
        self.classic: list[Any] = []
        self.read: Counter[bytes] = Counter()

    def add_new(self) -> None:
        config = {"bootstrap.servers": self.servers, "group.id": self.topic, "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, "group.protocol": "consumer"})
        consumer.subscribe([self.topic])
        self.new.append(consumer)

    def add_classic(self) -> None:
        self.classic.append(
            KafkaConsumer(
                self.topic,
                bootstrap_servers=self.servers,
                group_id=self.topic,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
                metadata_max_age_ms=1000,
            )
        )

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(first, first + count):
            producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()

    def poll_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_S
        while not condition():
            assert time.monotonic() < deadline, self.shares()
            for consumer in self.new:
                message = consumer.poll(0.02)
                if message is not None and message.error() is None:
                    self.read[message.value()] += 1
            for consumer in self.classic:
                # kafka-python forgets a rejoin that a poll begins and does not finish: the member stays without
                # partitions in a stable group.
                for records in consumer.poll(500).values():
                    self.read.update(record.value for record in records)

    def shares(self) -> Sequence[set[int]]:
        """The partitions of each member."""
        owned = [{part.partition for part in consumer.assignment()} for consumer in self.new]
        return owned + [{part.partition for part in consumer.assignment()} for consumer in self.classic]

    def is_balanced(self) -> bool:
        shares = self.shares()
        sizes = [len(share) for share in shares]
        return sorted(number for share in shares for number in share) == list(range(PARTITIONS)) and min(sizes) > 0

    def close(self) -> None:
        for consumer in [*self.new, *self.classic]:
            consumer.close()

    def group_type(self) -> str:
        return str(self.admin.describe_consumer_groups([self.topic])[self.topic].result().type.name)


def test_a_group_is_upgraded_and_downgraded_under_its_members(broker: Broker) -> None:
    with closing(Members(broker.bootstrap_servers, "mixed")) as members:
        members.produce(0, 40)
        members.add_classic()
        members.poll_until(lambda: members.is_balanced() and len(members.read) == 40)
        assert members.group_type() == "CLASSIC"
        members.add_new()
        members.poll_until(members.is_balanced)
        assert members.group_type() == "CONSUMER"
        members.add_new()
        members.produce(40, 40)
        members.poll_until(lambda: members.is_balanced() and len(members.read) == 80)
        for consumer in members.new:
            consumer.close()
        members.new.clear()
        members.produce(80, 40)
        members.poll_until(lambda: members.is_balanced() and len(members.read) == 120)
        assert members.group_type() == "CLASSIC"
