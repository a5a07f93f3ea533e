"""confluent-kafka (librdkafka): transactions, with the oldest versions of their requests."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.peers.clients.confluent import TIMEOUT_S, consume, make_topic, read_partition
from tests.peers.clients.scenario import Scenario, expect, expect_equal, wait_until


def _producer(bootstrap: str, name: str, **config: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5, **config})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition, timestamp=1000)


def _values(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes | None]:
    return [message.value() for message in read_partition(bootstrap, topic, count, **{"isolation.level": isolation})]


def commit_and_abort(bootstrap: str) -> None:
    """Committed transactions are read, aborted ones are not; one that is sent without records is no transaction."""
    make_topic(bootstrap, "ct-one")
    make_topic(bootstrap, "ct-two", 2)
    producer = _producer(bootstrap, "ct-commit")
    for number in range(4):
        producer.begin_transaction()
        _send(producer, "ct-one", b"a%d" % number, b"b%d" % number)
        _send(producer, "ct-two", b"c%d" % number, partition=number % 2)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    _send(producer, "ct-one", b"last")
    producer.commit_transaction(TIMEOUT_S)
    expect_equal(_values(bootstrap, "ct-one", 5, "read_committed"), [b"a0", b"b0", b"a2", b"b2", b"last"], "committed")
    everything = _values(bootstrap, "ct-one", 9, "read_uncommitted")
    expect_equal(everything[2:4], [b"a1", b"b1"], "what was aborted is there for those who want it")


def open_transactions_hold_readers_back(bootstrap: str) -> None:
    """Records behind the first one of an open transaction are not read with read_committed, until it ends."""
    make_topic(bootstrap, "ct-open")
    holding = _producer(bootstrap, "ct-holding")
    holding.begin_transaction()
    _send(holding, "ct-open", b"held")
    holding.flush(TIMEOUT_S)
    other = _producer(bootstrap, "ct-other")
    other.begin_transaction()
    _send(other, "ct-open", b"behind")
    other.commit_transaction(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ct-open", "isolation.level": "read_committed"})
    try:
        expect_equal(consumer.get_watermark_offsets(TopicPartition("ct-open", 0), TIMEOUT_S), (0, 0), "last stable")
    finally:
        consumer.close()
    expect_equal(_values(bootstrap, "ct-open", 2, "read_uncommitted"), [b"held", b"behind"], "all")
    holding.abort_transaction(TIMEOUT_S)
    expect_equal(_values(bootstrap, "ct-open", 1, "read_committed"), [b"behind"], "committed")


def offsets(bootstrap: str) -> None:
    """Offsets of what was consumed are committed with what was made of it, or neither."""
    make_topic(bootstrap, "ct-source")
    make_topic(bootstrap, "ct-sink")
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(6):
        plain.produce("ct-source", b"%d" % number)
    expect_equal(plain.flush(TIMEOUT_S), 0, "messages left")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ct-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["ct-source"])
    producer = _producer(bootstrap, "ct-copy")
    try:
        for commit in (True, False):
            messages = consume(consumer, 3)
            producer.begin_transaction()
            _send(producer, "ct-sink", *[message.value() or b"" for message in messages])
            position = [TopicPartition("ct-source", 0, (messages[-1].offset() or 0) + 1)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
            if commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        partition = TopicPartition("ct-source", 0)
        expect_equal(consumer.committed([partition], TIMEOUT_S)[0].offset, 3, "committed offset")
    finally:
        consumer.close()
    expect_equal(_values(bootstrap, "ct-sink", 3, "read_committed"), [b"0", b"1", b"2"], "copied")


def fencing(bootstrap: str) -> None:
    """A second instance of a transactional id fences the first, which can do nothing any more."""
    make_topic(bootstrap, "ct-fenced")
    first = _producer(bootstrap, "ct-fencing")
    first.begin_transaction()
    _send(first, "ct-fenced", b"first")
    first.commit_transaction(TIMEOUT_S)
    second = _producer(bootstrap, "ct-fencing")
    second.begin_transaction()
    _send(second, "ct-fenced", b"second")
    second.commit_transaction(TIMEOUT_S)
    first.begin_transaction()
    _send(first, "ct-fenced", b"zombie")
    try:
        first.commit_transaction(TIMEOUT_S)
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        expect(error.fatal() or error.code() == KafkaError._FENCED, f"fenced with {error}")
    else:
        expect(False, "the first instance was not fenced")
    expect_equal(_values(bootstrap, "ct-fenced", 2, "read_committed"), [b"first", b"second"], "values")


def refusals(bootstrap: str) -> None:
    """A time-out beyond the maximum is refused when the producer introduces itself."""
    try:
        _producer(bootstrap, "ct-slow", **{"transaction.timeout.ms": 900_001})
    except KafkaException as refused:
        expect_equal(refused.args[0].code(), KafkaError.INVALID_TRANSACTION_TIMEOUT, "error")
    else:
        expect(False, "the time-out was accepted")


def time_out(bootstrap: str) -> None:
    """A transaction that is open for too long is aborted, and its producer is told so."""
    make_topic(bootstrap, "ct-late")
    late = _producer(bootstrap, "ct-late", **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    late.begin_transaction()
    _send(late, "ct-late", b"late")
    late.flush(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ct-late", "isolation.level": "read_committed"})
    partition = TopicPartition("ct-late", 0)
    try:
        wait_until(lambda: consumer.get_watermark_offsets(partition, TIMEOUT_S)[1] == 2, "the abort marker")
    finally:
        consumer.close()
    try:
        late.commit_transaction(TIMEOUT_S)
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        expect(error.fatal() or error.txn_requires_abort(), f"refused with {error}")
    else:
        expect(False, "the commit was accepted after the time-out")


SCENARIOS: Final[dict[str, Scenario]] = {
    "transactions-commit-abort": commit_and_abort,
    "transactions-open": open_transactions_hold_readers_back,
    "transactions-offsets": offsets,
    "transactions-fencing": fencing,
    "transactions-refusals": refusals,
}
