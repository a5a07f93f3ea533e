"""Everyday work of a broker: an idempotent producer fills twelve partitions, and a consumer reads them.

The settings are those that deployments name most: acks=all, lz4, batches of 64 KiB. A case varies the size of records,
the codec, and whether all records are of one size: a broker that looks into batches has more to do where they differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.peers import Served
from bench.report import Figures, narrowed
from bench.texts import texts

PARTITIONS: Final = 12
_SIZES: Final = {"100b": 100, "1000b": 1000}
_CODECS: Final = {"none": "none", "lz4": "lz4", "zstd": "zstd"}
_SHAPES: Final = {"equal": False, "varied": True}
_SLICE: Final = 10_000
_BATCH: Final = {"batch.size": 65536, "batch.num.messages": 10_000, "linger.ms": 5}
_ROOM: Final = {"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000, "log_level": 0}


class Case(NamedTuple):
    """One workload."""

    size_bytes: int
    codec: str
    varied: bool

    @property
    def label(self) -> str:
        """The words of ``--only``."""
        return f"{self.size_bytes} B, {self.codec}, {'varied' if self.varied else 'equal'}"

    def values(self) -> list[bytes]:
        """Different values, of ``size_bytes`` each or on the average; one half of each is noise, the other text."""
        size = self.size_bytes * 3 // 2 if self.varied else self.size_bytes
        values = [os.urandom(size // 2) + text for text in texts(size - size // 2)]
        if not self.varied:
            return values
        half = self.size_bytes // 2
        return [value[: half + number * 389 % (2 * half + 1)] for number, value in enumerate(values)]


def cases(only: Sequence[str]) -> list[Case]:
    """The cases that words of ``--only`` leave: lz4 and equal sizes where they do not say."""
    words = [*only]
    words += ["lz4"] if not any(word in _CODECS for word in words) else []
    words += ["equal"] if not any(word in _SHAPES for word in words) else []
    sizes, codecs, shapes = narrowed(words, _SIZES, _CODECS, _SHAPES)
    return [Case(size, codec, varied) for size in sizes for codec in codecs for varied in shapes]


def everyday_figures(broker: Served, topic: str, case: Case, count: int) -> Figures:
    """Write and read ``count`` records; rates, and the processor time of the broker, or of all of a cluster, for each
    GB of values and for each record."""
    cpu, start = broker.process.cpu_seconds(), time.perf_counter()
    written_bytes = _produce(broker, topic, case, count)
    written, written_cpu = time.perf_counter(), broker.process.cpu_seconds()
    _consume(broker, topic, count)
    read_cpu = broker.process.cpu_seconds()
    gigabytes = written_bytes / 1e9
    return {
        f"{case.label}: written, records/s": count / (written - start),
        f"{case.label}: read, records/s": count / (time.perf_counter() - written),
        f"{case.label}: written, broker CPU s/GB": (written_cpu - cpu) / gigabytes,
        f"{case.label}: written and read, broker CPU s/GB": (read_cpu - cpu) / gigabytes,
        f"{case.label}: written and read, broker CPU µs a record": (read_cpu - cpu) / count * 1e6,
    }


def count_of(case: Case) -> int:
    """Records of a case, about as many bytes in each."""
    return 3_000_000 if case.size_bytes == 100 else 500_000


def cluster_goals(chosen: Sequence[Case]) -> dict[str, str]:
    """Goals for three brokers together."""
    return {f"{case.label}: written and read, broker CPU µs a record": "≤ 0.2 ×" for case in chosen if not case.varied}


def goals(chosen: Sequence[Case]) -> dict[str, str]:
    """Goals of the issue: half of Apache Kafka's processor time, and less for large records that are compressed."""
    results: dict[str, str] = {}
    for case in chosen:
        both = "≤ 0.4 ×" if case.size_bytes == 1000 and case.codec != "none" else "≤ 0.5 ×"
        if not case.varied:
            results[f"{case.label}: written and read, broker CPU s/GB"] = both
        if case.codec == "none" and not case.varied:
            results[f"{case.label}: written, broker CPU s/GB"] = "≤ 0.5 ×"
    return results


def _produce(broker: Served, topic: str, case: Case, count: int) -> int:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": case.codec,
            **_BATCH,
            **_ROOM,
        }
    )
    values = case.values()
    messages = [{"value": value} for value in values]
    producer.list_topics(topic, timeout=30)
    written = sent = 0
    while sent < count:
        # A slice for one partition at a time: librdkafka's batches are then as large as they may be.
        left = messages[: min(len(messages), count - sent)]
        sent += len(left)
        written += sum(len(message["value"]) for message in left)
        partition = sent // len(messages) % PARTITIONS
        while left:
            queued = producer.produce_batch(topic, left, partition=partition)
            left = left[queued:] if queued < len(left) else []
            producer.poll(0.005 if left else 0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")
    return written


def _consume(broker: Served, topic: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 200_000,
            "queued.min.messages": 1_000_000,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    seen = 0
    while seen < count:
        received: Sequence[Any] = consumer.consume(_SLICE, 5)
        if not received:
            raise RuntimeError(f"only {seen} of {count} records")
        seen += len(received)
    consumer.close()
