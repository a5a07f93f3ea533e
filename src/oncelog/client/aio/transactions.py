"""A transactional producer over asyncio; operations and rules are those of ``blocking.transactions``.

::

    async with AsyncTransactionalProducer(client, TransactionSettings("orders-1")) as producer:
        await producer.initialize()
        async with producer.transaction():
            await producer.send("out", b"...")
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import GROUP_KEY, TRANSACTION_KEY, AsyncClient, finished, loop_ms
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.errors import ClientError, RequestTimedOut, UnsupportedRequest
from oncelog.client.machine.first_batch_delay import FirstBatchDelay
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_requests import BUMP_VERSION
from oncelog.client.machine.transaction_states import State, Verdict
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.machine.transactional_delivery import BUSY_PAUSE_MS, TransactionalDelivery, transactional_settings
from oncelog.client.machine.transactions import TransactionMachine
from oncelog.records.record import Headers
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest


class AsyncTransactionalProducer(TransactionalDelivery, AsyncProducer):
    """A transactional producer; an asynchronous context manager that aborts an open transaction at its end."""

    def __init__(
        self,
        client: AsyncClient,
        transaction: TransactionSettings,
        settings: ProducerSettings | None = None,
        *,
        create_topics: bool = False,
        buffer_bytes: int = 32 * MIB,
    ) -> None:
        super().__init__(
            client,
            transactional_settings(settings),
            create_topics=create_topics,
            buffer_bytes=buffer_bytes,
            transactional_id=transaction.transactional_id,
        )
        self.transactions = TransactionMachine(transaction)
        self._first_batch_delay = FirstBatchDelay()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._abort_if_open()
        finally:
            await self.close()

    async def initialize(self, *, keep_prepared: bool = False) -> StoredTransaction | None:
        """Fence older instances and abort what they left open; with ``keep_prepared`` return it instead (KIP-939).

        Raises UnsupportedRequest when two-phase commit is wanted and the cluster does not have it.
        """
        self.transactions.initialize(keep_prepared=keep_prepared)
        try:
            await self._run("initialize")
        except UnsupportedRequest as error:
            if self.transactions.settings.two_phase or keep_prepared:
                raise UnsupportedRequest(f"two-phase commit needs InitProducerId 6: {error}") from None
            raise
        return self.transactions.prepared

    async def send(
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
        await super().send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    async def send_batch(self, partition: TopicPartition, batch: bytearray) -> int:
        """Take a ready batch into the transaction. Raises TransactionFailed for what went wrong before."""
        self.transactions.require_open("send records")
        return await super().send_batch(partition, batch)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. Raises TransactionFailed when the group moved on."""
        self.transactions.add_offsets(offsets, group)
        await self._run("commit offsets")

    async def flush(self) -> None:
        """Wait until every record is acknowledged. Raises TransactionFailed, ProducerUnusable."""
        self._raise_failure()
        await super().flush()

    async def commit(self) -> None:
        """Write the transaction for good."""
        if self.transactions.state is State.IN_TRANSACTION:
            await self._settle("commit")
        self.transactions.commit()
        await self._run("commit")
        self._first_batch_delay.ended(self._now_us())

    async def abort(self) -> None:
        """Take back the transaction; what is not sent yet is dropped. The producer is usable again after it."""
        self.transactions.abort()
        await self._let_go()
        await self._run("abort")
        self._first_batch_delay.ended(self._now_us())

    async def prepare(self) -> StoredTransaction:
        """Flush, and prepare the transaction for a decision made elsewhere: store the result with that decision."""
        await self._settle("prepare")
        return self.transactions.prepare()

    async def complete(self, stored: StoredTransaction | None) -> Ended:
        """End the prepared transaction, after ``prepare`` or recovery: commit if ``stored`` names it, else abort."""
        ended = self.transactions.complete(stored)
        await self._run("complete")
        return ended

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit at the end of the block; abort when it raises, unless the producer is unusable by then."""
        self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            await self._abort_if_open()
            raise

    async def _abort_if_open(self) -> None:
        if self.transactions.is_open:
            with contextlib.suppress(ClientError):
                await self.abort()

    async def _keep_identity(self) -> None:
        self._raise_failure()

    async def _admit(self, partitions: list[TopicPartition]) -> None:
        if partitions and self.transactions.is_first:
            if (wait_us := self._first_batch_delay.wait_us(self._now_us())) > 0:
                await asyncio.sleep(wait_us / 1e6)
            self._first_batch_delay.sent(self._now_us())
        self.transactions.register(partitions)
        await self._run("send records")

    async def _settle(self, what: str) -> None:
        self.transactions.require_open(what)
        await self.flush()
        await self._run(what)

    async def _let_go(self) -> None:
        """Wait for the answers in flight, up to a request's time-out, then drop whatever of the transaction is left."""
        if self._sent:
            done, _ = await asyncio.wait(self._sent, timeout=self._client.config.request_timeout_ms / 1000)
            for task in finished(self._sent, done):
                del self._sent[task]
                task.exception()
        await self.close()
        if self.machine.discard():
            self.transactions.sequences_lost()

    async def _run(self, what: str) -> None:
        """Send the machine's requests until none is left. Raises what failed; what may pass is retried for a time."""
        machine, config = self.transactions, self._client.config
        deadline = loop_ms() + config.retry_timeout_ms
        attempt = 0
        while machine.has_request:
            if loop_ms() >= deadline:
                raise RequestTimedOut(f"{what}: no coordinator carried it out within {config.retry_timeout_ms} ms")
            try:
                found, code = await self._exchange()
            except ClientError as error:
                if not self._client.may_pass(error):
                    machine.refused_by(error)
                    raise
                found, code = Verdict.FIND_COORDINATOR, int(ErrorCode.NETWORK_EXCEPTION)
            attempt = await self._pause(found, code, attempt)
            machine.raise_failure(what)
        if machine.producer_id >= 0:
            self.machine.identify(machine.producer_id, machine.producer_epoch)

    async def _pause(self, found: Verdict, code: int, attempt: int) -> int:
        if found not in (Verdict.RETRY, Verdict.FIND_COORDINATOR):
            return 0
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(BUSY_PAUSE_MS / 1000)
        else:
            await self._client.pause(attempt)
        return attempt + 1

    async def _exchange(self) -> tuple[Verdict, int]:
        """Send the machine's next request to its coordinator: the verdict on the answer, and its error code."""
        machine, client = self.transactions, self._client
        key, kind = machine.settings.transactional_id, TRANSACTION_KEY
        try:
            link = await client.link(await client.coordinator(key, kind))
            bumps = link.versions.supports(InitProducerIdRequest, BUMP_VERSION)
            machine.observe(link.versions.features, can_bump=bumps)
            ask = machine.next_request()
            if ask is None:
                return Verdict.DONE, int(ErrorCode.NONE)
            if ask.group is not None:
                key, kind = ask.group, GROUP_KEY
                link = await client.link(await client.coordinator(key, kind))
            response = await link.call(ask.message, ask.version(link.versions))
        except ClientError:
            client.forget_coordinator(key, kind)
            raise
        found = machine.answered(response)
        if found is Verdict.FIND_COORDINATOR:
            client.forget_coordinator(key, kind)
        return found, int(getattr(response, "error_code", 0))

    def _now_us(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)


__all__ = ["AsyncTransactionalProducer"]
