"""Copying with our own client on asyncio: Transactions V2, partitions assigned or subscribed.

The clients run on a loop of their own, which turns only while this copier waits for something; so a member of a group
lives only while it polls, as it does with the blocking client.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.blocking import ClientConfig, FetchSettings
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import Committed, GroupMetadata, TransactionSettings
from oncelog.client.errors import ConnectionLost, RequestTimedOut
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.pending_batch import BatchOutcome
from oncelog.client.programs.group import committed_offsets
from oncelog.client.security import parse_security
from tests.interop.consistency.copying_client import (
    COPY,
    GROUP,
    HEARTBEAT_MS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    SOURCE,
    Role,
    Taken,
    Wrote,
)
from tests.interop.consistency.with_oncelog import Places, records_of, translated

T = TypeVar("T")


class _Producer(AsyncTransactionalProducer):
    def __init__(self, client: AsyncClient, role: Role, wrote: Wrote) -> None:
        transaction = TransactionSettings(role.transactional_id, role.transaction_timeout_ms)
        super().__init__(client, transaction, ProducerSettings(linger_ms=1, delivery_timeout_ms=int(PATIENCE_S * 1000)))
        self.places = Places(wrote)

    def _note(self, outcome: BatchOutcome | None) -> None:
        super()._note(outcome)
        self.places.note(outcome)


class OncelogAioCopier:
    """See :class:`~tests.interop.consistency.copying_client.CopyingClient`."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        self._role = role
        self._wrote = wrote
        self._sources = [TopicPartition(TopicName(SOURCE), number) for number in range(role.sources)]
        self._assigned = None if role.partition is None else self._sources[role.partition]
        self._runner = asyncio.Runner()
        self._client: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        self._member: Any = None
        self._group = GroupMetadata(GROUP)
        self._waiting: deque[Taken] = deque()

    def start(self) -> None:
        """Fence; assign or subscribe."""
        self._run(self._start)
        if self._member is None:
            self.rewind()

    async def _start(self) -> None:
        config = ClientConfig(
            retry_backoff_ms=10,
            retry_backoff_max_ms=100,
            bootstrap_timeout_ms=10_000,
            request_timeout_ms=10_000,
            security=parse_security(self._role.security),
        )
        self._client = AsyncClient(self._role.bootstrap, config=config)
        self._producer = _Producer(self._client, self._role, self._wrote)
        settings = FetchSettings(max_wait_ms=20, read_committed=True)
        await self._producer.initialize()
        if self._assigned is not None:
            self._consumer = AsyncConsumer(self._client, settings)
            return
        self._member = AsyncGroupConsumer(
            self._client,
            GROUP,
            [SOURCE],
            settings=GroupSettings(SESSION_TIMEOUT_MS, 5_000, HEARTBEAT_MS),
            fetch=settings,
            on_assigned=self._forget,
        )

    async def _forget(self, _positions: Mapping[TopicPartition, int]) -> None:
        self._waiting.clear()

    def take(self, most: int) -> Sequence[Taken]:
        """The rest of the last answer, but only while the member keeps its partitions."""
        if self._member is None:
            answers = [] if self._waiting else self._run(lambda: self._consumer.poll(50))
        else:
            wait_ms = 0 if self._waiting else 50
            answers = self._run(lambda: self._member.poll(wait_ms))
            self._group = self._member.group_metadata
        self._waiting.extend(record for answer in answers for record in records_of(answer))
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def rewind(self) -> None:
        """Positions anew; what was fetched from the old ones is dropped."""
        self._waiting.clear()
        held = self._member.assignment if self._member else [self._assigned]
        committed = self.committed()
        positions = {batch: committed.get(batch.partition, 0) for batch in held if batch is not None}
        if self._member is None:
            self._run(lambda: self._consumer.assign(positions))
        else:
            self._member.seek(positions)

    def committed(self) -> Mapping[int, int]:
        """Raises GiveUp."""
        result = self._run(lambda: committed_offsets(self._client, GROUP, self._sources, require_stable=True))
        return {partition.partition: one.offset for partition, one in result.items()}

    def begin(self) -> None:
        """Local."""
        self._producer.places.values.clear()
        with translated():
            self._producer.begin()

    def write(self, partition: int, value: str) -> None:
        """Into the queue."""
        self._producer.places.values[partition].append(value)
        self._run(lambda: self._producer.send(COPY, value.encode(), partition=partition))

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """As the member that took them."""
        offsets = {self._sources[partition]: Committed(offset) for partition, offset in following.items()}
        self._retried(lambda: self._producer.send_offsets(offsets, self._group))

    def flush(self) -> None:
        """Wait until all records are acknowledged."""
        self._run(lambda: self._producer.flush())

    def commit(self) -> None:
        """The same commit until it is known."""
        self._retried(lambda: self._producer.commit())

    def abort(self) -> None:
        """The same abort until it is known."""
        self._retried(lambda: self._producer.abort())

    def close(self) -> None:
        """Leave the group, let go of the connections."""
        self._run(self._close)
        self._runner.close()

    async def _close(self) -> None:
        if self._member is not None:
            await self._member.close(commit=False)
        if self._consumer is not None:
            await self._consumer.close()
        await self._producer.close()
        await self._client.close()

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with translated():
            return self._runner.run(call())

    def _retried(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """While it is only the answer that did not come."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        with translated():
            while True:
                try:
                    return self._runner.run(call())
                except (RequestTimedOut, ConnectionLost):
                    if time.monotonic() > deadline:
                        raise
