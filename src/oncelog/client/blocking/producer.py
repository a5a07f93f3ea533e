"""A producer: ``send`` records, ``flush`` them, and each is in the log once (or its failure is raised).

Rules: several requests are in flight to every leader; ``send`` blocks only when ``buffer_bytes`` are waiting. A failed
batch is raised from the next ``send`` or from ``flush``, unless ``on_outcome`` takes it. Nothing is sent in the
background: what was given to ``send`` is surely sent only after ``flush`` (or ``close``).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.base.units import MIB
from oncelog.client.blocking.link import Link, now_ms
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic, UnsupportedRequest
from oncelog.client.machine import produce_responses
from oncelog.client.machine.partitioner import StickyPartitioner, partition_of_key
from oncelog.client.machine.producer import (
    Delivered,
    Failed,
    Outcome,
    PendingBatch,
    ProducerMachine,
    ProducerSettings,
    record_size,
)
from oncelog.client.machine.record_values import checked_record
from oncelog.client.machine.requests import produce_request, produce_version_limit
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.records.record import Headers, Record
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

MAX_REQUESTS_IN_FLIGHT: Final = 5
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1


class _Sent(NamedTuple):
    link: Link
    correlation_id: int
    batches: list[PendingBatch]
    deadline_ms: int


class DeliveryFailed(BrokerRefused):
    """Records that could not be delivered; they are in ``records``."""

    def __init__(self, failed: Failed) -> None:
        self.records = failed.records
        self.maybe_appended = failed.maybe_appended
        many = f"{counted(len(failed.records), 'record')} for {failed.partition}"
        super().__init__(
            failed.error_code,
            f"{many} {'may not have been' if failed.maybe_appended else 'not'} written",
            failed.message,
        )


class Producer:
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
        self._client = client
        self._transactional_id = transactional_id
        self.machine = ProducerMachine(settings or ProducerSettings(), transactional=transactional_id is not None)
        self._idempotent = idempotent and self.machine.settings.acks == -1
        self._create_topics = create_topics
        self._buffer_bytes = buffer_bytes
        self._on_outcome = on_outcome
        self._sticky = StickyPartitioner(self.machine.settings.batch_bytes)
        self._counts: dict[str, int] = {}
        self._links: dict[int, Link] = {}
        self._sent: dict[int, list[_Sent]] = {}
        self._failures: list[Failed] = []

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
        if record.key is not None:
            return TopicPartition(TopicName(topic), partition_of_key(record.key, count))
        return TopicPartition(TopicName(topic), self._sticky.choose(topic, record_size(record), count))

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

    def _version_limit(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The highest version of Produce for these partitions."""
        return produce_version_limit(self._client.view, partitions)

    def _identify(self) -> None:
        def attempt() -> tuple[int, int]:
            message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
            response = self._client.request(message)
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

    def _undeliverable(self, partition: TopicPartition, error: BrokerRefused) -> None:
        """Give up what waits for a partition that does not exist or may not be written, and go on with the others.
        Raises ``error`` if it may pass."""
        if remedy(error.code) is not Remedy.FAIL and not isinstance(error, UnknownTopic):
            raise error
        for failed in self.machine.undeliverable(partition, error.code, error.reason):
            self._note(failed)

    def _leader(self, partition: TopicPartition) -> int:
        if self._create_topics:
            self._client.topic(partition.topic, create=True)
        return self._client.leader(partition)

    def _send(self, broker: int, batches: list[PendingBatch]) -> None:
        settings, config = self.machine.settings, self._client.config
        contents = {batch.partition: batch.contents for batch in batches}
        message = produce_request(self._client.view, contents, settings.acks, config.request_timeout_ms)
        message.transactional_id = self._transactional_id
        try:
            link = self._links.get(broker)
            if link is None or not link.is_open:
                link = self._links[broker] = self._client.connect(broker)
            version = link.versions.choose(message, self._version_limit(contents))
            correlation_id = link.submit(message, version, answered=settings.acks != 0)
        except ClientError as error:
            self._lost(batches)
            if not self._client.may_pass(error):
                raise
            return
        if settings.acks == 0:
            for batch in batches:
                self._note(self.machine.sent_unanswered(batch))
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
                self._lost(sent.batches)
                continue
            waiting.pop(0)
            self._take(sent.batches, message)

    def _take(self, batches: list[PendingBatch], message: ProduceResponse) -> None:
        for outcome in produce_responses.answered(self.machine, self._client.view, batches, message, now_ms()):
            self._note(outcome)

    def _lost(self, batches: list[PendingBatch]) -> None:
        for outcome in produce_responses.lost(self.machine, self._client.view, batches, now_ms()):
            self._note(outcome)

    def _note(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if self._on_outcome is not None:
            self._on_outcome(outcome)
        elif isinstance(outcome, Failed):
            self._failures.append(outcome)

    def _raise_failure(self) -> None:
        if self._failures:
            failed = self._failures[0]
            self._failures.clear()
            raise DeliveryFailed(failed)


__all__ = ["Delivered", "DeliveryFailed", "Failed", "Producer", "ProducerSettings"]
