"""A producer: ``send`` records, ``flush`` them, and each is in the log once (or its failure is raised).

A record that the broker refuses fails alone: the others of its batch are sent again (``machine.producer``).

Rules: several requests are in flight to every leader; ``send`` blocks only when ``buffer_bytes`` are waiting. A failed
batch is raised from the next ``send`` or from ``flush``, unless ``on_outcome`` takes it. Nothing is sent in the
background: what was given to ``send`` is surely sent only after ``flush`` (or ``close``).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.link import Link, now_ms
from oncelog.client.errors import BrokerRefused, ClientError, UnsupportedRequest
from oncelog.client.machine.batch_delivery import (
    MAX_REQUESTS_IN_FLIGHT,
    BatchDelivery,
    DeliveryFailed,
    idempotent_id_request,
)
from oncelog.client.machine.producer import Delivered, Failed, Outcome, PendingBatch, ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.records.record import Headers, Record
from oncelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client


class _Sent(NamedTuple):
    link: Link
    correlation_id: int
    batches: list[PendingBatch]
    deadline_ms: int


class Producer(BatchDelivery):
    """An idempotent producer; a context manager that flushes at its end (not after an exception)."""

    def __init__(
        self,
        client: Client,
        settings: ProducerSettings | None = None,
        *,
        idempotent: bool = True,
        create_topics: bool = False,
        buffer_bytes: int = 32 * MIB,
        on_outcome: Callable[[Outcome], None] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(client.view, settings or ProducerSettings(), transactional_id)
        self.on_outcome = on_outcome
        self._client = client
        self._idempotent = idempotent and self.machine.settings.acks == -1
        self._create_topics = create_topics
        self._buffer_bytes = buffer_bytes
        self._counts: dict[str, int] = {}
        self._links: dict[int, Link] = {}
        self._sent: dict[int, list[_Sent]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

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
        """Buffer one record. Raises DeliveryFailed for earlier ones, UnknownTopic and what ``request`` does; TypeError
        and ValueError for what no record can hold."""
        at = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        record = checked_record(topic, partition, value, key, headers, at)
        self.machine.add(self._partition(topic, partition, record), record, now_ms())
        if self.machine.buffered_bytes >= self.machine.settings.batch_bytes:
            self._step(flush=False, wait_ms=0)
        while self.machine.buffered_bytes >= self._buffer_bytes:
            self._step(flush=True, wait_ms=100)
        self._raise_failure()

    def poll(self) -> None:
        """Send batches that have lingered long enough; for callers that pause between records."""
        self._step(flush=False, wait_ms=0)
        self._raise_failure()

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises DeliveryFailed for the first that is not."""
        while not self.machine.is_empty:
            self._step(flush=True, wait_ms=100)
            self._raise_failure()
        self._raise_failure()

    def close(self) -> None:
        """Close the connections; what is not flushed is dropped."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._sent.clear()

    def _partition(self, topic: str, partition: int | None, record: Record) -> TopicPartition:
        if partition is not None:
            return TopicPartition(TopicName(topic), partition)
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(self._client.topic(topic, create=self._create_topics).partitions)
        return self._place(topic, record, count)

    def _step(self, *, flush: bool, wait_ms: int) -> None:
        """Send the batches that are ready and process the answers that have arrived."""
        self._keep_identity()
        sent = self._send_ready(flush)
        if not any(self._sent.values()):
            if not sent and wait_ms:
                until_due = self.machine.next_due_ms() - now_ms()
                time.sleep(min(wait_ms, max(1, until_due if until_due > 0 else 10)) / 1000)
            return
        self._wait(wait_ms)
        for broker in list(self._sent):
            self._collect(broker)

    def _keep_identity(self) -> None:
        """Obtain a producer id before anything is sent, and the next epoch when sequences were lost."""
        for failed in self.machine.renumber():
            self._note(failed)
        if self._idempotent and self.machine.needs_identity and not any(self._sent.values()):
            self._identify()

    def _admit(self, partitions: list[TopicPartition]) -> None:
        """Hook called before batches for ``partitions`` are sent the first time."""

    def _identify(self) -> None:
        def attempt() -> tuple[int, int]:
            response = self._client.request(idempotent_id_request())
            if response.error_code:
                raise BrokerRefused(response.error_code, "a producer id")
            return response.producer_id, response.producer_epoch

        try:
            self.machine.identify(*self._client.retrying(attempt))
        except UnsupportedRequest:
            self._idempotent = False

    def _send_ready(self, flush: bool) -> int:
        """Group what is ready by leader and send it, as many requests as may be in flight."""
        sent = 0
        for _ in range(MAX_REQUESTS_IN_FLIGHT):
            by_leader: dict[int, list[TopicPartition]] = {}
            ready = list(self.machine.ready(now_ms(), flush=flush))
            self._admit(ready)
            for partition in ready:
                try:
                    leader = self._client.retrying(lambda partition=partition: self._leader(partition))  # type: ignore[misc]  # bound now
                except BrokerRefused as error:
                    self._undeliverable(partition, error)
                    continue
                if len(self._sent.get(leader, ())) < MAX_REQUESTS_IN_FLIGHT:
                    by_leader.setdefault(leader, []).append(partition)
            if not by_leader:
                break
            for broker, partitions in by_leader.items():
                limit = self.machine.settings.max_batches_a_request
                self._send(broker, [self.machine.drain(partition) for partition in partitions[:limit]])
                sent += 1
        return sent

    def _leader(self, partition: TopicPartition) -> int:
        if self._create_topics:
            self._client.topic(partition.topic, create=True)
        return self._client.leader(partition)

    def _send(self, broker: int, batches: list[PendingBatch]) -> None:
        settings, config = self.machine.settings, self._client.config
        message = self._request(batches, config.request_timeout_ms)
        try:
            link = self._links.get(broker)
            if link is None or not link.is_open:
                link = self._links[broker] = self._client.connect(broker)
            version = link.versions.choose(message, self._version_limit(batch.partition for batch in batches))
            correlation_id = link.submit(message, version, answered=settings.acks != 0)
        except ClientError as error:
            self._lost(batches, now_ms())
            if not self._client.may_pass(error):
                raise
            return
        if settings.acks == 0:
            self._sent_unanswered(batches)
            return
        deadline = now_ms() + config.request_timeout_ms * 2
        self._sent.setdefault(broker, []).append(_Sent(link, correlation_id, batches, deadline))

    def _wait(self, wait_ms: int) -> None:
        first = [sent[0] for sent in self._sent.values() if sent]
        if wait_ms and first and all(one.link.is_open and not one.link.pending() for one in first):
            poll = select.poll()
            for one in first:
                poll.register(one.link.fileno(), select.POLLIN)
            poll.poll(wait_ms)

    def _collect(self, broker: int) -> None:
        waiting = self._sent[broker]
        while waiting:
            sent = waiting[0]
            try:
                response = sent.link.arrived(sent.correlation_id)
                if response is None:
                    if now_ms() < sent.deadline_ms:
                        return
                    sent.link.close()
                    continue
                message: ProduceResponse = sent.link.decode(response)
            except ClientError:
                waiting.pop(0)
                self._lost(sent.batches, now_ms())
                continue
            waiting.pop(0)
            self._take(sent.batches, message, now_ms())

    def _note(self, outcome: Outcome | None) -> None:
        if self.on_outcome is None:
            super()._note(outcome)
        elif outcome is not None:
            self.on_outcome(outcome)


__all__ = ["Delivered", "DeliveryFailed", "Failed", "Producer", "ProducerSettings"]
