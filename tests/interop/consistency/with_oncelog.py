"""Copying with our own client: blocking, Transactions V2, partitions assigned or subscribed."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, Fetched, Fetcher, FetchSettings
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import Committed, GroupMetadata, TransactionalProducer, TransactionSettings
from oncelog.client.errors import ClientError, ConnectionLost, RequestTimedOut, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered
from oncelog.client.programs.group import committed_offsets
from oncelog.client.security import parse_security
from tests.interop.consistency.copying_client import (
    COPY,
    GROUP,
    HEARTBEAT_MS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    SOURCE,
    Abortable,
    GiveUp,
    Role,
    Taken,
    Wrote,
)

T = TypeVar("T")


class Places:
    """Tells where each record is. Batches of a partition are acknowledged in the order they were filled in."""

    def __init__(self, wrote: Wrote) -> None:
        self.values: dict[int, deque[str]] = defaultdict(deque)
        self._wrote = wrote

    def note(self, outcome: BatchOutcome | None) -> None:
        if isinstance(outcome, Delivered):
            values = self.values[outcome.partition.partition]
            for number in range(outcome.records):
                value = values.popleft()
                if outcome.base_offset >= 0:
                    self._wrote(value, outcome.base_offset + number)


class _Producer(TransactionalProducer):
    def __init__(self, client: Client, role: Role, wrote: Wrote) -> None:
        transaction = TransactionSettings(role.transactional_id, role.transaction_timeout_ms)
        super().__init__(client, transaction, ProducerSettings(linger_ms=1, delivery_timeout_ms=int(PATIENCE_S * 1000)))
        self.places = Places(wrote)

    def _note(self, outcome: BatchOutcome | None) -> None:
        super()._note(outcome)
        self.places.note(outcome)


class OncelogCopier:
    """See :class:`~tests.interop.consistency.copying_client.CopyingClient`."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        self._sources = [TopicPartition(TopicName(SOURCE), number) for number in range(role.sources)]
        self._assigned = None if role.partition is None else self._sources[role.partition]
        config = ClientConfig(
            retry_backoff_ms=10,
            retry_backoff_max_ms=100,
            bootstrap_timeout_ms=10_000,
            request_timeout_ms=10_000,
            security=parse_security(role.security),
        )
        self._client = Client(role.bootstrap, config=config)
        self._producer = _Producer(self._client, role, wrote)
        self._settings = FetchSettings(max_wait_ms=20, read_committed=True)
        self._fetcher = Fetcher(self._client, self._settings)
        self._member: GroupConsumer | None = None
        self._group = GroupMetadata(GROUP)
        self._waiting: deque[Taken] = deque()

    def start(self) -> None:
        """Fence; assign or subscribe."""
        with translated():
            self._producer.initialize()
            if self._assigned is None:
                self._member = GroupConsumer(
                    self._client,
                    GROUP,
                    [SOURCE],
                    settings=GroupSettings(SESSION_TIMEOUT_MS, 5_000, HEARTBEAT_MS),
                    fetch=self._settings,
                    on_assigned=lambda _: self._waiting.clear(),
                )
        if self._member is None:
            self.rewind()

    def take(self, most: int) -> Sequence[Taken]:
        """The rest of the last answer, but only while the member keeps its partitions."""
        with translated():
            if self._member is None:
                answers = [] if self._waiting else self._fetcher.poll(50)
            else:
                answers = self._member.poll(0 if self._waiting else 50)
                self._group = self._member.group_metadata
        self._waiting.extend(record for answer in answers for record in records_of(answer))
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def rewind(self) -> None:
        """Positions anew; what was fetched from the old ones is dropped."""
        self._waiting.clear()
        held = self._member.assignment if self._member else [self._assigned]
        committed = self.committed()
        positions = {batch: committed.get(batch.partition, 0) for batch in held if batch is not None}
        with translated():
            if self._member is None:
                self._fetcher.assign(positions)
            else:
                self._member.seek(positions)

    def committed(self) -> Mapping[int, int]:
        """Raises GiveUp."""
        with translated():
            offsets = committed_offsets(self._client, GROUP, self._sources, require_stable=True)
        return {partition.partition: one.offset for partition, one in offsets.items()}

    def begin(self) -> None:
        """Local."""
        self._producer.places.values.clear()
        with translated():
            self._producer.begin()

    def write(self, partition: int, value: str) -> None:
        """Into the queue."""
        self._producer.places.values[partition].append(value)
        with translated():
            self._producer.send(COPY, value.encode(), partition=partition)

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """As the member that took them."""
        offsets = {self._sources[partition]: Committed(offset) for partition, offset in following.items()}
        _retried(lambda: self._producer.send_offsets(offsets, self._group))

    def flush(self) -> None:
        """Wait until all records are acknowledged."""
        with translated():
            self._producer.flush()

    def commit(self) -> None:
        """The same commit until it is known."""
        _retried(self._producer.commit)

    def abort(self) -> None:
        """The same abort until it is known."""
        _retried(self._producer.abort)

    def close(self) -> None:
        """Leave the group, let go of the connections."""
        if self._member is not None:
            self._member.close(commit=False)
        self._fetcher.close()
        self._producer.close()
        self._client.close()


def records_of(answer: Fetched) -> Iterator[Taken]:
    """The records of a fetched batch. Raises GiveUp."""
    if answer.error_code:
        raise GiveUp(f"fetch: error {answer.error_code}")
    for record in read_fetched(answer, read_committed=True):
        yield Taken(record.partition, record.offset, (record.value or b"").decode())


@contextmanager
def translated() -> Iterator[None]:
    """Raise our client's errors as the copier's."""
    try:
        yield
    except TransactionFailed as failure:
        raise Abortable(str(failure)) from failure
    except ClientError as failure:
        raise GiveUp(str(failure)) from failure


def _retried(call: Callable[[], T]) -> T:
    """While it is only the answer that did not come."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        with translated():
            try:
                return call()
            except (RequestTimedOut, ConnectionLost):
                if time.monotonic() > deadline:
                    raise
