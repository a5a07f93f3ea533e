"""kafka-python: producer, consumer, groups and admin client."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from tests.peers.clients.scenario import CODECS, Scenario, expect, expect_equal, wait_until
from tests.waiting import HANG_S

TIMEOUT_S: Final = HANG_S
LONGER_MS: Final = 25_000
"""A wait that fails its scenario, should it be waited for to its end; below the client's request time-out."""


@contextlib.contextmanager
def _admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _producer(bootstrap: str, **config: Any) -> Iterator[Any]:
    client = KafkaProducer(bootstrap_servers=bootstrap, **config)
    try:
        yield client
    finally:
        client.close(timeout=TIMEOUT_S)


def know(consumer: Any, topic: str) -> None:
    """Let a consumer that has subscribed hear of the topic before it joins its group, that is before its first poll.

    kafka-python 3.0.12 may join first. Elected leader, it then assigns nothing, and joins again when it hears of the
    partitions. If a `poll(timeout_ms)` ends during that second join, the assignment is lost: its `need_rejoin()` was
    true only for the partitions' sake, the second assignment makes it false, and so no later poll waits for the join's
    end. It stays in the group without partitions and without heartbeats until it expires. Apache Kafka's answers, held
    back as much, make it hang just so; the Java client had the like (KAFKA-9815).
    """
    wait_until(lambda: consumer.partitions_for_topic(topic), f"partitions of {topic}")


@contextlib.contextmanager
def _consumer(bootstrap: str, *topics: str, **config: Any) -> Iterator[Any]:
    client = KafkaConsumer(*topics, bootstrap_servers=bootstrap, **config)
    try:
        for topic in topics:
            know(client, topic)
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _polled(consumer: Any) -> Iterator[Callable[[], int]]:
    """Poll in a thread of its own, as applications do: a join that is not polled for is begun again.

    Yields how many partitions it owns; nothing but that thread may touch the consumer.
    """
    stopping = threading.Event()
    owned = [0]

    def poll() -> None:
        while not stopping.is_set():
            consumer.poll(timeout_ms=100)
            owned[0] = len(consumer.assignment())

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield lambda: owned[0]
    finally:
        stopping.set()
        thread.join()


def _refused(kind: type[KafkaError], call: Any, *arguments: Any, **options: Any) -> None:
    try:
        call(*arguments, **options)
    except kind:
        return
    expect(False, f"{getattr(call, '__name__', call)} was not refused with {kind.__name__}")


def _make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    with _admin(bootstrap) as admin:
        configs = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])


def _read(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []

    def enough() -> bool:
        for batch in consumer.poll(timeout_ms=300).values():
            records.extend(batch)
        return len(records) >= count

    wait_until(enough, f"{count} records")
    return records


def produce_and_consume(bootstrap: str) -> None:
    """Every codec, idempotent and not, with keys, headers and timestamps."""
    topic = "kp-codecs"
    _make_topic(bootstrap, topic)
    sent: list[bytes] = []
    for codec in CODECS:
        with _producer(
            bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=codec in ("none", "lz4"),
            linger_ms=20,
        ) as producer:
            values = [f"{codec}-{number}".encode() * 20 for number in range(10)]
            futures = [
                producer.send(topic, value, key=b"k", headers=[("codec", codec.encode())], timestamp_ms=7000)
                for value in values
            ]
            expect_equal({future.get(TIMEOUT_S).partition for future in futures}, {0}, "partitions")
            sent += values
    with _consumer(bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = _read(consumer, len(sent))
    expect_equal([record.value for record in records], sent, "values")
    expect_equal({record.timestamp for record in records}, {7000}, "timestamps")
    expect_equal(records[0].headers, [("codec", b"none")], "headers")


def groups(bootstrap: str) -> None:
    """Two members share the partitions, commit, leave, and a third goes on."""
    topic, group = "kp-group", "kp-group"
    _make_topic(bootstrap, topic, 4)
    config = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    quick = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}

    def owned(count: int, *members: Callable[[], int]) -> bool:
        time.sleep(0.02)
        return all(member() == count for member in members)

    with _consumer(bootstrap, topic, **config, **quick) as first:
        with _polled(first) as polled:
            wait_until(lambda: owned(4, polled), "all partitions")
            with _consumer(bootstrap, topic, **config, **quick) as second, _polled(second) as two:
                wait_until(lambda: owned(2, polled, two), "two partitions each")
            wait_until(lambda: owned(4, polled), "all partitions again")
        first.commit({TopicPartition(topic, 1): OffsetAndMetadata(0, "note", -1)})
        expect_equal(first.committed(TopicPartition(topic, 1)), 0, "committed offset")
        expect_equal(first.committed(TopicPartition(topic, 2)), None, "no committed offset")


def commit_and_resume(bootstrap: str) -> None:
    """A new member goes on where the last one committed."""
    topic, group = "kp-commit", "kp-commit"
    _make_topic(bootstrap, topic)
    with _producer(bootstrap) as producer:
        for number in range(6):
            producer.send(topic, str(number).encode()).get(TIMEOUT_S)
    config = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with _consumer(bootstrap, topic, max_poll_records=3, **config) as first:
        expect_equal(_read(first, 3)[2].value, b"2", "third value")
        first.commit()
    with _consumer(bootstrap, topic, group_instance_id="static", **config) as second:
        expect_equal(_read(second, 1)[0].value, b"3", "first value after the commit")


def offsets_by_time(bootstrap: str) -> None:
    """Beginning, end and offsets for times."""
    topic = "kp-times"
    _make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    with _producer(bootstrap) as producer:
        for timestamp in (1000, 2000, 3000):
            producer.send(topic, b"v", timestamp_ms=timestamp).get(TIMEOUT_S)
    with _consumer(bootstrap) as consumer:
        expect_equal(consumer.beginning_offsets([partition]), {partition: 0}, "beginning")
        expect_equal(consumer.end_offsets([partition]), {partition: 3}, "end")
        expect_equal(consumer.offsets_for_times({partition: 1500})[partition].offset, 1, "offset at 1500")
        expect_equal(consumer.offsets_for_times({partition: 3001})[partition], None, "offset after the last")


def long_poll(bootstrap: str) -> None:
    """A waiting fetch is answered when a record arrives."""
    topic = "kp-poll"
    _make_topic(bootstrap, topic)
    with _producer(bootstrap) as producer, _consumer(bootstrap, fetch_max_wait_ms=LONGER_MS) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        expect_equal(consumer.poll(timeout_ms=300), {}, "an empty topic")
        timer = threading.Timer(0.2, lambda: producer.send(topic, b"now"))
        timer.start()
        (record,) = _read(consumer, 1)  # which would give up before the fetch's time is over
        expect_equal(record.value, b"now", "value")
        timer.join()


def errors(bootstrap: str) -> None:
    """Refusals arrive as the exceptions that Apache Kafka's make."""
    _make_topic(bootstrap, "kp-compacted", cleanup_policy="compact")
    _make_topic(bootstrap, "kp-errors")
    with _producer(bootstrap) as producer:
        _refused(InvalidRecordError, producer.send("kp-compacted", b"no key").get, TIMEOUT_S)
    with _consumer(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("kp-errors", 0)])
        consumer.seek(TopicPartition("kp-errors", 0), 100)
        _refused(OffsetOutOfRangeError, lambda: consumer.poll(timeout_ms=TIMEOUT_S * 1000))


def admin_topics(bootstrap: str) -> None:
    """Topics and partitions, and what is refused."""
    with _admin(bootstrap) as admin:
        admin.create_topics([NewTopic("kp-admin", 2, 1)])
        _refused(TopicAlreadyExistsError, admin.create_topics, [NewTopic("kp-admin", 2, 1)])
        _refused(InvalidTopicError, admin.create_topics, [NewTopic("kp admin", 2, 1)])
        _refused(InvalidReplicationFactorError, admin.create_topics, [NewTopic("kp-two", 2, 3)])
        _refused(InvalidPartitionsError, admin.create_topics, [NewTopic("kp-two", 0, 1)])
        _refused(InvalidConfigurationError, admin.create_topics, [NewTopic("kp-two", 1, 1, topic_configs={"a.b": "1"})])
        admin.create_partitions({"kp-admin": 3})
        _refused(InvalidPartitionsError, admin.create_partitions, {"kp-admin": 3})
        expect("kp-admin" in admin.list_topics(), "the topic is listed")
        (described,) = admin.describe_topics(["kp-admin"])
        expect_equal(len(described["partitions"]), 3, "partitions")
        described = admin.describe_topic_partitions(["kp-admin"])
        expect(described, "an answer to DescribeTopicPartitions")
        admin.describe_log_dirs()
        admin.describe_cluster()
        admin.describe_features()
        admin.list_config_resources()
        admin.elect_leaders(0, topic_partitions={"kp-admin": [0]}, raise_errors=False)
        admin.delete_topics(["kp-admin"])
        _refused(UnknownTopicOrPartitionError, admin.delete_topics, ["kp-admin"])


def admin_configs(bootstrap: str) -> None:
    """Describe and alter configs of a topic and the broker."""
    _make_topic(bootstrap, "kp-configs")
    with _admin(bootstrap) as admin:
        admin.alter_configs([ConfigResource("TOPIC", "kp-configs", {"retention.ms": "5000"})])
        admin.alter_configs([ConfigResource("TOPIC", "kp-configs", {"segment.bytes": "2000000"})], incremental=False)
        outcome = repr(admin.alter_configs([ConfigResource("TOPIC", "kp-configs", {"retention.ms": "x"})]))
        expect("[Error 40]" in outcome, outcome)
        described = admin.describe_configs(
            [ConfigResource("TOPIC", "kp-configs", None), ConfigResource("BROKER", "1", None)],
            include_synonyms=True,
            config_filter="all",
        )
        expect(described, "configs")


def admin_records_and_groups(bootstrap: str) -> None:
    """Delete records; list, describe, alter and delete groups and their offsets."""
    topic, group = "kp-records", "kp-admin-group"
    _make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    with _producer(bootstrap) as producer:
        for _ in range(5):
            producer.send(topic, b"x").get(TIMEOUT_S)
    with _admin(bootstrap) as admin:
        admin.delete_records({partition: 2})
        _refused(OffsetOutOfRangeError, admin.delete_records, {partition: 9})
        with _consumer(bootstrap, topic, group_id=group, auto_offset_reset="earliest") as consumer:
            expect_equal(_read(consumer, 3)[0].offset, 2, "first offset left")
            expect(admin.describe_groups([group]), "a group")
            outcome = repr(admin.delete_groups([group]))
            expect("NonEmptyGroup" in outcome, outcome)
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(3, "", -1)})
        expect(admin.list_group_offsets({group: None}), "offsets")
        expect(admin.list_groups(), "groups")
        admin.delete_group_offsets(group, [partition])
        admin.delete_groups([group])
        outcome = repr(admin.delete_groups([group]))
        expect("GroupIdNotFound" in outcome, outcome)


SCENARIOS: Final[dict[str, Scenario]] = {
    "produce-consume": produce_and_consume,
    "groups": groups,
    "commit-resume": commit_and_resume,
    "offsets-by-time": offsets_by_time,
    "long-poll": long_poll,
    "errors": errors,
    "admin-topics": admin_topics,
    "admin-configs": admin_configs,
    "admin-records-groups": admin_records_and_groups,
}
