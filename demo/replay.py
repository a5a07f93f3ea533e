"""Events → topic, through an unmodified client: confluent-kafka (librdkafka), idempotent, acknowledged by all.

The rule: an event counts when the broker has acknowledged it, and not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from demo.flights import FlightEvent

_TELL_EVERY = 50_000


@dataclass(slots=True)
class Replayed:
    """The numbers of acknowledged and of refused records."""

    acknowledged: int = 0
    refused: int = 0
    seconds: float = 0.0


def replay(
    bootstrap_servers: str,
    topic: str,
    events: Sequence[FlightEvent],
    on_progress: Callable[[int], None],
    on_acknowledged: Callable[[int], None] = lambda _partition: None,
) -> Replayed:
    """Produce all events in order and wait until each is acknowledged. ``on_acknowledged`` is told of each, by its
    partition."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 200_000,
            "log_level": 2,  # a broker that is killed on purpose is no news
        }
    )
    result = Replayed()

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            result.acknowledged += 1
            on_acknowledged(message.partition())
        else:
            result.refused += 1

    started = time.monotonic()
    for number, event in enumerate(events):
        while True:
            try:
                producer.produce(topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                raise SystemExit(f"the broker refused event {number}: {error}") from None
        if number % 1000 == 0:
            producer.poll(0)
        if number % _TELL_EVERY == 0:
            on_progress(result.acknowledged)
    while producer.flush(1.0):
        on_progress(result.acknowledged)
    result.seconds = time.monotonic() - started
    return result
