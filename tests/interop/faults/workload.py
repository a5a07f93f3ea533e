"""Clients that write and read all the while, and remember what they did as a history for the checkers.

Writers never give up: what may pass is tried again, what has to be aborted is aborted, and after what is fatal a new
producer with the same transactional id takes over. A transaction whose commit was asked for and never answered has an
unknown end. Each writer's values are its own, so that nothing in the log is a stranger.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.errors import ClientError, OutOfTurn, ProducerUnusable, TransactionFailed
from oncelog.sim.checkers.history import Poll, RecordedOutcome, SeenRecord, Stream, Transaction, Write
from tests.load import read_to_end

TRANSACTIONAL: Final = TopicName("transactional")
PLAIN: Final = TopicName("plain")
PARTITIONS: Final = 2
TIMEOUT_MS: Final = 10_000
"""Of transactions."""
QUICK: Final = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 3_000,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
_MOST: Final = 20
_ABORT_SHARE: Final = 0.15
_PAUSE_S: Final = 0.05


class Worker(ABC):
    """A thread that goes on until it is told to stop."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.chance = random.Random(f"{seed}/{name}")
        self.steps = 0
        """Whatever it counts as progress."""
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Let it finish what it is at; a thread that does not is a failure of liveness."""
        self._stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.failures.append(f"{self.name} did not come to an end within {timeout_s:.0f} s")

    @property
    def stopping(self) -> bool:
        """True if it is to finish."""
        return self._stopping.is_set()

    def _live(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - whatever ends a worker is a failure of the run
            self.failures.append(f"{self.name}: {type(error).__name__}: {error}")

    @abstractmethod
    def run(self) -> None:
        """Work until ``stopping``."""


class Fatal(Exception):
    """The producer is of no use any more."""


class Abortable(Exception):
    """The transaction has to be aborted."""


class TransactionalWriter(Worker):
    """Transactions of some records in several partitions, some of them aborted on purpose."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        self.transactions: list[Transaction] = []
        self.offsets: dict[str, int] = {}

    def run(self) -> None:
        while not self.stopping:
            try:
                self.open()
                while not self.stopping:
                    self._once()
            except Fatal:
                time.sleep(_PAUSE_S)
        self.close()

    def close(self) -> None:
        """At the end."""

    def history(self) -> list[Transaction]:
        """All transactions, with the offsets that became known."""
        return [
            replace(
                transaction,
                writes=[write._replace(offset=self.offsets.get(write.value)) for write in transaction.writes],
            )
            for transaction in self.transactions
        ]

    def _once(self) -> None:
        name = f"{self.name}.{len(self.transactions)}"
        writes = [
            Write(TopicPartition(TRANSACTIONAL, self.chance.randrange(PARTITIONS)), f"{name}.{number}")
            for number in range(self.chance.randint(1, _MOST))
        ]
        self.transactions.append(Transaction(name, self.name, writes, RecordedOutcome.ABORTED))
        commit = self.chance.random() >= _ABORT_SHARE
        try:
            self.write(writes)
            if commit:
                self._note(outcome=RecordedOutcome.UNKNOWN, ending_at=time.monotonic_ns())
                self.commit()
                self._note(outcome=RecordedOutcome.COMMITTED)
                self.steps += 1
                return
        except Abortable:
            pass
        self.abort()
        if not commit or self.transactions[-1].outcome is RecordedOutcome.UNKNOWN:
            self._note(outcome=RecordedOutcome.ABORTED)

    def _note(self, **changes: Any) -> None:
        self.transactions[-1] = replace(self.transactions[-1], **changes)

    @abstractmethod
    def open(self) -> None:
        """A producer that has fenced the one before. Raises Fatal."""

    @abstractmethod
    def write(self, writes: list[Write]) -> None:
        """Begin, send and flush. Raises Abortable, Fatal."""

    @abstractmethod
    def commit(self) -> None:
        """Until it is known. Raises Abortable, Fatal."""

    @abstractmethod
    def abort(self) -> None:
        """Until it is known. Raises Fatal."""


class ConfluentWriter(TransactionalWriter):
    """With librdkafka."""

    def open(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 1,
                "client.id": self.name,
                **QUICK,
            }
        )
        self._retried(lambda: self._producer.init_transactions(10))

    def write(self, writes: list[Write]) -> None:
        self._retried(self._producer.begin_transaction)
        for write in writes:
            self._retried(lambda write=write: self._produce(write))
            self._producer.poll(0)
        self._retried(self._flush)

    def _produce(self, write: Write) -> None:
        self._producer.produce(
            write.partition.topic, write.value, partition=write.partition.partition, on_delivery=self._delivered
        )

    def _flush(self) -> None:
        while self._producer.flush(1) and not self.stopping:
            pass
        if self._producer.flush(30):
            raise Fatal

    def commit(self) -> None:
        self._retried(lambda: self._producer.commit_transaction(10))

    def abort(self) -> None:
        try:
            self._retried(lambda: self._producer.abort_transaction(10))
        except Abortable:
            raise Fatal from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:  # it may be told only that the record is stored
            self.offsets[(message.value() or b"").decode()] = offset

    def _retried(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                call()
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    raise Abortable from None
                if not error.retriable():
                    raise Fatal(str(error)) from None
                time.sleep(_PAUSE_S)
            else:
                return


class OncelogWriter(TransactionalWriter):
    """With our own client, Transactions V2."""

    _client: Client | None = None
    _producer: TransactionalProducer | None = None

    def close(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(ClientError):
                self._producer.close()
        if self._client is not None:
            self._client.close()

    def open(self) -> None:
        self.close()
        config = ClientConfig(
            client_id=self.name,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            request_timeout_ms=3_000,
            connect_timeout_ms=3_000,
            bootstrap_timeout_ms=10_000,
        )
        self._client = Client(self.bootstrap, config=config)
        settings = ProducerSettings(linger_ms=1, delivery_timeout_ms=60_000)
        self._producer = TransactionalProducer(self._client, TransactionSettings(self.name, TIMEOUT_MS), settings)
        self._retried(self._producer.initialize)

    def write(self, writes: list[Write]) -> None:
        self._retried(self._producer.begin)
        for write in writes:
            partition = write.partition
            self._retried(lambda write=write, partition=partition: self._send(write, partition))
        self._retried(self._producer.flush)

    def _send(self, write: Write, partition: TopicPartition) -> None:
        self._producer.send(partition.topic, write.value.encode(), partition=partition.partition)

    def commit(self) -> None:
        self._retried(self._producer.commit)

    def abort(self) -> None:
        try:
            self._retried(self._producer.abort)
        except Abortable:
            raise Fatal from None

    def _retried(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                call()
            except TransactionFailed as failure:
                raise Abortable(str(failure)) from None
            except (ProducerUnusable, OutOfTurn) as failure:
                raise Fatal(str(failure)) from None
            except ClientError as failure:
                if not failure.retriable:
                    raise Fatal(str(failure)) from None
                time.sleep(_PAUSE_S)
            else:
                return


@dataclass
class _Sent:
    write: Write
    outcome: RecordedOutcome = RecordedOutcome.UNKNOWN
    offset: int | None = None
    answered_at: int | None = None


class IdempotentWriter(Worker):
    """A stream of single records with acks=all, as librdkafka retries them."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        self._sent: list[_Sent] = []

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "client.id": self.name,
                "queue.buffering.max.messages": 500,
                "message.timeout.ms": 300_000,
                **QUICK,
            }
        )
        while not self.stopping:
            for _ in range(_MOST):
                self._send(producer)
            producer.poll(0.02)
        if producer.flush(90):
            self.failures.append(f"{self.name}: records were never acknowledged")

    def history(self) -> Stream:
        """The records that were sent, and what became of each."""
        return Stream(
            self.name,
            [
                record.write._replace(outcome=record.outcome, offset=record.offset, answered_at=record.answered_at)
                for record in self._sent
            ],
        )

    def _send(self, producer: Any) -> None:
        partition = self.chance.randrange(PARTITIONS)
        value = f"{self.name}.{len(self._sent)}"
        sent = _Sent(Write(TopicPartition(PLAIN, partition), value, sent_at=time.monotonic_ns()))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.outcome, sent.offset = RecordedOutcome.COMMITTED, message.offset()
                sent.answered_at = time.monotonic_ns()
                self.steps += 1

        try:
            producer.produce(PLAIN, value, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        else:
            self._sent.append(sent)


class Follower(Worker):
    """Reads everything at read_committed, with librdkafka, over whatever happens."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        self.polls: list[Poll] = []

    def run(self) -> None:
        consumer = open_consumer(self.bootstrap, self.name)
        consumer.assign(
            [ClientPartition(partition.topic, partition.partition, OFFSET_BEGINNING) for partition in all_partitions()]
        )
        while not self.stopping:
            results: dict[TopicPartition, list[SeenRecord]] = {}
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    partition = TopicPartition(TopicName(message.topic() or ""), message.partition() or 0)
                    seen = SeenRecord(message.offset() or 0, (message.value() or b"").decode())
                    results.setdefault(partition, []).append(seen)
            now = time.monotonic_ns()
            self.polls += [Poll(self.name, partition, now, records) for partition, records in results.items()]
            self.steps += len(results)
        consumer.close()


def all_partitions() -> list[TopicPartition]:
    """Of both topics."""
    return [TopicPartition(topic, index) for topic in (TRANSACTIONAL, PLAIN) for index in range(PARTITIONS)]


def open_consumer(bootstrap: str, name: str) -> Consumer:
    """At read_committed, of no group's offsets."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "client.id": name,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            **QUICK,
        }
    )


def drain(bootstrap: str, partition: TopicPartition, timeout_s: float) -> list[SeenRecord]:
    """Everything committed in a partition. Raises TimeoutError when its end is not reached."""
    settings = {"isolation.level": "read_committed", **QUICK}
    return [
        SeenRecord(message.offset() or 0, (message.value() or b"").decode())
        for message in read_to_end(bootstrap, partition.topic, [partition.partition], settings, timeout_s)
    ]


@dataclass
class Workload:
    """All clients of a run."""

    bootstrap: str
    seed: int
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        kinds: list[tuple[str, type[Worker]]] = [
            ("confluent-1", ConfluentWriter),
            ("confluent-2", ConfluentWriter),
            ("oncelog", OncelogWriter),
            ("idempotent", IdempotentWriter),
            ("follower", Follower),
        ]
        self.workers = [kind(name, self.bootstrap, self.seed) for name, kind in kinds]
