"""Software built on Apache Kafka's clients, exactly once: Streams through a killed broker, Connect through a killed
worker."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.peers.clients.confluent import make_topic
from tests.peers.ecosystem import ConnectWorker, WordCount
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import HANG_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer("ecosystem"),
    pytest.mark.skipif(not shutil.which("javac"), reason="a JDK is needed: Kafka Streams and Connect are left out"),
]
PROPERTIES: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
KEPT: Final = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200, "log_level": 0}
"""For clients that outlive their only broker; docs/COMPATIBILITY.md says why."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OncelogServe]:
    with OncelogServe(tmp_path / "broker", properties=PROPERTIES) as serving:
        yield serving


class Committed:
    """Follows a topic of one partition at read_committed, over restarts of the broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False, **KEPT}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self.records: list[tuple[str, str]] = []

    def reach(self, count: int) -> None:
        """Read until there are so many."""

        def reached() -> bool:
            self._read()
            return len(self.records) >= count

        wait_until(reached, lambda: f"{count} records: {len(self.records)} came", poll_s=0)

    def reach_end(self) -> None:
        """Read to the end of what is committed."""
        while not self._read():
            pass

    def _read(self) -> bool:
        at_end = False
        for message in self._consumer.consume(1000, 0.2):
            error = message.error()
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is None:
                self.records.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        return at_end

    def close(self) -> None:
        self._consumer.close()


def committed(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """All keys and values a reader finds who begins now."""
    reader = Committed(bootstrap, topic)
    reader.reach_end()
    reader.close()
    return reader.records


def send_lines(bootstrap: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **KEPT})
    for number, line in enumerate(lines):
        producer.produce("lines", line, partition=number % 2)
    assert producer.flush(HANG_S) == 0


def test_streams_counts_every_word_once_though_the_broker_is_killed(broker: OncelogServe, tmp_path: Path) -> None:
    drawn = random.Random(1)
    lines = [" ".join(f"w{drawn.randrange(20)}" for _ in range(4)) for _ in range(2000)]
    make_topic(broker.bootstrap_servers, "lines", 2)
    make_topic(broker.bootstrap_servers, "counts", 1)
    counts = Committed(broker.bootstrap_servers, "counts")
    counting = WordCount(broker.bootstrap_servers, tmp_path)
    try:
        send_lines(broker.bootstrap_servers, lines[:1000])
        counts.reach(1)
        broker.kill()
        broker.start()
        send_lines(broker.bootstrap_servers, lines[1000:])
        counts.reach(4 * len(lines))
        counting.finish()
    finally:
        counting.kill()
        counts.close()
    records = committed(broker.bootstrap_servers, "counts")
    words = [word for line in lines for word in line.split()]
    steps = {word: [int(count) for key, count in records if key == word] for word in set(words)}
    assert steps == {word: list(range(1, words.count(word) + 1)) for word in set(words)}
    assert len(records) == len(words)


def test_connect_sends_every_line_once_though_the_worker_is_killed(broker: OncelogServe, tmp_path: Path) -> None:
    lines = [str(number) for number in range(9000)]
    file = tmp_path / "lines.txt"
    make_topic(broker.bootstrap_servers, "copied", 1)
    source = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": "copied",
        # All that is there is one transaction: with smaller batches the connector keeps the last lines to itself.
        "batch.size": "100000",
        "exactly.once.support": "required",
    }

    def write(some: list[str]) -> None:
        with file.open("a") as more:
            more.write("".join(f"{line}\n" for line in some))

    copied = Committed(broker.bootstrap_servers, "copied")
    write(lines[:3000])
    worker = ConnectWorker(broker.bootstrap_servers, tmp_path)
    try:
        worker.configure("file", source)
        copied.reach(3000)
        write(lines[3000:6000])
        worker.kill()
        worker = ConnectWorker(broker.bootstrap_servers, tmp_path)
        copied.reach(6000)
        write(lines[6000:])
        copied.reach(len(lines))
    finally:
        worker.kill()
        copied.close()
    assert [value for _, value in committed(broker.bootstrap_servers, "copied")] == lines
