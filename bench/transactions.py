"""Benchmarks of transactions, with librdkafka on both sides."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.peers import Broker
from bench.report import Figures
from bench.workloads import percentile
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import ProducerId, TransactionalId
from oncelog.client.blocking import Client
from oncelog.core.transactions.states import TransactionState
from oncelog.records.builder import build_batch
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest

_QUIET: Final = {"log_level": 0}
_TIMEOUT_S: Final = 60.0
_STATE_PARTITIONS: Final = 50
_BATCH_IDS: Final = 500


def transactional_producer(broker: Broker, name: str, **settings: object) -> Any:
    """A producer with an initialised transactional id."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"bench-{name}-{time.time_ns()}",
            **_QUIET,
            **settings,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    return producer


def small_transactions(broker: Broker, topic: str, count: int, partitions: int) -> tuple[float, list[float]]:
    """One record into each partition and a commit, again and again; rate, and sorted times in ms."""
    producer = transactional_producer(broker, "small", **{"linger.ms": 0, "socket.nagle.disable": True})
    took = []
    payload = os.urandom(100)
    started = time.perf_counter()
    for _ in range(count):
        begun = time.perf_counter()
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, payload, partition=partition)
        producer.commit_transaction(_TIMEOUT_S)
        took.append((time.perf_counter() - begun) * 1000)
    return count / (time.perf_counter() - started), sorted(took)


def small_figures(label: str, measured: tuple[float, list[float]]) -> dict[str, float]:
    """Rate and percentiles."""
    rate, took = measured
    return {
        f"{label}, transactions/s": rate,
        f"{label}, p50 ms": percentile(took, 0.5),
        f"{label}, p99 ms": percentile(took, 0.99),
    }


def committed_throughput(broker: Broker, topic: str, count: int) -> Figures:
    """1 KB records with a commit every 100 ms, and the same without transactions before and after: the better one."""
    settings = {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000}
    payload = os.urandom(1000)
    before_s = _idempotent_s(broker, topic, payload, count, settings)
    producer = transactional_producer(broker, "bulk", **settings)
    producer.list_topics(topic, timeout=30)
    started = time.perf_counter()
    left = count
    while left:
        producer.begin_transaction()
        left -= _fill(producer, topic, payload, left, until=time.perf_counter() + 0.1)
        producer.commit_transaction(_TIMEOUT_S)
    transactional_s = time.perf_counter() - started
    idempotent_s = min(before_s, _idempotent_s(broker, topic, payload, count, settings))
    return {
        "transactional, MB/s": count / transactional_s / 1e3,
        "idempotent, MB/s": count / idempotent_s / 1e3,
        "transactional of idempotent": idempotent_s / transactional_s,
    }


def _idempotent_s(broker: Broker, topic: str, payload: bytes, count: int, settings: Mapping[str, object]) -> float:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, **settings, **_QUIET}
    )
    producer.list_topics(topic, timeout=30)
    started = time.perf_counter()
    _fill(producer, topic, payload, count)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("records were not acknowledged")
    return time.perf_counter() - started


def _fill(producer: Any, topic: str, payload: bytes, count: int, until: float | None = None) -> int:
    """Queue up to ``count`` records, until a moment if one is named; how many."""
    done = 0
    while done < count and (until is None or time.perf_counter() < until):
        messages = [{"value": payload} for _ in range(min(1000, count - done))]
        queued = producer.produce_batch(topic, messages, partition=0)
        done += queued
        producer.poll(0.005 if queued < len(messages) else 0)
    return done


def read(broker: Broker, topic: str, count: int, isolation: str) -> float:
    """Seconds to read ``count`` records of one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "queued.max.messages.kbytes": 200_000,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 8_000_000,
            **_QUIET,
        }
    )
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), 5)
        if not messages:
            raise RuntimeError(f"only {seen} of {count} records")
        seen += len(messages)
    elapsed = time.perf_counter() - started
    consumer.close()
    return elapsed


def fill_transactions(broker: Broker, topic: str, count: int, transactions: int) -> None:
    """``count`` records of 100 B into the first partition, in so many committed transactions."""
    producer = transactional_producer(broker, "isolation", **{"linger.ms": 5})
    payload = os.urandom(100)
    for number in range(transactions):
        producer.begin_transaction()
        _fill(producer, topic, payload, count // transactions + (count % transactions if number == 0 else 0))
        producer.commit_transaction(_TIMEOUT_S)


def write_ids(data_directory: Path, count: int) -> None:
    """Append the records of ``count`` transactional ids to the logs of a broker that was killed."""
    by_partition: dict[int, list[tuple[bytes, bytes]]] = {index: [] for index in range(_STATE_PARTITIONS)}
    now_ms = int(time.time() * 1000)
    for number in range(count):
        name = TransactionalId(f"loaded-{number}")
        value = TransactionValue(
            producer_id=ProducerId(1_000_000 + number),
            producer_epoch=1,
            timeout_ms=60_000,
            status=TransactionState.COMPLETE_COMMIT,
            partitions=(),
            last_update_timestamp=now_ms,
            start_timestamp=now_ms,
            client_transaction_version=2,
        )
        by_partition[coordinator_partition(name, _STATE_PARTITIONS)].append((encode_key(name), encode_value(value, 1)))
    for index, records in by_partition.items():
        _append(data_directory / f"__transaction_state-{index}", records, now_ms)


def _append(directory: Path, records: list[tuple[bytes, bytes]], now_ms: int) -> None:
    (path,) = directory.glob("*.log")
    data = path.read_bytes()
    offset = 0
    position = 0
    while position + 12 <= len(data) and int.from_bytes(data[position + 8 : position + 12], "big"):
        size = int.from_bytes(data[position + 8 : position + 12], "big")
        offset = int.from_bytes(data[position : position + 8], "big") + 1
        offset += int.from_bytes(data[position + 23 : position + 27], "big")
        position += 12 + size
    with path.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        for start in range(0, len(records), _BATCH_IDS):
            part = records[start : start + _BATCH_IDS]
            batch = [Record(number, now_ms, key, value, ()) for number, (key, value) in enumerate(part, offset)]
            file.write(build_batch(batch, base_offset=offset, leader_epoch=0))
            offset += len(part)


def loaded_s(broker: Broker, count: int) -> float:
    """Seconds until the last ids of all partitions are known."""
    started = time.perf_counter()
    missing = {coordinator_partition(f"loaded-{number}", _STATE_PARTITIONS): number for number in range(count)}
    names = [f"loaded-{number}" for number in missing.values()]
    with Client(broker.bootstrap_servers) as client:
        while names:
            answer = client.request(DescribeTransactionsRequest(transactional_ids=names))
            names = [state.transactional_id for state in answer.transaction_states if state.error_code]
            if time.perf_counter() - started > 600:
                raise RuntimeError(f"not loaded: {len(names)} ids, for one {names[0]}")
    return time.perf_counter() - started
