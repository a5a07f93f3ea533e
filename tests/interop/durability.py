"""Kill the broker at random moments under load, start it again, and count: every acknowledged record, exactly once.

`python -m tests.interop.durability --seed 7 --rounds 50` runs a long one by hand; `--acks 1` shows what page-cache
acknowledgements survive (a kill of the process loses none of those either; a power cut would).
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import HANG_S, wait_until

TOPIC: Final = "durable"


@dataclass
class Load:
    """An idempotent producer that numbers its records per partition and remembers which were acknowledged."""

    bootstrap: str
    partitions: int
    acknowledged: list[list[int]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.acknowledged = [[] for _ in range(self.partitions)]
        self.sent = [0] * self.partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Produce until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until the last record is acknowledged."""
        self._stopping.set()
        self._thread.join()

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.acknowledged))

    def wait_for_more(self) -> None:
        """Until the producer has found the broker again: a kill that nobody notices proves nothing."""
        wanted = self.count + 100
        wait_until(lambda: self.count >= wanted, "the producer, which has to find the broker again", poll_s=0.005)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 2000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        while not self._stopping.is_set():
            for partition in range(self.partitions):
                self._send(producer, partition)
            producer.poll(0.001)
        if producer.flush(HANG_S):
            self.failed.append("records were never acknowledged")

    def _send(self, producer: Any, partition: int) -> None:
        number = self.sent[partition]

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged[partition].append(number)
            else:
                self.failed.append(f"record {number} of partition {partition}: {error}")

        try:
            producer.produce(TOPIC, str(number).encode(), partition=partition, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.05)
            return
        self.sent[partition] += 1


def read_partition(bootstrap: str, partition: int) -> list[int]:
    """Every number in a partition, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    numbers = []
    deadline = time.monotonic() + HANG_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                numbers.append(int(message.value() or b"-1"))
            elif error.code() == KafkaError._PARTITION_EOF:
                return numbers
            else:
                raise KafkaException(error)
        raise TimeoutError(f"no end of partition {partition}")
    finally:
        consumer.close()


def check(load: Load) -> Iterator[str]:
    """One line for every broken promise: lost, doubled or out of order."""
    yield from load.failed
    for partition, acknowledged in enumerate(load.acknowledged):
        stored = read_partition(load.bootstrap, partition)
        lost = set(acknowledged) - set(stored)
        if lost:
            yield f"partition {partition}: {len(lost)} acknowledged records lost, from {min(lost)}"
        if len(set(stored)) != len(stored):
            yield f"partition {partition}: {len(stored) - len(set(stored))} records twice"
        if stored != sorted(stored):
            yield f"partition {partition}: out of order"


def run(directory: Path, *, seed: int, rounds: int, partitions: int = 3, longest_s: float = 0.3) -> list[str]:
    """Kill and restart `rounds` times under load; the broken promises."""
    chance = random.Random(seed)
    broker = OncelogServe(directory, properties={"log.segment.bytes": "1048576"}, forked=True).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(HANG_S)
        load = Load(broker.bootstrap_servers, partitions)
        load.start()
        try:
            for _ in range(rounds):
                load.wait_for_more()
                time.sleep(chance.uniform(0, longest_s))
                broker.kill()
                broker.start()
        finally:
            load.stop()
        broken = list(check(load))
        print(f"seed {seed}: {rounds} kills, {load.count} records acknowledged", *broken, sep="\n")
        return broken
    finally:
        broker.kill()


def main() -> int:
    """Run by hand; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--directory", type=Path, required=True, help="an empty directory for the broker")
    options = parser.parse_args()
    return 1 if run(options.directory, seed=options.seed, rounds=options.rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
