"""Carries out the commit protocol's ``operations`` with the blocking client; ``register_topic`` stores the register.

Retriable error codes are retried here; all others are returned or raised, so an outcome is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.client.blocking import Client, FetchSettings, TransactionalProducer, TransactionSettings
from oncelog.client.blocking.transaction_admin import end_transaction, open_transactions, present_identities
from oncelog.client.errors import BrokerRefused, ProducerUnusable
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs.group import committed_offsets
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.operations import (
    CheckAborted,
    Claim,
    Describe,
    End,
    Ended,
    Fence,
    FindLedger,
    FindRemoved,
    Identity,
    ListOpen,
    Operation,
    Publish,
    Read,
    ReadLedger,
    Stage,
    Ticket,
    Write,
)
from oncelog.spark.sink.two_phase.protocol import driver_id, is_task_id
from oncelog.spark.sink.two_phase.register import ONE_WRITE, Listed, Register, Written
from oncelog.spark.sink.two_phase.register_topic import RegisterTopic

T = TypeVar("T")

DRIVER_TIMEOUT_MS: Final = 15_000
# An identity that no id ever has: InitProducerId with it creates an id, and is rejected if the id exists.
_NONEXISTENT: Final = Identity(INT64_MAX, 0, False)


class ClusterOperations:
    """Carries out one program after another, for one query. Use it as a context manager."""

    def __init__(self, client: Client, query: str) -> None:
        self.client = client
        self._query = query
        self._driver: TransactionalProducer | None = None
        self._tasks: dict[str, TransactionalProducer] = {}
        self._topic = RegisterTopic(client, query)
        self._partition: TopicPartition | None = None
        self.make_producer: Callable[[str], TransactionalProducer] = self._plain_producer

    def __enter__(self) -> ClusterOperations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # Close all producers without aborting anything.
        self._topic.close()
        for producer in (self._driver, *self._tasks.values()):
            if producer is not None:
                producer.close()

    def run(
        self, program: Generator[Operation, Any, T], before: Callable[[Operation], None] = lambda operation: None
    ) -> T:
        """Drive a program to its end. ``before`` is called with each operation first (for fault points)."""
        answer: Any = None
        while True:
            try:
                operation = program.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            before(operation)
            answer = self.answer(operation)

    def answer(self, operation: Operation) -> Any:
        match operation:
            case Fence():
                return self._fence()
            case Read():
                return self._topic.read()
            case Write(register):
                return self._stage(register) and self._publish()
            case Stage(register):
                return self._stage(register)
            case Publish():
                return self._publish()
            case Describe(names):
                identities = present_identities(self.client, names)
                return {name: Identity(*identity[:3]) for name, identity in identities.items()}
            case ListOpen(prefix):
                return open_transactions(self.client, prefix, claimed=is_task_id)
            case Ticket(name):
                return self._ticket(name)
            case ReadLedger(name):
                entry = None if self._is_new else ledger_entry(self.client, name)
                return None if entry is None else entry.offset
            case FindLedger(prefix):
                from oncelog.admin.groups import list_groups

                return any(row.group.startswith(prefix) for row in list_groups(self.client))
            case Claim(name, expected):
                return self._claim(name, expected)
            case FindRemoved(candidates):
                return removed_by_retention(self.client, candidates)
            case CheckAborted(listed):
                return any(was_aborted(self.client, place, listed.stored) for place in listed.written)
            case End(stored, commit):
                return self._end(stored, commit)

    def claimed_producer(self, stored: StoredTransaction) -> TransactionalProducer:
        return self._tasks[stored.transactional_id]

    def register(self) -> Register | None:
        return self._topic.read()

    def forget(self) -> None:
        """Delete the register of a query that cannot run again. Requires the fence, and a preceding ``commit``."""
        driver = self._driver
        if driver is not None and self._partition is not None:
            driver.begin()
            # A tombstone: compaction then removes the register.
            driver.send(self._partition.topic, None, key=self._query.encode(), partition=self._partition.partition)
            driver.commit()

    @property
    def _is_new(self) -> bool:
        """True if nothing can have been written for this query before, because it was made for one write."""
        return self._query.startswith(ONE_WRITE)

    def _fence(self) -> None:
        if self._driver is not None:
            self._driver.close()
        self._partition = self._topic.ensure()
        settings = TransactionSettings(driver_id(self._query), timeout_ms=DRIVER_TIMEOUT_MS)
        self._driver = TransactionalProducer(self.client, settings)
        self._driver.initialize()

    def _stage(self, register: Register) -> bool:
        driver, partition = self._driver, self._partition
        if driver is None or partition is None:
            raise SinkError("internal error: the register was written before the fence")
        records = self._topic.records(register)
        try:
            driver.begin()
            for key, value in records:
                driver.send(partition.topic, value, key=key, partition=partition.partition)
            driver.flush()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    def _publish(self) -> bool:
        if self._driver is None:
            raise SinkError("internal error: the register was written before the fence")
        try:
            self._driver.commit()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    def _ticket(self, name: str) -> int:
        with TransactionalProducer(self.client, TransactionSettings(name)) as producer:
            producer.initialize()
            return producer.transactions.producer_epoch

    def _claim(self, name: str, expected_identity: Identity | None) -> StoredTransaction | None:
        identity = expected_identity or _NONEXISTENT
        producer = self.make_producer(name)
        machine = producer.transactions
        machine.producer_id, machine.producer_epoch = identity.producer_id, identity.producer_epoch
        try:
            producer.initialize()
        except ProducerUnusable as error:
            producer.close()
            if is_fencing(error):
                return None
            raise
        self._tasks[name] = producer
        return StoredTransaction(name, machine.producer_id, machine.producer_epoch)

    def _fence_claimed(self, stored: StoredTransaction, current: Identity) -> None:
        # Fence an identity that opened nothing. Before Transactions V2 it cannot be ended, but it can be claimed.
        if current == Identity(stored.producer_id, stored.producer_epoch, False):
            self._claim(stored.transactional_id, current)

    def _plain_producer(self, name: str) -> TransactionalProducer:
        return TransactionalProducer(self.client, TransactionSettings(name, two_phase=True))

    def _end(self, stored: StoredTransaction, commit: bool) -> Ended:
        code = end_transaction(self.client, stored, commit=commit)
        if code == ErrorCode.NONE:
            return Ended.DONE
        identities = present_identities(self.client, (stored.transactional_id,))
        # Nothing was opened with the identity.
        if code == ErrorCode.INVALID_TXN_STATE and not commit and stored.transactional_id in identities:
            self._fence_claimed(stored, Identity(*identities[stored.transactional_id][:3]))
        unknown = code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not identities
        return Ended.UNKNOWN if unknown else Ended.OTHER


def ledger_entry(client: Client, group: str) -> Committed | None:
    """The last entry of mode ``ledger`` for a task, read after its pending transactions have ended."""
    entries = committed_offsets(client, group, require_stable=True).values()
    return max(entries, key=lambda entry: entry.offset, default=None)


def removed_by_retention(client: Client, listed: Iterable[Listed]) -> list[Listed]:
    places = [
        (transaction, TopicPartition(TopicName(place.topic), place.partition), place)
        for transaction in listed
        for place in transaction.written
    ]
    begins = client.list_offsets({partition: -2 for _, partition, place in places if place.first_offset >= 0})
    return [
        transaction
        for transaction, partition, place in places
        if place.first_offset >= 0 and begins[partition].offset > place.first_offset
    ]


def was_aborted(client: Client, written: Written, stored: StoredTransaction) -> bool:
    """True if the first batch of a transaction is in the log and aborted."""
    partition, first = TopicPartition(TopicName(written.topic), written.partition), written.first_offset
    if first < 0 or client.list_offsets({partition: -2})[partition].offset > first:
        return False
    for fetched in client.fetch(
        {partition: first}, until={partition: first + 1}, settings=FetchSettings(read_committed=True)
    ):
        if fetched.error_code:
            return False
        aborted = {producer_id for producer_id, start in fetched.aborted if start <= first}
        return stored.producer_id in aborted and not any(
            record.offset == first for record in read_fetched(fetched, read_committed=True)
        )
    return False


def is_fencing(error: BrokerRefused) -> bool:
    """True if the error means that another instance has taken over the id."""
    return error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )
