"""The clients' work: librdkafka through confluent-kafka, batched calls, so that Python is not what is measured."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.peers import Broker, Served
from bench.texts import texts

_SLICE: Final = 10_000
_QUIET: Final = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class Throughput:
    """Records moved, and what it cost the broker."""

    records: int
    size_bytes: int
    elapsed_s: float
    broker_cpu_s: float

    def figures(self, verb: str) -> dict[str, float]:
        """Rates in 10⁶ bytes and 10⁹ bytes."""
        return {
            f"{verb}, records/s": self.records / self.elapsed_s,
            f"{verb}, MB/s": self.size_bytes / self.elapsed_s / 1e6,
            f"{verb}, broker CPU s/GB": self.broker_cpu_s / (self.size_bytes / 1e9),
        }

    def cluster_figures(self, verb: str) -> dict[str, float]:
        """Rates, and the processor time of all brokers for each million records."""
        return {
            f"{verb}, records/s": self.records / self.elapsed_s,
            f"{verb}, MB/s": self.size_bytes / self.elapsed_s / 1e6,
            f"{verb}, CPU s of all brokers a million": self.broker_cpu_s / (self.records / 1e6),
        }


def produce(
    broker: Served,
    topic: str,
    record_bytes: int,
    count: int,
    *,
    acks: str = "all",
    partition: int = 0,
    settings: Mapping[str, str] | None = None,
) -> Throughput:
    """Fill one partition as fast as librdkafka goes, waiting for every acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
            **_QUIET,
            **(settings or {}),
        }
    )
    payload = os.urandom(record_bytes)
    producer.list_topics(topic, timeout=30)
    cpu, start = broker.process.cpu_seconds(), time.perf_counter()
    left = count
    while left:
        messages = [{"value": payload} for _ in range(min(_SLICE, left))]
        while messages:
            queued = producer.produce_batch(topic, messages, partition=partition)
            left -= queued
            messages = messages[queued:] if queued < len(messages) else []
            producer.poll(0.005 if messages else 0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")
    elapsed = time.perf_counter() - start
    return Throughput(count, count * record_bytes, elapsed, broker.process.cpu_seconds() - cpu)


@contextlib.contextmanager
def steady_load(broker: Served, topic: str, each_s: float = 0.01, record_bytes: int = 10_000) -> Iterator[None]:
    """One record after the other to one partition in a thread, acks=all: a megabyte a second unless said otherwise.
    Raises RuntimeError at the end if one was not acknowledged."""
    failed: list[object] = []
    ends = threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", **_QUIET})
        payload = os.urandom(record_bytes)
        while not ends.wait(each_s):
            producer.produce(topic, payload, partition=0, on_delivery=lambda error, _: error and failed.append(error))
            producer.poll(0)
        if producer.flush(120):
            failed.append("records were not acknowledged")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    if failed:
        raise RuntimeError(f"a record of the load was given up: {failed[0]}")


def consume(
    broker: Served, topic: str, record_bytes: int, count: int, *, settings: Mapping[str, str] | None = None
) -> Throughput:
    """Read one partition from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 200_000,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 8_000_000,
            **_QUIET,
            **(settings or {}),
        }
    )
    cpu, start = broker.process.cpu_seconds(), time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < count:
        messages: Sequence[Any] = consumer.consume(_SLICE, 5)
        if not messages:
            raise RuntimeError(f"only {seen} of {count} records")
        seen += len(messages)
    elapsed = time.perf_counter() - start
    result = Throughput(seen, seen * record_bytes, elapsed, broker.process.cpu_seconds() - cpu)
    consumer.close()
    return result


def latencies_ms(broker: Served, topic: str, count: int, record_bytes: int = 100) -> list[float]:
    """Acknowledgement of single records, one after the other, sorted."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            **_QUIET,
        }
    )
    payload = os.urandom(record_bytes)
    acknowledged: list[object] = []
    took = []
    for _ in range(count):
        acknowledged.clear()
        start = time.perf_counter()
        producer.produce(topic, payload, partition=0, on_delivery=lambda error, _: acknowledged.append(error))
        while not acknowledged:
            producer.poll(1)
        took.append((time.perf_counter() - start) * 1000)
        if acknowledged[0] is not None:
            raise RuntimeError(f"not acknowledged: {acknowledged[0]}")
    return sorted(took)


def percentile(values: Sequence[float], fraction: float) -> float:
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * fraction))]


def touch_all(
    broker: Served, topics: Sequence[str], partitions: int, settings: Mapping[str, str | int] | None = None
) -> None:
    """Produce one record into every partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **_QUIET, **(settings or {}), "linger.ms": 50})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"x" * 100, partition=partition)
        producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("records were not acknowledged")


def fill(broker: Broker, topic: str, record_bytes: int, count: int, *, partitions: int, codec: str = "none") -> None:
    """A topic with records of JSON-like text, in whole 64 KB batches. It compresses about threefold at 100 bytes;
    longer values repeat their fields, so at 1,000 bytes about twentyfold."""
    from bench.peers import create_topic

    create_topic(broker, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 65_536,
            "queue.buffering.max.messages": 500_000,
            **_QUIET,
        }
    )
    payloads = texts(record_bytes)
    for partition in range(partitions):
        left = count // partitions
        while left:
            messages = [{"value": payload, "key": payload[:8]} for payload in payloads[:left]]
            while messages:
                queued = producer.produce_batch(topic, messages, partition=partition)
                left -= queued
                messages = messages[queued:] if queued < len(messages) else []
                producer.poll(0.005 if messages else 0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")
