"""Histories of Transactions V1 in which a request for one transaction arrives in the next.

A V1 producer keeps its epoch for all its transactions, so its requests do not say which one they are for. The network
delivers one twice: the client's first connection dies with the request on its way, and the request arrives after the
client has asked again, been answered, and gone on (``tests.peers.late_requests``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.admin.topics import NewTopic, create_topic, describe_topics
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.admin.transactions.transactional_ids import describe_transactions
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from tests.interop.consistency.with_confluent import QUICK
from tests.load import read_to_end
from tests.peers.late_requests import LateRequests
from tests.waiting import HANG_S, wait_until

T = TypeVar("T")
PARTITIONS: Final = 2
END_TXN, ADD_PARTITIONS = EndTxnRequest.API_KEY, AddPartitionsToTxnRequest.API_KEY


class Refused(Exception):
    """The client raised an error; its text."""


class Producer(Protocol):
    """A transactional producer; each call waits for its answer. Raises Refused."""

    def begin(self) -> None: ...

    def send(self, partition: int, value: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class LibrdkafkaProducer:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer as Confluent

        self._topic = topic
        self._producer = Confluent({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0, **QUICK})
        self._producer.init_transactions(HANG_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, partition: int, value: str) -> None:
        errors: list[Any] = []

        def report(error: Any, _message: Any) -> None:
            errors.append(error)

        def deliver() -> None:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=report)
            self._producer.flush(HANG_S)
            if errors != [None]:
                raise Refused("the record was not delivered")

        self._call(deliver)

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(HANG_S))

    def abort(self) -> None:
        self._call(lambda: self._producer.abort_transaction(HANG_S))

    def close(self) -> None:
        """It has nothing to close."""

    def _call(self, call: Callable[[], object]) -> None:
        from confluent_kafka import KafkaException

        try:
            call()
        # `flush` leaves the error of a delivery behind, and the next exception becomes a SystemError.
        except (KafkaException, SystemError) as error:
            raise Refused(str(error.__cause__ or error)) from None


class KafkaPythonProducer:
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaProducer

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._topic = topic
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=topic, retry_backoff_ms=20, reconnect_backoff_ms=20
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, partition: int, value: str) -> None:
        self._call(lambda: self._producer.send(self._topic, value.encode(), partition=partition).get(HANG_S))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=1)

    def _call(self, call: Callable[[], object]) -> None:
        from kafka.errors import KafkaError

        try:
            call()
        except KafkaError as error:
            raise Refused(repr(error)) from None


class AiokafkaProducer:
    """aiokafka, in a loop of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._topic = topic
        self._runner = asyncio.Runner()
        self._producer: Any = None
        self._run(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=self._topic, retry_backoff_ms=20
        )
        await self._producer.start()

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, partition: int, value: str) -> None:
        self._run(self._producer.send_and_wait(self._topic, value.encode(), partition=partition))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._runner.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        from aiokafka.errors import KafkaError

        try:
            return self._runner.run(asyncio.wait_for(call, HANG_S))
        except (KafkaError, AssertionError) as error:
            raise Refused(repr(error)) from None


PRODUCERS: Final[dict[str, Any]] = {
    "librdkafka": LibrdkafkaProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
}


class Result(NamedTuple):
    """``refused`` is the first error that the client got in the second transaction, None if all its calls succeeded.

    ``visible`` are the records that readers of committed records get.
    """

    refused: str | None
    visible: set[str]
    is_held: bool
    """True if a transaction holds readers of committed records."""
    state: str
    """The coordinator's."""


Step = Callable[[Producer], None]


class Scene(NamedTuple):
    """A producer behind the proxy, and a client that sees the coordinator's state."""

    proxy: LateRequests
    producer: Producer
    tool: Client
    topic: str

    def state(self) -> str:
        """Of the producer's transaction, at its coordinator."""
        return str(describe_transactions(self.tool, [self.topic]).rows[self.topic].state)

    def settle(self) -> None:
        """Wait for the markers."""
        wait_until(lambda: not self.state().startswith("Prepare"), "the markers", poll_s=0.02)

    def late_end(self, end: Callable[[], None]) -> None:
        """The end of the first transaction arrives again behind the first record of the second."""
        self.producer.begin()
        self.producer.send(0, "first")
        self.proxy.hold(END_TXN)
        end()
        self.producer.begin()
        self.producer.send(0, "second")
        self.proxy.release()
        self.settle()


History = Callable[[Scene], None]


def late_commit(scene: Scene) -> None:
    scene.late_end(scene.producer.commit)


def late_abort(scene: Scene) -> None:
    scene.late_end(scene.producer.abort)


def late_partition(scene: Scene) -> None:
    """The AddPartitionsToTxn of the first transaction arrives again behind its commit."""
    scene.producer.begin()
    scene.proxy.hold(ADD_PARTITIONS)
    scene.producer.send(0, "first")
    scene.producer.commit()
    scene.settle()
    scene.proxy.release()


def goes_on(producer: Producer) -> None:
    """A record into a partition that the client has not added to this transaction."""
    producer.send(1, "third")


def goes_on_there(producer: Producer) -> None:
    """A record into a partition that the client has added to this transaction."""
    producer.send(0, "fourth")


def commits(producer: Producer) -> None:
    producer.commit()


def aborts(producer: Producer) -> None:
    producer.abort()


def run(proxy: LateRequests, client: str, topic: str, history: History, *steps: Step) -> Result:
    """Make a history with a producer and a topic of its own; then go on with ``steps`` until one is refused."""
    bootstrap = proxy.bootstrap_servers
    partitions = [TopicPartition(TopicName(topic), index) for index in range(PARTITIONS)]
    with Client(bootstrap) as tool:
        create_topic(tool, NewTopic(topic, partitions=PARTITIONS))
        with _opened(PRODUCERS[client], bootstrap, topic) as producer:
            scene = Scene(proxy, producer, tool, topic)
            history(scene)
            refused = _refusal(producer, steps)
            scene.settle()
            return Result(
                refused,
                _committed_values(bootstrap, topic),
                _is_held(tool, partitions),
                scene.state(),
            )


def _refusal(producer: Producer, steps: tuple[Step, ...]) -> str | None:
    try:
        for step in steps:
            step(producer)
    except Refused as refused:
        return str(refused)
    return None


def _is_held(tool: Client, partitions: list[TopicPartition]) -> bool:
    describe_topics(tool, [partitions[0].topic])
    bounds, unanswered = bounds_of(tool, partitions)
    assert not unanswered
    return any(limits.held for limits in bounds.values())


@contextmanager
def _opened(kind: Any, bootstrap: str, topic: str) -> Iterator[Any]:
    producer = kind(bootstrap, topic)
    try:
        yield producer
    finally:
        producer.close()


def _committed_values(bootstrap: str, topic: str) -> set[str]:
    messages = read_to_end(bootstrap, topic, range(PARTITIONS), {"isolation.level": "read_committed", **QUICK})
    return {(message.value() or b"").decode() for message in messages}
