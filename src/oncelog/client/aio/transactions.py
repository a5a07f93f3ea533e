"""A transactional producer over asyncio; operations and rules are those of ``blocking.transactions``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.errors import ClientError
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.programs.transactions import TransactionalDelivery, transactional_settings


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
        self._open_transactions(transaction)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._abort_if_open()
        finally:
            await self.close()

    async def initialize(self, *, keep_prepared: bool = False) -> StoredTransaction | None:
        return await self._run(self._initializing(keep_prepared))

    async def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. Raises TransactionFailed if the group moved on."""
        await self._run(self._sending_offsets(offsets, group))

    async def commit(self) -> None:
        """Commit the transaction. Raises TransactionFailed, ProducerUnusable, and ClientError while the outcome is
        unknown.
        """
        await self._run(self._committing())

    async def abort(self) -> None:
        await self._run(self._aborting())

    async def prepare(self) -> StoredTransaction:
        return await self._run(self._preparing())

    async def complete(self, stored: StoredTransaction | None) -> Ended:
        return await self._run(self._completing(stored))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
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


__all__ = ["AsyncTransactionalProducer"]
