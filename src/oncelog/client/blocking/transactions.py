"""A transactional producer: records of several partitions and offsets of a group are written together or not at all.

::

    producer = TransactionalProducer(client, TransactionSettings("orders-1"))
    producer.initialize()
    with producer.transaction():
        producer.send("out", b"...")
        producer.send_offsets({partition: Committed(next_offset)}, consumer.group_metadata)

Rules: ``commit`` flushes first, and raises what was not written. After TransactionFailed the transaction has to be
aborted, and the producer goes on; after ProducerUnusable (and ProducerFenced) a new one is needed. A RequestTimedOut
or ConnectionLost from ``commit`` leaves the outcome open: ``commit`` again until it is known, it is the same commit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import TracebackType

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.link import Link, now_ms
from oncelog.client.blocking.producer import Producer, ProducerSettings
from oncelog.client.errors import ClientError, RequestTimedOut, UnsupportedRequest
from oncelog.client.machine.first_batch_delay import FirstBatchDelay
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_requests import BUMP_VERSION, CoordinatorRequest
from oncelog.client.machine.transaction_states import State, Verdict
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.machine.transactional_delivery import BUSY_PAUSE_MS, TransactionalDelivery, transactional_settings
from oncelog.client.machine.transactions import TransactionMachine
from oncelog.client.programs.cluster import TRANSACTION_KEY
from oncelog.records.record import Headers
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionalProducer(TransactionalDelivery, Producer):
    """A transactional producer, for one thread; a context manager that aborts an open transaction at its end."""

    def __init__(
        self,
        client: Client,
        transaction: TransactionSettings,
        settings: ProducerSettings | None = None,
        *,
        create_topics: bool = False,
    ) -> None:
        super().__init__(
            client,
            transactional_settings(settings),
            create_topics=create_topics,
            transactional_id=transaction.transactional_id,
        )
        self.transactions = TransactionMachine(transaction)
        self._first_batch_delay = FirstBatchDelay()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.transactions.is_open:
                with contextlib.suppress(ClientError):
                    self.abort()
        finally:
            self.close()

    def initialize(self, *, keep_prepared: bool = False) -> StoredTransaction | None:
        """Fence older instances and abort what they left open; with ``keep_prepared`` return it instead (KIP-939).

        Raises UnsupportedRequest when two-phase commit is wanted and the cluster does not have it.
        """
        self.transactions.initialize(keep_prepared=keep_prepared)
        try:
            self._run("initialize")
        except UnsupportedRequest as error:
            if self.transactions.settings.two_phase or keep_prepared:
                raise UnsupportedRequest(f"two-phase commit needs InitProducerId 6: {error}") from None
            raise
        return self.transactions.prepared

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Take one record into the transaction. Raises TransactionFailed for what went wrong before."""
        self.transactions.require_open("send records")
        super().send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. Raises TransactionFailed when the group moved on."""
        self.transactions.add_offsets(offsets, group)
        self._run("commit offsets")

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises TransactionFailed, ProducerUnusable."""
        self._raise_failure()
        super().flush()

    def commit(self) -> None:
        """Write the transaction for good."""
        if self.transactions.state is State.IN_TRANSACTION:
            self._settle("commit")
        self.transactions.commit()
        self._run("commit")
        self._first_batch_delay.ended(self._now_us())

    def abort(self) -> None:
        """Abort the transaction; records that are not sent yet are dropped. The producer is usable again after it."""
        self.transactions.abort()
        self._let_go()
        self._run("abort")
        self._first_batch_delay.ended(self._now_us())

    def prepare(self) -> StoredTransaction:
        """Flush, and prepare the transaction for a decision made elsewhere: store the result with that decision."""
        self._settle("prepare")
        return self.transactions.prepare()

    def complete(self, stored: StoredTransaction | None) -> Ended:
        """End the prepared transaction, after ``prepare`` or recovery: commit if ``stored`` names it, else abort."""
        ended = self.transactions.complete(stored)
        self._run("complete")
        return ended

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block; abort when it raises, unless the producer is unusable by then."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            if self.transactions.is_open:
                with contextlib.suppress(ClientError):
                    self.abort()
            raise

    # Hooks of the producer.

    def _keep_identity(self) -> None:
        self._raise_failure()

    def _admit(self, partitions: list[TopicPartition]) -> None:
        if partitions and self.transactions.is_first:
            if (wait_us := self._first_batch_delay.wait_us(self._now_us())) > 0:
                time.sleep(wait_us / 1e6)
            self._first_batch_delay.sent(self._now_us())
        self.transactions.register(partitions)
        self._run("send records")

    # Inside.

    def _settle(self, what: str) -> None:
        """Flush, and finish every request begun in the transaction. Raises what it failed with."""
        self.transactions.require_open(what)
        self.flush()
        self._run(what)

    def _let_go(self) -> None:
        """Wait for the answers in flight, up to a request's time-out, then drop whatever of the transaction is left."""
        deadline = now_ms() + self._client.config.request_timeout_ms
        while any(self._sent.values()) and now_ms() < deadline:
            self._wait(100)
            for broker in list(self._sent):
                self._collect(broker)
        if any(self._sent.values()):
            self.close()
        if self.machine.discard():
            self.transactions.sequences_lost()

    def _run(self, what: str) -> None:
        """Send the machine's requests until none is left. Raises what failed; what may pass is retried for a time."""
        machine, config = self.transactions, self._client.config
        deadline = now_ms() + config.retry_timeout_ms
        attempt = 0
        while machine.has_request:
            if now_ms() >= deadline:
                raise RequestTimedOut(f"{what}: no coordinator carried it out within {config.retry_timeout_ms} ms")
            try:
                found, code = self._exchange()
            except ClientError as error:
                if not self._client.may_pass(error):
                    machine.refused_by(error)
                    raise
                found, code = Verdict.FIND_COORDINATOR, int(ErrorCode.NETWORK_EXCEPTION)
            attempt = self._pause(found, code, attempt)
            machine.raise_failure(what)
        if machine.producer_id >= 0:
            self.machine.identify(machine.producer_id, machine.producer_epoch)

    def _pause(self, found: Verdict, code: int, attempt: int) -> int:
        if found not in (Verdict.RETRY, Verdict.FIND_COORDINATOR):
            return 0
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            time.sleep(BUSY_PAUSE_MS / 1000)
        else:
            self._client.pause(attempt)
        return attempt + 1

    def _exchange(self) -> tuple[Verdict, int]:
        """Send the machine's next request to its coordinator: the verdict on the answer, and its error code."""
        machine = self.transactions
        name = machine.settings.transactional_id
        link = self._coordinator(name, TRANSACTION_KEY)
        machine.observe(link.versions.features, can_bump=link.versions.supports(InitProducerIdRequest, BUMP_VERSION))
        ask = machine.next_request()
        if ask is None:
            return Verdict.DONE, int(ErrorCode.NONE)
        if ask.group is not None:
            link = self._coordinator(ask.group)
        try:
            response = link.call(ask.message, ask.version(link.versions))
        except ClientError:
            self._forget(ask)
            raise
        found = machine.answered(response)
        if found is Verdict.FIND_COORDINATOR:
            self._forget(ask)
        return found, int(getattr(response, "error_code", 0))

    def _coordinator(self, key: str, *kind: int) -> Link:
        try:
            return self._client.link(self._client.coordinator(key, *kind))
        except ClientError:
            self._client.forget_coordinator(key, *kind)
            raise

    def _forget(self, ask: CoordinatorRequest) -> None:
        if ask.group is None:
            self._client.forget_coordinator(self.transactions.settings.transactional_id, TRANSACTION_KEY)
        else:
            self._client.forget_coordinator(ask.group)

    def _now_us(self) -> int:
        return time.monotonic_ns() // 1000


__all__ = ["Committed", "Ended", "GroupMetadata", "StoredTransaction", "TransactionSettings", "TransactionalProducer"]
