"""Apache Kafka's Java producer inside the session's JVM, and its console consumer beside it: others than ourselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.apache_kafka import KafkaTools
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


class JavaProducer:
    """A transactional ``KafkaProducer``; the session needs the connector's jars. Use it as a context manager."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, transactional_id: str, codec: str) -> None:
        jvm: Any = spark._jvm
        settings = jvm.java.util.HashMap()
        settings.put("bootstrap.servers", bootstrap_servers)
        settings.put("transactional.id", transactional_id)
        settings.put("compression.type", codec)
        settings.put("key.serializer", _BYTES)
        settings.put("value.serializer", _BYTES)
        self._record = jvm.org.apache.kafka.clients.producer.ProducerRecord
        self._producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)

    def __enter__(self) -> JavaProducer:
        self._producer.initTransactions()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def transaction(self, topic: str, values: list[bytes], *, commit: bool) -> None:
        """Send values, flushed, and end the transaction so."""
        self._producer.beginTransaction()
        for value in values:
            self._producer.send(self._record(topic, None, bytearray(value)))
        self._producer.flush()
        if commit:
            self._producer.commitTransaction()
        else:
            self._producer.abortTransaction()


def write_with_every_codec(spark: SparkSession, bootstrap_servers: str, topic: str) -> tuple[list[bytes], list[bytes]]:
    """Committed and aborted transactions of a Java producer for each codec; the values of both."""
    committed: list[bytes] = []
    aborted: list[bytes] = []
    for codec in CODECS:
        with JavaProducer(spark, bootstrap_servers, f"java-{topic}-{codec}", codec) as producer:
            for number, commit in enumerate((True, False, True)):
                values = [f"{codec} {number} {row} {'x' * row}".encode() for row in range(40)]
                producer.transaction(topic, values, commit=commit)
                (committed if commit else aborted).extend(values)
    return sorted(committed), sorted(aborted)


def console_consumed(bootstrap_servers: str, topic: str, expected: int) -> list[bytes]:
    """The values that Apache Kafka's console consumer reads at read_committed, until no more come for a while. Its JVM
    may be slower than that: a reading of fewer than expected is repeated."""
    arguments = ("--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "8000")
    values: list[bytes] = []
    said = ""

    def has_all() -> bool:
        nonlocal values, said
        done = KafkaTools(bootstrap_servers).run("kafka-console-consumer", *arguments)
        values, said = sorted(line.encode() for line in done.stdout.splitlines()), done.stderr
        return len(values) >= expected

    wait_until(has_all, lambda: f"{expected} values of {topic}, {len(values)} read: {said[-2000:]}")
    return values
