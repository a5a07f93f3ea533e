"""confluent-kafka (librdkafka): producing and consuming."""

from __future__ import annotations

import threading
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.peers.clients.scenario import CODECS, Scenario, expect, expect_equal, wait_until
from tests.waiting import HANG_S

TIMEOUT_S: Final = HANG_S
LONGER_MS: Final = 30_000
"""A wait that fails its scenario, should it be waited for to its end."""


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def produce_all(producer: Producer, topic: str, values: list[bytes], **options: Any) -> list[Message]:
    """Produce the values and wait until all are acknowledged; the delivered messages."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery, **options)
        producer.poll(0)
    expect_equal(producer.flush(TIMEOUT_S), 0, "messages left in the producer")
    expect_equal(failed, [], "failed deliveries")
    return delivered


def consume(consumer: Consumer, count: int) -> list[Message]:
    """Poll until `count` messages are there."""
    messages: list[Message] = []

    def enough() -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            expect(message.error() is None, f"consumer error {message.error()}")
            messages.append(message)
        return len(messages) >= count

    wait_until(enough, f"{count} messages")
    return messages


def read_partition(bootstrap: str, topic: str, count: int, **config: Any) -> list[Message]:
    """Read `count` messages of partition 0 from its beginning, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return consume(consumer, count)
    finally:
        consumer.close()


def produce_and_consume(bootstrap: str) -> None:
    """Every codec with keys, headers and timestamps comes back as it was sent."""
    topic = "ck-codecs"
    make_topic(bootstrap, topic)
    sent: list[bytes] = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        values = [f"{codec}-{number}-".encode() * 20 for number in range(20)]
        headers = [("codec", codec.encode()), ("none", None)]
        produce_all(producer, topic, values, key=codec.encode(), headers=headers, timestamp=1_700_000_000_000)
        sent += values
    messages = read_partition(bootstrap, topic, len(sent))
    expect_equal([message.value() for message in messages], sent, "values")
    expect_equal([message.offset() for message in messages], list(range(len(sent))), "offsets")
    expect_equal({message.timestamp()[1] for message in messages}, {1_700_000_000_000}, "timestamps")
    expect_equal(messages[0].headers(), [("codec", b"none"), ("none", None)], "headers")


def acknowledgements(bootstrap: str) -> None:
    """acks 1, all and (last, since nothing says when it is there) 0; tombstones and empty values are kept apart."""
    topic = "ck-acks"
    make_topic(bootstrap, topic)
    for acks in ("1", "all", "0"):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 50})
        produce_all(producer, topic, [acks.encode(), b""], key=b"k")
    producer.produce(topic, None, key=b"gone")
    expect_equal(producer.flush(TIMEOUT_S), 0, "messages left")
    messages = read_partition(bootstrap, topic, 7)
    expect_equal([message.value() for message in messages], [b"1", b"", b"all", b"", b"0", b"", None], "values")


def idempotent(bootstrap: str) -> None:
    """An idempotent producer over two partitions: nothing lost, nothing twice, order kept."""
    topic = "ck-idempotent"
    make_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for partition in (0, 1):
        for _ in range(3):
            produce_all(producer, topic, [str(number).encode() for number in range(50)], partition=partition)
    messages = read_partition(bootstrap, topic, 150)
    expect_equal([message.value() for message in messages], [str(n).encode() for n in range(50)] * 3, "values")


def large_messages(bootstrap: str) -> None:
    """A record near the limit passes, one over the topic's limit is refused as too large."""
    topic = "ck-large"
    make_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    produce_all(producer, topic, [b"x" * 1_000_000])
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"y" * 1_200_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    expect_equal([error and error.code() for error in errors], [KafkaError.MSG_SIZE_TOO_LARGE], "errors")
    (message,) = read_partition(bootstrap, topic, 1, **{"fetch.message.max.bytes": 1000})
    expect_equal(len(message.value() or b""), 1_000_000, "size of the record")


def _member(bootstrap: str, group: str, topic: str, **config: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **config,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _poll_until(consumers: list[Consumer], sizes: list[int]) -> None:
    """Poll all consumers, in turn, until they own so many partitions each (in any order)."""

    def settled() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return sorted(len(consumer.assignment()) for consumer in consumers) == sorted(sizes)

    wait_until(settled, f"assignments of {sizes}")


def group_rebalance(bootstrap: str) -> None:
    """Two consumers share four partitions; when one leaves, the other takes over. Eager and cooperative."""
    topic = "ck-group"
    make_topic(bootstrap, topic, 4)
    for strategy in ("range", "cooperative-sticky"):
        group = f"ck-group-{strategy}"
        first = _member(bootstrap, group, topic, **{"partition.assignment.strategy": strategy})
        _poll_until([first], [4])
        second = _member(bootstrap, group, topic, **{"partition.assignment.strategy": strategy})
        _poll_until([first, second], [2, 2])
        second.close()
        _poll_until([first], [4])
        first.close()


def commit_and_resume(bootstrap: str) -> None:
    """A new member goes on where the last one committed, metadata included."""
    topic, group = "ck-commit", "ck-commit-group"
    make_topic(bootstrap, topic)
    produce_all(Producer({"bootstrap.servers": bootstrap}), topic, [str(n).encode() for n in range(10)])
    first = _member(bootstrap, group, topic)
    messages = consume(first, 4)
    first.commit(
        offsets=[TopicPartition(topic, 0, (messages[3].offset() or 0) + 1, metadata="so far")], asynchronous=False
    )
    first.close()
    second = _member(bootstrap, group, topic)
    expect_equal(consume(second, 1)[0].value(), b"4", "first value after the commit")
    (committed,) = second.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    expect_equal((committed.offset, committed.metadata), (4, "so far"), "committed offset")
    second.close()


def static_membership(bootstrap: str) -> None:
    """A static member that comes back gets its partitions without a rebalance; a second of its name fences it."""
    topic, group = "ck-static", "ck-static-group"
    make_topic(bootstrap, topic, 2)
    first = _member(bootstrap, group, topic, **{"group.instance.id": "one"})
    _poll_until([first], [2])
    first.close()
    again = _member(bootstrap, group, topic, **{"group.instance.id": "one"})
    _poll_until([again], [2])
    again.close()


def offsets_by_time(bootstrap: str) -> None:
    """Offsets for times, watermarks, and a time after the last record."""
    topic = "ck-times"
    make_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for timestamp in (1000, 2000, 3000):
        produce_all(producer, topic, [b"v"], timestamp=timestamp)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})
    expect_equal(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S), (0, 3), "watermarks")
    for timestamp, offset in ((0, 0), (1500, 1), (3000, 2), (3001, -1)):
        (result,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=TIMEOUT_S)
        expect_equal(result.offset, offset, f"offset at {timestamp}")
    consumer.close()


def long_poll(bootstrap: str) -> None:
    """A fetch that waits is answered as soon as a record is there."""
    topic = "ck-poll"
    make_topic(bootstrap, topic)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "poll", "fetch.wait.max.ms": LONGER_MS, "fetch.min.bytes": 1}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    expect(consumer.poll(0.5) is None, "the topic is empty")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    timer = threading.Timer(0.2, lambda: produce_all(producer, topic, [b"now"]))
    timer.start()
    (message,) = consume(consumer, 1)  # which would give up before the fetch's time is over
    expect_equal(message.value(), b"now", "value")
    timer.join()
    consumer.close()


def errors(bootstrap: str) -> None:
    """Errors are told as Apache Kafka tells them."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": TIMEOUT_S * 1000})
    seen: list[int] = []
    producer.produce("ck bad name!", b"x", on_delivery=lambda error, _: seen.append(error.code() if error else 0))
    producer.flush(TIMEOUT_S)
    expect_equal(seen, [KafkaError.TOPIC_EXCEPTION], "error for a bad topic name")
    make_topic(bootstrap, "ck-compacted", cleanup_policy="compact")
    seen.clear()
    producer.produce("ck-compacted", b"x", on_delivery=lambda error, _: seen.append(error.code() if error else 0))
    producer.flush(TIMEOUT_S)
    expect_equal(seen, [KafkaError.INVALID_RECORD], "error for a record without a key on a compacted topic")
    make_topic(bootstrap, "ck-range")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ck-errors", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition("ck-range", 0, 1_000)])
    message = consumer.poll(TIMEOUT_S)
    error = message and message.error()
    expect_equal(error and error.code(), KafkaError._AUTO_OFFSET_RESET, "error for an offset out of range")
    consumer.close()
    try:
        make_topic(bootstrap, "ck-range")
    except KafkaException as refused:
        expect_equal(refused.args[0].code(), KafkaError.TOPIC_ALREADY_EXISTS, "error for a topic that exists")
    else:
        expect(False, "a topic was created twice")


SCENARIOS: Final[dict[str, Scenario]] = {
    "produce-consume": produce_and_consume,
    "acknowledgements": acknowledgements,
    "idempotent": idempotent,
    "large-messages": large_messages,
    "group-rebalance": group_rebalance,
    "commit-resume": commit_and_resume,
    "static-membership": static_membership,
    "offsets-by-time": offsets_by_time,
    "long-poll": long_poll,
    "errors": errors,
}
