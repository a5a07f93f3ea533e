"""The load of drills and benchmarks: producers that number their records and keep which were acknowledged, and readers.

An acknowledged record has to be stored once, in order, at the offset that was acknowledged (:func:`broken`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.base.ids import TopicName
from oncelog.base.ids import TopicPartition as BrokerPartition
from oncelog.client.blocking import Client
from oncelog.records.batch import iter_headers
from tests.waiting import HANG_S, wait_until

QUICK: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}
_RETRIED: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Acknowledged(NamedTuple):
    """A record that a producer was told is stored."""

    number: int
    offset: int | None
    """None: librdkafka does not know it. Where an answer was lost and a later batch is acknowledged, it takes the
    earlier one as stored."""
    at_s: float


class Gap(NamedTuple):
    """The longest time in which no record of a partition was acknowledged."""

    partition: int
    since_s: float
    seconds: float


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """With as many replicas as the cluster's default."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result(HANG_S)


class Load:
    """One idempotent producer with acks=all over all partitions of a topic, in a thread of its own."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        partitions: int,
        *,
        pause_s: float = 0.002,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._topic = topic
        self.name = name
        self._pause_s = pause_s
        self._settings = settings or {}
        self.sent = [0] * partitions
        self.acknowledged: list[list[Acknowledged]] = [[] for _ in range(partitions)]
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

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
        """Until every partition has had an acknowledgement that is newer than this call."""
        before = list(map(len, self.acknowledged))
        wait_until(
            lambda: all(len(now) > old + 1 for now, old in zip(self.acknowledged, before, strict=True)),
            lambda: f"acknowledgements after {before}: {list(map(len, self.acknowledged))} {self.failed[:3]}",
            poll_s=0.005,
        )

    def longest_gaps(self, since_s: float = 0, until_s: float = float("inf")) -> list[Gap]:
        """Of each partition: the longest time between two acknowledgements, of which one is in the interval."""
        return [
            max(self._gaps(index, since_s, until_s), key=lambda gap: gap.seconds) for index in range(len(self.sent))
        ]

    def _gaps(self, partition: int, since_s: float, until_s: float) -> Iterator[Gap]:
        yield Gap(partition, since_s, 0.0)
        times = sorted(item.at_s for item in list(self.acknowledged[partition]))
        for before, after in pairwise(times):
            if after >= since_s and before <= until_s:
                yield Gap(partition, before, after - before)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 2000,
                "message.timeout.ms": HANG_S * 1000,
                "request.timeout.ms": 5_000,
                **QUICK,
                **self._settings,
            }
        )
        while not self._stopping.is_set():
            for partition in range(len(self.sent)):
                self._send(producer, partition)
            producer.poll(self._pause_s)
        if producer.flush(HANG_S):
            self.failed.append(f"{self.name}: records were never acknowledged")

    def _send(self, producer: Any, partition: int) -> None:
        number = self.sent[partition]

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged = Acknowledged(number, message.offset(), time.monotonic())
                self.acknowledged[partition].append(acknowledged)
            else:
                self.failed.append(f"{self.name}: record {number} of partition {partition}: {error}")

        value = f"{self.name}:{number}:".encode() + bytes(100)
        try:
            producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.05)
            return
        self.sent[partition] += 1


class Stored(NamedTuple):
    """A record as a consumer sees it."""

    producer: str
    number: int
    offset: int


def read_to_end(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    settings: Mapping[str, Any] | None = None,
    timeout_s: float = HANG_S,
) -> Iterator[Message]:
    """The records of partitions, each partition in order. Raises TimeoutError where the end does not come."""
    ours = {"group.id": "count", "enable.partition.eof": True, "enable.auto.commit": False, **QUICK}
    consumer = Consumer({"bootstrap.servers": bootstrap, **ours, **(settings or {})})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    unread = set(partitions)
    deadline = time.monotonic() + timeout_s
    try:
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.05):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                elif not error.retriable() and error.code() not in _RETRIED:
                    raise KafkaException(error)
    finally:
        consumer.close()
    if unread:
        raise TimeoutError(f"no end of {topic}, partitions {unread}: is a transaction left open?")


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[list[Stored]]:
    """All records of each partition, in order."""
    result: list[list[Stored]] = [[] for _ in range(partitions)]
    for message in read_to_end(bootstrap, topic, range(partitions)):
        name, number, _ = (message.value() or b"::").split(b":", 2)
        result[message.partition() or 0].append(Stored(name.decode(), int(number), message.offset() or 0))
    return result


def producer_epochs(bootstrap: str, topic: str, partition: int, end: int) -> dict[int, int]:
    """Offset → the epoch of the producer that wrote the record there, up to ``end``."""
    results: dict[int, int] = {}
    place = BrokerPartition(TopicName(topic), partition)
    with Client(bootstrap) as client:
        for fetched in client.fetch({place: 0}, until={place: end}):
            for _, header in iter_headers(fetched.records):
                results.update(dict.fromkeys(range(header.base_offset, header.next_offset), header.producer_epoch))
    return results


def check(bootstrap: str, topic: str, loads: list[Load]) -> Iterator[str]:
    """One line for every broken promise: refused, lost, doubled, out of order, or elsewhere than acknowledged."""
    for load in loads:
        yield from load.failed[:10]
    for partition, stored in enumerate(read_topic(bootstrap, topic, len(loads[0].sent))):
        for load in loads:
            own = once = [item for item in stored if item.producer == load.name]
            numbers = [item.number for item in own]
            if numbers != sorted(set(numbers)):
                once = sent_once(own, producer_epochs(bootstrap, topic, partition, stored[-1].offset + 1))
            for line in broken(load.acknowledged[partition], own, once):
                yield f"{topic}-{partition}, {load.name}: {line}"


def sent_once(stored: list[Stored], epochs: Mapping[int, int]) -> list[Stored]:
    """The records without those that librdkafka 2.16 has sent anew with another epoch, as new ones: when one partition
    loses its order to a change of leaders, it begins a new epoch in all, also where an answer is still to come
    (https://github.com/confluentinc/librdkafka/issues/4953). No broker can tell them from new ones."""
    first: dict[int, Stored] = {}
    kept = [
        record for record in stored if epochs[first.setdefault(record.number, record).offset] == epochs[record.offset]
    ]
    if len(kept) < len(stored):
        print(f"      {len(stored) - len(kept)} records sent anew by librdkafka (its issue 4953)", flush=True)
    return kept


def broken(acknowledged: list[Acknowledged], stored: list[Stored], once: list[Stored]) -> Iterator[str]:
    """One line for each broken promise about the records of a producer in a partition: ``stored`` all of them, ``once``
    those that are not known to have been sent anew."""
    numbers = [stored.number for stored in once]
    lost = {item.number for item in acknowledged} - set(numbers)
    if lost:
        yield f"{len(lost)} acknowledged records lost, from {min(lost)} to {max(lost)}"
    twice = [number for number, count in Counter(numbers).items() if count > 1]
    if twice:
        yield f"{len(twice)} records twice, from {min(twice)} to {max(twice)}"
    if numbers != sorted(numbers):
        yield "out of order"
    places = {(record.number, record.offset) for record in stored}
    moved = [
        record for record in acknowledged if record.offset is not None and (record.number, record.offset) not in places
    ]
    if moved and not lost:
        yield f"{len(moved)} records elsewhere than acknowledged, first {moved[0]}"
