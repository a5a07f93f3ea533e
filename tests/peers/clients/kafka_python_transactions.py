"""kafka-python: transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.peers.clients.kafka_python import know
from tests.peers.clients.scenario import Scenario, expect, expect_equal, wait_until
from tests.waiting import HANG_S

TIMEOUT_S: Final = HANG_S


def _make_topics(bootstrap: str, *names: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name, 1, 1) for name in names])
    finally:
        admin.close()


@contextlib.contextmanager
def _producer(bootstrap: str, name: str, **config: Any) -> Iterator[Any]:
    client = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, **config)
    try:
        client.init_transactions()
        yield client
    finally:
        client.close(timeout=TIMEOUT_S)


@contextlib.contextmanager
def _consumer(bootstrap: str, **config: Any) -> Iterator[Any]:
    client = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, **config
    )
    try:
        yield client
    finally:
        client.close()


def _send(producer: Any, topic: str, *values: bytes) -> None:
    for value in values:
        producer.send(topic, value, partition=0, timestamp_ms=1000)


def _poll(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []

    def enough() -> bool:
        for batch in consumer.poll(timeout_ms=300).values():
            records.extend(batch)
        return len(records) >= count

    wait_until(enough, f"{count} records")
    return records


def _values(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    with _consumer(bootstrap, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in _poll(consumer, count)]


def commit_and_abort(bootstrap: str) -> None:
    """Committed transactions are read, aborted ones are not."""
    _make_topics(bootstrap, "kt-one", "kt-two")
    with _producer(bootstrap, "kt-commit") as producer:
        for number in range(4):
            producer.begin_transaction()
            _send(producer, "kt-one", b"a%d" % number, b"b%d" % number)
            _send(producer, "kt-two", b"c%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    expect_equal(_values(bootstrap, "kt-one", 4, "read_committed"), [b"a0", b"b0", b"a2", b"b2"], "committed")
    expect_equal(_values(bootstrap, "kt-one", 8, "read_uncommitted")[2:4], [b"a1", b"b1"], "aborted")


def offsets(bootstrap: str) -> None:
    """Offsets of what was consumed are committed with what was made of it, or neither."""
    _make_topics(bootstrap, "kt-source", "kt-sink")
    plain = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(6):
        plain.send("kt-source", b"%d" % number, partition=0)
    plain.flush(timeout=TIMEOUT_S)
    plain.close(timeout=TIMEOUT_S)
    source = TopicPartition("kt-source", 0)
    with (
        _consumer(bootstrap, group_id="kt-group", isolation_level="read_committed", max_poll_records=3) as consumer,
        _producer(bootstrap, "kt-copy") as producer,
    ):
        consumer.subscribe(["kt-source"])
        know(consumer, "kt-source")
        for commit in (True, False):
            records = _poll(consumer, 3)
            producer.begin_transaction()
            _send(producer, "kt-sink", *[record.value for record in records])
            position = {source: OffsetAndMetadata(records[-1].offset + 1, "", -1)}
            producer.send_offsets_to_transaction(position, consumer.group_metadata())
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        expect_equal(consumer.committed(source), 3, "committed offset")
    expect_equal(_values(bootstrap, "kt-sink", 3, "read_committed"), [b"0", b"1", b"2"], "copied")


def fencing(bootstrap: str) -> None:
    """A second instance of a transactional id fences the first."""
    _make_topics(bootstrap, "kt-fenced")
    with _producer(bootstrap, "kt-fencing") as first:
        first.begin_transaction()
        _send(first, "kt-fenced", b"first")
        first.commit_transaction()
        with _producer(bootstrap, "kt-fencing") as second:
            second.begin_transaction()
            _send(second, "kt-fenced", b"second")
            second.commit_transaction()
        try:
            first.begin_transaction()
            _send(first, "kt-fenced", b"zombie")
            first.commit_transaction()
        except KafkaError:
            pass
        else:
            expect(False, "the first instance was not fenced")
    expect_equal(_values(bootstrap, "kt-fenced", 2, "read_committed"), [b"first", b"second"], "values")


SCENARIOS: Final[dict[str, Scenario]] = {
    "transactions-commit-abort": commit_and_abort,
    "transactions-offsets": offsets,
    "transactions-fencing": fencing,
}
