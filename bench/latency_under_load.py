"""Acknowledgement of records of 1 KB at a steady rate, acks=all, twelve partitions.

A record's time runs from the moment at which the rate makes it due, not from its sending: a client that a slow broker
holds up would else leave out the records that waited (coordinated omission). All times are kept, so percentiles are
exact. The client runs on the same cores as the broker, on both sides alike: where a rate is more than the two of them
can do, figures are seconds.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from bench.everyday import PARTITIONS
from bench.peers import Served
from bench.report import Figures
from bench.workloads import percentile

RATES: Final = (20_000, 100_000)
_RECORD_BYTES: Final = 1000
_TICK_S: Final = 0.001
_SETTINGS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 1,  # as the OpenMessaging benchmark has it
    "batch.size": 65536,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "log_level": 0,
}
_SHARES: Final = (50, 99, 99.9)


def load_figures(broker: Served, topic: str, rates: Sequence[int], seconds: float) -> Figures:
    """Percentiles at each rate, and the processor time of the broker, or of all of a cluster, for each record."""
    results: dict[str, float] = {}
    for rate in rates:
        cpu_s = broker.process.cpu_seconds()
        took_ms = _latencies_ms(broker, topic, rate, int(rate * seconds))
        cpu_us = (broker.process.cpu_seconds() - cpu_s) / len(took_ms) * 1e6
        results |= {f"{rate:,}/s: p{share:g}, ms": percentile(took_ms, share / 100) for share in _SHARES}
        results[f"{rate:,}/s: broker CPU µs a record"] = cpu_us
    return results


def _latencies_ms(broker: Served, topic: str, rate: int, count: int) -> list[float]:
    """Sorted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **_SETTINGS})
    producer.list_topics(topic, timeout=30)
    payload = os.urandom(_RECORD_BYTES)
    due_s: list[deque[float]] = [deque() for _ in range(PARTITIONS)]  # acknowledged in order in each partition
    took: list[float] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"not acknowledged: {error}")
        took.append(time.perf_counter() - due_s[message.partition() or 0].popleft())

    gc.collect()
    gc.freeze()
    start, sent, ticks = time.perf_counter(), 0, 0
    while sent < count:
        is_due = min(count, int((time.perf_counter() - start) * rate))
        ticks += sent < is_due
        partition = ticks % PARTITIONS
        while sent < is_due:
            due_s[partition].append(start + sent / rate)
            producer.produce(topic, payload, partition=partition, on_delivery=acknowledged)
            sent += 1
        producer.poll(_TICK_S)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged")
    return sorted(value * 1000 for value in took)


def goals(rates: Sequence[int]) -> dict[str, str]:
    return {f"{rate:,}/s: p99, ms": "≤ 5 ms, ≤ 0.3 ×" for rate in rates}
