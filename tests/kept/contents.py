"""The contents of a kept directory and of a kept cluster: every kind of topic, group, transaction and setting.

Topics never lose records to retention, however old the files are. Timestamps are those of :data:`FIRST_MS`, an hour
apart, so that ``segment.ms`` seals segments. Markers have the broker's time, and so do the records of ``orders``.
"""

from __future__ import annotations

from typing import Final, Literal

from oncelog.admin.acls import create_acls
from oncelog.admin.client_quotas import alter_quotas
from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.scram_users import set_password
from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern
from oncelog.base.acls import ResourceType as AclResource
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import (
    Client,
    Committed,
    GroupConsumer,
    Producer,
    ProducerSettings,
    ShareConsumer,
    ShareRecord,
    ShareSettings,
    TransactionalProducer,
    TransactionSettings,
    read_fetched,
)
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.machine.requests import LATEST
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.records.compression import Codec
from tests.kept.schemas import write_schemas
from tests.waiting import wait_until

FIRST_MS: Final = 1_750_000_000_000
HOUR_MS: Final = 3_600_000
FOR_EVER: Final = str(2**31 - 1)
AGELESS: Final = {
    "offsets.retention.minutes": FOR_EVER,
    "transactional.id.expiration.ms": FOR_EVER,
    "producer.id.expiration.ms": FOR_EVER,
}
"""Broker settings under which nothing expires between a release and a test."""
PROPERTIES: Final = {
    **AGELESS,
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "600000",  # compaction between two readings would change what they compare
    "group.initial.rebalance.delay.ms": "0",
    "transaction.two.phase.commit.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
MAKING: Final = {
    "log.cleaner.backoff.ms": "100",
    # The open transaction stays open until the files are packed.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
}
_TOPIC: Final = {"retention.ms": "-1", "segment.ms": str(2 * HOUR_MS)}
COMPACTED: Final = {
    **_TOPIC,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": str(100 * 365 * 24 * HOUR_MS),
}
CODECS: Final = {"plain": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_PROTOCOLS: Final[dict[str, Literal["classic", "consumer"]]] = {"classic": "classic", "modern": "consumer"}
PREPARED: Final = "prepared"
OPEN: Final = "open"
TRIMMED_FROM: Final = 7
PASSWORD: Final = "kept-secret"
JOBS: Final = "jobs"
WORKERS: Final = "workers"
EXPLICIT: Final = ShareSettings(acknowledgement="explicit", acquire="record_limit", max_records=12)


def write(client: Client, replicas: int) -> StoredTransaction:
    """Write everything; returns the prepared transaction, which stays undecided."""
    for name in CODECS:
        create_topic(client, NewTopic(name, 1, replicas, _TOPIC))
    for name in ("trimmed", "orders", "payments"):
        configs = {**_TOPIC, "segment.ms": "1"} if name == "orders" else _TOPIC
        create_topic(client, NewTopic(name, 2, replicas, configs))
    create_topic(client, NewTopic("appended", 1, replicas, {**_TOPIC, "message.timestamp.type": "LogAppendTime"}))
    create_topic(client, NewTopic("compacted", 1, replicas, COMPACTED))
    _write_codecs(client)
    _write_compacted(client)
    _write_transactions(client)
    _write_groups(client)
    _write_share_group(client, replicas)
    write_schemas(client, replicas)
    _write_settings(client)
    return _leave_undecided(client)


def _write_codecs(client: Client) -> None:
    for topic, codec in (*CODECS.items(), ("trimmed", Codec.NONE), ("appended", Codec.LZ4)):
        with Producer(client, ProducerSettings(codec=codec)) as producer:
            for number in range(20):
                headers = (("number", b"%d" % number), ("none", None)) if number % 5 == 0 else ()
                key = None if number % 7 == 6 else b"key-%d" % (number % 4)
                value = None if number % 11 == 10 else b"%s-%d" % (topic.encode(), number) * 5
                at_ms = FIRST_MS + number * HOUR_MS
                producer.send(topic, value, key=key, partition=0, headers=headers, timestamp_ms=at_ms)
                if number % 2:
                    producer.flush()
    delete_records(client, {TopicPartition(TopicName("trimmed"), 0): TRIMMED_FROM})


def _write_compacted(client: Client) -> None:
    with Producer(client) as producer:
        for number in range(24):
            value = None if number in (13, 20) else b"value-%d" % number
            at_ms = FIRST_MS + number * HOUR_MS
            producer.send("compacted", value, key=b"key-%d" % (number % 6), partition=0, timestamp_ms=at_ms)
            producer.flush()
    # The last of each key before the active segment, which begins at the last roll, and the three records there.
    wait_until(lambda: _count(client, "compacted") == 6 + 3, lambda: f"a compaction: {_count(client, 'compacted')}")


def _count(client: Client, topic: str) -> int:
    partition = TopicPartition(TopicName(topic), 0)
    ends = offsets_at(client, {partition: LATEST})
    return sum(1 for fetched in client.fetch({partition: 0}, until=ends) for _ in read_fetched(fetched))


def _write_transactions(client: Client) -> None:
    for number in range(6):
        with TransactionalProducer(client, TransactionSettings(f"writer-{number % 2}")) as producer:
            producer.initialize()
            producer.begin()
            for partition in range(2):
                for record in range(3):
                    value = b"%d-%d-%s" % (number, record, b"aborted" if number % 3 == 2 else b"committed")
                    producer.send("orders", value, partition=partition)
            producer.flush()
            if number % 3 == 2:
                producer.abort()
            else:
                offsets = {TopicPartition(TopicName("plain"), 0): Committed(number + 1, metadata=f"run {number}")}
                producer.send_offsets(offsets, GroupMetadata("transactional"))
                producer.commit()


def _write_groups(client: Client) -> None:
    for group, protocol in _PROTOCOLS.items():
        with GroupConsumer(client, group, ["plain", "gzip"], protocol=protocol) as consumer:
            seen = 0
            while seen < 40:
                for fetched in consumer.poll():
                    for record in read_fetched(fetched):
                        seen += 1
                        consumer.processed(fetched.partition, record.offset + 1)
            consumer.commit()


def _write_share_group(client: Client, replicas: int) -> None:
    """Jobs in each state that outlives a broker: 0 to 3 and 6 are done, 7 is archived, the others come again."""
    create_topic(client, NewTopic(JOBS, 1, replicas, _TOPIC))
    with Producer(client) as producer:
        for number in range(EXPLICIT.max_records):
            at_ms = FIRST_MS + number * HOUR_MS
            producer.send(JOBS, b"job-%d" % number, partition=0, timestamp_ms=at_ms)
    alter_configs(client, ResourceType.GROUP, WORKERS, change={"share.auto.offset.reset": "earliest"})
    with ShareConsumer(client, WORKERS, [JOBS], settings=EXPLICIT) as consumer:
        held: list[ShareRecord] = []
        while len(held) < EXPLICIT.max_records:
            held += consumer.poll()
        for record in held:
            if record.offset in (*range(4), 6):
                consumer.accept(record)
            elif record.offset == 7:
                consumer.reject(record)
            else:
                consumer.release(record)
        consumer.commit()


def _write_settings(client: Client) -> None:
    set_password(client, "ann", PASSWORD)
    pattern = ResourcePattern(AclResource.TOPIC, PatternType.LITERAL, "orders")
    entry = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
    create_acls(client, [AclBinding(pattern, entry)])
    alter_quotas(client, (("user", "ann"),), {"producer_byte_rate": 1_000_000.0})
    alter_configs(client, ResourceType.BROKER, "", change={"log.cleaner.threads": "2"})
    alter_configs(client, ResourceType.TOPIC, "orders", change={"max.message.bytes": "500000"})
    alter_configs(client, ResourceType.GROUP, "modern", change={"consumer.session.timeout.ms": "50000"})


def _leave_undecided(client: Client) -> StoredTransaction:
    opened = TransactionalProducer(client, TransactionSettings(OPEN, timeout_ms=1_000))
    opened.initialize()
    opened.begin()
    opened.send("payments", b"open", partition=0, timestamp_ms=FIRST_MS)
    opened.flush()
    two_phase = TransactionalProducer(client, TransactionSettings(PREPARED, two_phase=True))
    two_phase.initialize()
    two_phase.begin()
    two_phase.send("payments", b"prepared", partition=1, timestamp_ms=FIRST_MS)
    stored = two_phase.prepare()
    for producer in (opened, two_phase):
        producer.close()
    with Producer(client) as plain:
        for partition in range(2):
            plain.send("payments", b"later", partition=partition, timestamp_ms=FIRST_MS + HOUR_MS)
    return stored
