"""The protocol's port over the blocking client: one ask, one or a few requests.

The register lives in ``__oncelog_sink``: compacted, key query id, partition by the key as any producer would choose it.
A ``Read`` sees every write answered before it: it goes to the high watermark it found, and waits where open transactions
hold the last stable offset below it. Those are other drivers', and short: ``DRIVER_TIMEOUT_MS`` ends a dead one's.

Codes that may pass are tried again inside; whatever else an answer says is given back or raised, never guessed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX, KIB
from oncelog.client.blocking import Client, FetchSettings, TransactionalProducer, TransactionSettings
from oncelog.client.blocking.client import TRANSACTION_KEY
from oncelog.client.blocking.link import now_ms
from oncelog.client.errors import BrokerRefused, ProducerUnusable
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.client.machine.reading import read_fetched
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.sink.errors import SinkError
from oncelog.spark.sink.protocol import (
    Ask,
    Claim,
    Describe,
    End,
    Ended,
    Fence,
    Found,
    ListOpen,
    Publish,
    Read,
    Stage,
    Write,
    driver_id,
)
from oncelog.spark.sink.register import Register, decode, encode
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest

T = TypeVar("T")

REGISTERS: Final = TopicName("__oncelog_sink")
PARTITIONS: Final = 8
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * KIB),
    "min.cleanable.dirty.ratio": "0.1",
}
DRIVER_TIMEOUT_MS: Final = 15_000
READ_PATIENCE_MS: Final = 60_000
OPEN_STATES: Final = ("Ongoing",)
_NOBODY: Final = Found(INT64_MAX, 0, False)
"""An identity no id ever has: InitProducerId that names it creates an id, and is refused where one exists."""
_FIRST_LIST_WITH_PATTERN: Final = 2
_LAST_END_BY_STATE: Final = 4
"""EndTxn up to here tells a retry by the state, later ones by the epoch (KIP-890)."""


class Cluster:
    """Answers the asks of one program after another, for one query. Use it as a context manager."""

    def __init__(self, client: Client, query: str) -> None:
        self._client = client
        self._query = query
        self._driver: TransactionalProducer | None = None
        self._tasks: dict[str, TransactionalProducer] = {}
        self._position = 0
        self._register: Register | None = None
        self.make_producer: Callable[[str], TransactionalProducer] = self._plain_producer

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened; nothing is aborted."""
        for producer in (self._driver, *self._tasks.values()):
            if producer is not None:
                producer.close()

    def run(self, program: Generator[Ask, Any, T], at: Callable[[Ask], None] = lambda ask: None) -> T:
        """Drive a program to its end; ``at`` is told each ask before it is carried out (the tests' kill points)."""
        answer: Any = None
        while True:
            try:
                ask = program.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            at(ask)
            answer = self.answer(ask)

    def answer(self, ask: Ask) -> Any:
        """Carry out one ask."""
        match ask:
            case Fence():
                return self._fence()
            case Read():
                return self._read()
            case Write(register):
                return self._stage(register) and self._publish()
            case Stage(register):
                return self._stage(register)
            case Publish():
                return self._publish()
            case Describe(names):
                return self._describe(names)
            case ListOpen(prefix):
                return self._list_open(prefix)
            case Claim(name, found):
                return self._claim(name, found)
            case End(stored, commit):
                return self._client.retrying(lambda: self._end(stored, commit))

    def claimed(self, stored: StoredTransaction) -> TransactionalProducer:
        """The producer that holds a claimed identity."""
        return self._tasks[stored.transactional_id]

    def register(self) -> Register | None:
        """As the ask ``Read``."""
        return self._read()

    def forget(self) -> None:
        """Remove the register of a query that nobody can run again. Only with the fence, after ``commit``."""
        driver, where = self._driver, self._partition(create=False)
        if driver is not None and where is not None:
            driver.begin()
            driver.send(where.topic, None, key=self._query.encode(), partition=where.partition)
            driver.commit()

    # The register.

    def _partition(self, *, create: bool) -> TopicPartition | None:
        found = self._client.metadata([REGISTERS]).get(REGISTERS)
        if found is None or not found.exists:
            if not create:
                return None
            create_registers(self._client)
            found = self._client.topic(REGISTERS)
        return TopicPartition(REGISTERS, partition_of_key(self._query.encode(), len(found.partitions)))

    def _read(self) -> Register | None:
        where = self._partition(create=False)
        if where is None:
            return None
        begin = self._client.list_offsets({where: -2})[where].offset
        until = self._client.list_offsets({where: -1})[where].offset
        self._position = max(self._position, begin)
        if self._position < until:
            self._catch_up(where, until)
        return self._register

    def _catch_up(self, where: TopicPartition, until: int) -> None:
        key = self._query.encode()
        settings = FetchSettings(max_wait_ms=20, read_committed=True)
        deadline = now_ms() + READ_PATIENCE_MS
        for fetched in self._client.fetch({where: self._position}, until={where: until}, settings=settings):
            if fetched.error_code:
                raise BrokerRefused(fetched.error_code, f"fetch from {where}")
            for record in read_fetched(fetched, read_committed=True):
                if record.key == key:
                    self._register = None if record.value is None else decode(record.value)
            self._position = max(self._position, fetched.next_offset)
            if self._position < until and now_ms() > deadline:
                raise SinkError(f"{where} is held by an open transaction: see `oncelog txn explain {REGISTERS}`")

    def _fence(self) -> None:
        if self._driver is not None:
            self._driver.close()
        self._partition(create=True)
        settings = TransactionSettings(driver_id(self._query), timeout_ms=DRIVER_TIMEOUT_MS)
        self._driver = TransactionalProducer(self._client, settings)
        self._driver.initialize()

    def _stage(self, register: Register) -> bool:
        driver, where = self._driver, self._partition(create=True)
        if driver is None or where is None:
            raise SinkError("a write without a fence")
        try:
            driver.begin()
            driver.send(where.topic, encode(register), key=self._query.encode(), partition=where.partition)
            driver.flush()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    def _publish(self) -> bool:
        if self._driver is None:
            raise SinkError("a write without a fence")
        try:
            self._driver.commit()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    # Transactions.

    def _describe(self, names: tuple[str, ...]) -> dict[str, Found]:
        by_broker: dict[int, list[str]] = {}
        for name in names:
            by_broker.setdefault(self._client.coordinator(name, TRANSACTION_KEY), []).append(name)
        found: dict[str, Found] = {}
        for asked in by_broker.values():
            for start in range(0, len(asked), 1000):
                part = asked[start : start + 1000]
                found.update(self._client.retrying(lambda part=part: self._describe_some(part)))  # type: ignore[misc]  # bound now
        return found

    def _describe_some(self, names: list[str]) -> dict[str, Found]:
        broker = self._client.coordinator(names[0], TRANSACTION_KEY)
        response = self._client.request(DescribeTransactionsRequest(transactional_ids=names), broker=broker)
        found: dict[str, Found] = {}
        for one in response.transaction_states:
            if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            if one.error_code:
                raise BrokerRefused(one.error_code, f"transactional id {one.transactional_id!r}")
            is_open = one.transaction_state in OPEN_STATES
            found[one.transactional_id] = Found(one.producer_id, one.producer_epoch, is_open)
        return found

    def _list_open(self, prefix: str) -> list[StoredTransaction]:
        self._client.retrying(self._client.refresh)
        names: list[str] = []
        for broker in sorted(self._client.view.brokers):
            names += self._client.retrying(lambda broker=broker: self._list_at(broker, prefix))  # type: ignore[misc]  # bound now
        found = self._describe(tuple(names))
        return [
            StoredTransaction(name, one.producer_id, one.producer_epoch) for name, one in found.items() if one.is_open
        ]

    def _list_at(self, broker: int, prefix: str) -> list[str]:
        link = self._client.link(broker)
        message = ListTransactionsRequest(state_filters=list(OPEN_STATES))
        if link.versions.supports(ListTransactionsRequest, _FIRST_LIST_WITH_PATTERN):
            message.transactional_id_pattern = _literal(prefix) + ".*"
        response = link.call(message)
        if response.error_code:
            raise BrokerRefused(response.error_code, f"open transactions of {prefix!r}")
        names = [one.transactional_id for one in response.transaction_states]
        return [name for name in names if name.startswith(prefix)]

    def _claim(self, name: str, found: Found | None) -> StoredTransaction | None:
        expected = found or _NOBODY
        producer = self.make_producer(name)
        machine = producer.transactions
        machine.producer_id, machine.producer_epoch = expected.producer_id, expected.producer_epoch
        try:
            producer.initialize()
        except ProducerUnusable as error:
            producer.close()
            if is_fencing(error):
                return None
            raise
        self._tasks[name] = producer
        return StoredTransaction(name, machine.producer_id, machine.producer_epoch)

    def _plain_producer(self, name: str) -> TransactionalProducer:
        return TransactionalProducer(self._client, TransactionSettings(name, two_phase=True))

    def _end(self, stored: StoredTransaction, commit: bool) -> Ended:
        link = self._client.link(self._client.coordinator(stored.transactional_id, TRANSACTION_KEY))
        message = EndTxnRequest(
            transactional_id=stored.transactional_id,
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            committed=commit,
        )
        highest = link.versions.features.get("transaction.version", 0)
        response = link.call(message, link.versions.choose(message, None if highest >= 2 else _LAST_END_BY_STATE))
        code = response.error_code
        if code == ErrorCode.NONE:
            return Ended.DONE
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Ended.OTHER if self._describe((stored.transactional_id,)) else Ended.UNKNOWN
        if code in _OTHER:
            return Ended.OTHER
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            time.sleep(0.02)
        raise BrokerRefused(code, f"{'commit' if commit else 'abort'} of {stored}")


_OTHER: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)


def is_fencing(error: BrokerRefused) -> bool:
    """Whether the error says that another instance has come."""
    return error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )


def create_registers(client: Client) -> None:
    """The compacted topic, unless it is there. Raises BrokerRefused."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in _CONFIGS.items()]
    topic = CreatableTopic(name=REGISTERS, num_partitions=PARTITIONS, replication_factor=-1, configs=configs)

    def attempt() -> None:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), broker="controller")
        one = response.topics[0]
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise BrokerRefused(one.error_code, f"topic {REGISTERS}", one.error_message)

    client.retrying(attempt)
    with contextlib.suppress(BrokerRefused):
        client.metadata([REGISTERS])


def _literal(text: str) -> str:
    """A regular expression of RE2 that matches exactly ``text``."""
    return "".join(char if char.isalnum() or char in "_/ " else f"\\{char}" for char in text)
