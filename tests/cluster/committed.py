"""Committed numbers of a partition, as a reader finds them that is no part of the drill."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.cluster.load import QUICK
from tests.waiting import HANG_S


@dataclass(frozen=True)
class Servers:
    """The addresses of clients, and how they come to them."""

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict)


def read_committed(servers: Servers, topic: str, partition: int) -> list[int]:
    """The numbers in a partition, in order, by librdkafka at read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers.bootstrap,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **servers.security,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[int] = []
    deadline = time.monotonic() + HANG_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found.append(int(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()
    raise TimeoutError(f"no end of {topic}-{partition}")
