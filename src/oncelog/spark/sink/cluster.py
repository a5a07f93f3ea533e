"""The protocol's port over the blocking client: one ask, one or a few requests.

The register lives in ``__oncelog_sink``: compacted, key query id, partition by the key as any producer would choose it.
A ``Read`` sees every write answered before it: it goes to the high watermark it found, and waits where open
transactions hold the last stable offset below it. Those are other drivers', and short: ``DRIVER_TIMEOUT_MS`` ends a
dead one's.

Codes that may pass are tried again inside; whatever else an answer says is given back or raised, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX, KIB
from oncelog.client.blocking import Client, FetchSettings, TransactionalProducer, TransactionSettings
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.outside import end_transaction, ensure_topic, open_transactions, present_identities
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
    Ticket,
    Write,
    driver_id,
)
from oncelog.spark.sink.register import Register
from oncelog.spark.sink.register_records import RegisterReader, to_records

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
_NOBODY: Final = Found(INT64_MAX, 0, False)
"""An identity no id ever has: InitProducerId that names it creates an id, and is refused where one exists."""


class Cluster:
    """Answers the asks of one program after another, for one query. Use it as a context manager."""

    def __init__(self, client: Client, query: str) -> None:
        self._client = client
        self._query = query
        self._driver: TransactionalProducer | None = None
        self._tasks: dict[str, TransactionalProducer] = {}
        self._position = 0
        self._reader = RegisterReader(query)
        self._parts_written = 0
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
                known = present_identities(self._client, names)
                return {name: Found(*one) for name, one in known.items()}
            case ListOpen(prefix):
                return open_transactions(self._client, prefix)
            case Ticket(name):
                return self._ticket(name)
            case Claim(name, found):
                return self._claim(name, found)
            case End(stored, commit):
                return self._end(stored, commit)

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
            ensure_topic(self._client, REGISTERS, PARTITIONS, _CONFIGS)
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
        return self._reader.register()

    def _catch_up(self, where: TopicPartition, until: int) -> None:
        settings = FetchSettings(max_wait_ms=20, read_committed=True)
        deadline = now_ms() + READ_PATIENCE_MS
        for fetched in self._client.fetch({where: self._position}, until={where: until}, settings=settings):
            if fetched.error_code:
                raise BrokerRefused(fetched.error_code, f"fetch from {where}")
            for record in read_fetched(fetched, read_committed=True):
                self._reader.add(record.key, record.value)
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
        records = to_records(self._query, register, max(self._reader.parts, self._parts_written))
        self._parts_written = len(records) - 1
        try:
            driver.begin()
            for key, value in records:
                driver.send(where.topic, value, key=key, partition=where.partition)
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

    def _ticket(self, name: str) -> int:
        with TransactionalProducer(self._client, TransactionSettings(name)) as producer:
            producer.initialize()
            return producer.transactions.producer_epoch

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
        code = end_transaction(self._client, stored, commit=commit)
        if code == ErrorCode.NONE:
            return Ended.DONE
        known = present_identities(self._client, (stored.transactional_id,))
        unknown = code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not known
        return Ended.UNKNOWN if unknown else Ended.OTHER


def is_fencing(error: BrokerRefused) -> bool:
    """Whether the error says that another instance has come."""
    return error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )
