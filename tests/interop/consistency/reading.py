"""The other side of a copy, always with confluent-kafka: fill the source, follow the copy, drain it at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.sim.checkers.history import GroupPartition, Poll, SeenRecord
from tests.interop.consistency.copying_client import COPY, COPY_PARTITIONS, GROUP, SOURCE
from tests.interop.consistency.processes import of_copy, of_group
from tests.interop.consistency.with_confluent import QUICK
from tests.load import read_to_end
from tests.waiting import HANG_S


class Reader:
    """Follows the copy at read_committed, over broker restarts, and remembers every poll."""

    def __init__(self, bootstrap: str) -> None:
        self.polls: list[Poll] = []
        self.saw_twice = False
        """Two copies of one record of the source."""
        self._seen: set[str] = set()
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Follow until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = _consumer(self._bootstrap, "reader")
        consumer.assign([TopicPartition(COPY, index, OFFSET_BEGINNING) for index in range(COPY_PARTITIONS)])
        while not self._stopping.is_set():
            results: dict[int, list[SeenRecord]] = {}
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    seen = SeenRecord(message.offset() or 0, (message.value() or b"").decode())
                    results.setdefault(message.partition() or 0, []).append(seen)
                    original = seen.value.partition("/")[0]
                    self.saw_twice |= original in self._seen
                    self._seen.add(original)
            now = time.monotonic_ns()
            self.polls += [Poll("reader", of_copy(index), now, records) for index, records in results.items()]
        consumer.close()


def fill(bootstrap: str, sources: int, item: int) -> None:
    """Both topics, with as many replicas as is the brokers' default, and the source's records."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    topics = [NewTopic(SOURCE, sources, -1), NewTopic(COPY, COPY_PARTITIONS, -1)]
    for future in admin.create_topics(topics).values():
        future.result(HANG_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUICK})
    for partition in range(sources):
        for number in range(item):
            producer.produce(SOURCE, f"{partition}:{number}", partition=partition)
            if number % 1000 == 0:
                producer.poll(0)
    if producer.flush(HANG_S):
        raise RuntimeError("the source was not filled")


def drain(bootstrap: str, partition: int) -> Iterator[SeenRecord]:
    """Everything committed in a partition of the copy."""
    for message in read_to_end(bootstrap, COPY, [partition], {"isolation.level": "read_committed", **QUICK}):
        yield SeenRecord(message.offset() or 0, (message.value() or b"").decode())


def committed_offsets(bootstrap: str, sources: int, timeout_s: float) -> dict[GroupPartition, int] | None:
    """The offsets that the group has committed of the source; None when transactions with offsets stay open."""
    consumer = _consumer(bootstrap, GROUP)
    partitions = [TopicPartition(SOURCE, index) for index in range(sources)]
    try:
        committed = consumer.committed(partitions, timeout_s)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError._TIMED_OUT:
            raise
        return None
    finally:
        consumer.close()
    return {of_group(record.partition): record.offset for record in committed if record.offset >= 0}


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            **QUICK,
        }
    )
