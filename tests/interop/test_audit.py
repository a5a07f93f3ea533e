"""An audit of healthy brokers' directories finds nothing: after transactions, aborts, compaction and a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.spark.audit.directories import plan
from oncelog.spark.audit.engines.local_engine import LocalEngine
from oncelog.spark.audit.pipeline import AuditResult, audit
from oncelog.testing import Broker
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
PLAIN = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
COMPACT = PLAIN | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "delete.retention.ms": "500",
}
PLACES = [TopicPartition(TopicName(topic), index) for topic in ("plain", "compact") for index in range(2)]
"""Of each topic."""


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path, Callable[[], None]]]:
    """Bootstrap servers, data directory, and how to stop it."""
    if request.param == "oncelog":
        with Broker({"log.cleaner.backoff.ms": "200"}, data_dir=tmp_path / "data") as broker:
            yield broker.bootstrap_servers, tmp_path / "data", broker.stop
        return
    properties = {
        "log.cleaner.backoff.ms": "200",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
    }
    kafka = ApacheKafka(tmp_path, properties=properties).start()
    stopped: list[bool] = []

    def stop() -> None:
        kafka.stop()
        stopped.append(True)

    yield kafka.bootstrap_servers, kafka.data_directory, stop
    if not stopped:
        kafka.stop()


def write(bootstrap: str) -> None:
    """Transactions of our client (Transactions V2) and of librdkafka (before)"""
    from confluent_kafka import Consumer, Producer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["plain"])
    with Client(bootstrap) as client:
        for topic, configs in (("plain", PLAIN), ("compact", COMPACT)):
            create_topic(client, NewTopic(topic, 2, configs=configs))
        for instance in range(2):
            with TransactionalProducer(client, TransactionSettings(f"ours-{instance}")) as producer:
                producer.initialize()
                for number in range(30):
                    producer.begin()
                    for place in PLACES:
                        key = b"k%d" % (number % 5)
                        producer.send(place.topic, os.urandom(900), key=key, partition=place.partition)
                    producer.flush()
                    if number % 7 == 3:
                        producer.abort()
                    else:
                        producer.commit()
    theirs = Producer({"bootstrap.servers": bootstrap, "transactional.id": "theirs", "compression.type": "lz4"})
    theirs.init_transactions(HANG_S)
    for number in range(60):
        theirs.begin_transaction()
        for place in PLACES:
            theirs.produce(place.topic, os.urandom(900), key=str(number % 9), partition=place.partition)
        if number % 10 == 5:
            consumer.consume(10, 1.0)
            positions = [record for record in consumer.position(consumer.assignment()) if record.offset >= 0]
            theirs.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        theirs.flush()
        if number % 5 == 3:
            theirs.abort_transaction(HANG_S)
        else:
            theirs.commit_transaction(HANG_S)
    consumer.close()


def audited(directory: Path) -> AuditResult:
    return audit(plan([directory]), LocalEngine())


def cleaned(result: AuditResult) -> bool:
    """True if compaction has taken something away."""
    return any(stat.has_holes for stat in result.stats if stat.topic == "compact")


def test_a_directory_with_transactions_aborts_and_compaction_gives_none(
    cluster: tuple[str, Path, Callable[[], None]],
) -> None:
    bootstrap, directory, stop = cluster
    write(bootstrap)
    deadline_s = time.monotonic() + 30
    while not cleaned(audited(directory)) and time.monotonic() < deadline_s:
        time.sleep(0.5)  # whether anything is left to clean depends on where segments ended: the rest is worth a look
    running = audited(directory)
    stop()
    result = audited(directory)
    assert result.findings == []
    assert [
        finding
        for finding in running.findings
        if finding.kind in ("torn", "crc", "duplicate", "gap", "producer-snapshot")
    ] == []
    # Unknown: compaction has emptied markers whose transactions it had taken away.
    assert {tally.fate for tally in result.tallies} - {"unknown"} == {"committed", "aborted"}
    plain = [stat for stat in result.stats if stat.topic == "plain"]
    assert sum(item.records for item in plain) == 2 * (2 * 60 + 2 * 60)
