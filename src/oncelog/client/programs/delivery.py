"""Delivers a producer's batches: batches into requests, responses into outcomes, failures to the next call.

1. At most MAX_REQUESTS_IN_FLIGHT requests to a leader await responses; they are sent in order.
2. Each batch gets at most one outcome a round, in send order; a divided batch gets one for each part.
3. A batch missing from the response is as lost as one whose connection broke; the machine decides what to retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import BrokerRefused, ClientError, RequestTimedOut, UnknownTopic, UnsupportedRequest
from oncelog.client.machine.partitioner import StickyPartitioner, partition_of_key
from oncelog.client.machine.pending_batch import BatchOutcome, Failed, PendingBatch, record_size
from oncelog.client.machine.producer import ProducerMachine, ProducerSettings
from oncelog.client.machine.requests import produce_request, produce_version_limit
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.doubt import DOUBT_MS, Doubt, Silent
from oncelog.client.programs.steps import Link, Pending, Program, Sleep, Submit, Wait, raise_for_error
from oncelog.records.record import Record
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse

MAX_REQUESTS_IN_FLIGHT: Final = 5
"""Requests in flight to one leader."""
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
_PATIENCE_MS: Final = 100
"""The longest wait between two checks for batches to send."""


class DeliveryFailed(BrokerRefused):
    """Records could not be delivered; they are in ``records``."""

    def __init__(self, failed: Failed) -> None:
        self.records = failed.records
        self.maybe_appended = failed.maybe_appended
        many = f"{counted(len(failed.records), 'record')} for {failed.partition}"
        super().__init__(
            failed.error_code,
            f"{many} {'may not have been' if failed.maybe_appended else 'not'} written",
            failed.message,
        )


class _Sent(NamedTuple):
    link: Link
    pending: Pending
    batches: list[PendingBatch]
    sent_ms: int


class Delivery:
    """A producer's batches on their way to the leaders."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        idempotent: bool = True,
        create_topics: bool = False,
        transactional_id: str | None = None,
    ) -> None:
        self.machine = ProducerMachine(settings, transactional=transactional_id is not None)
        self.on_outcome: Callable[[BatchOutcome], None] | None = None
        """Called with the outcome of every batch, in response order."""
        self._cluster = cluster
        self._idempotent = idempotent and settings.acks == -1
        self._create_topics = create_topics
        self._transactional_id = transactional_id
        self._sticky = StickyPartitioner(settings.batch_bytes)
        self._failures: list[Failed] = []
        self._sent: dict[int, deque[_Sent]] = {}
        self._doubt = Doubt(cluster)

    def _require_sendable(self) -> None:
        """Hook called before a record or a batch is accepted."""

    def _stepping(self, *, flush: bool, waits: bool) -> Program[None]:
        """Send the batches that are ready and process the responses that have arrived; ``waits`` for the first."""
        yield from self._keep_identity()
        sent = yield from self._send_ready(flush)
        if waits and self._in_flight():
            yield Wait([*self._first_in_flight(), *self._doubt.pending], _PATIENCE_MS)
        elif waits and not sent:
            until_due = self.machine.next_due_ms() - self._cluster.now_ms()
            yield Sleep(max(1, min(until_due if until_due > 0 else 10, _PATIENCE_MS)))
        self._collect()
        yield from self._leave_replaced_leaders()

    def _flushing(self) -> Program[None]:
        while not self.machine.is_empty:
            yield from self._stepping(flush=True, waits=True)
            self._raise_failure()
        self._raise_failure()

    def _abandon(self) -> None:
        for requests in self._sent.values():
            for sent in requests:
                sent.link.abort()
        self._sent.clear()
        self._doubt.drop()

    def _in_flight(self) -> bool:
        return any(self._sent.values())

    def _first_in_flight(self) -> list[Pending]:
        return [requests[0].pending for requests in self._sent.values() if requests]

    def _keep_identity(self) -> Program[None]:
        """Obtain a producer id before anything is sent, and the next epoch after sequences were lost."""
        for failed in self.machine.renumber():
            self._note(failed)
        if self._idempotent and self.machine.needs_identity and not self._in_flight():
            try:
                self.machine.identify(*(yield from self._cluster.retrying(self._new_identity)))
            except UnsupportedRequest:
                # Before 0.11 there are no producer ids: at least once.
                self._idempotent = False

    def _new_identity(self) -> Program[tuple[int, int]]:
        response = yield from self._cluster.request(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
        )
        raise_for_error(response, "a producer id")
        return response.producer_id, response.producer_epoch

    def _admit(self, partitions: list[TopicPartition]) -> Program[None]:
        """Hook called before batches for ``partitions`` are first sent."""
        yield from ()

    def _send_ready(self, flush: bool) -> Program[int]:
        cluster, sent = self._cluster, 0
        for _ in range(MAX_REQUESTS_IN_FLIGHT):
            ready = list(self.machine.ready(cluster.now_ms(), flush=flush))
            yield from self._admit(ready)
            by_leader: dict[int, list[TopicPartition]] = {}
            for partition in ready:
                look_up = partial(cluster.leader, partition, create=self._create_topics)
                try:
                    leader = yield from cluster.retrying(look_up)
                except BrokerRefused as error:
                    self._undeliverable(partition, error)
                    continue
                if len(self._sent.get(leader, ())) < MAX_REQUESTS_IN_FLIGHT:
                    by_leader.setdefault(leader, []).append(partition)
            if not by_leader:
                break
            for leader, partitions in by_leader.items():
                limit = self.machine.settings.max_batches_a_request
                yield from self._send(leader, [self.machine.drain(partition) for partition in partitions[:limit]])
                sent += 1
        return sent

    def _send(self, leader: int, batches: list[PendingBatch]) -> Program[None]:
        cluster, acks = self._cluster, self.machine.settings.acks
        timeout_ms = cluster.config.request_timeout_ms
        message = produce_request(
            cluster.view, {batch.partition: batch.contents for batch in batches}, acks, timeout_ms
        )
        message.transactional_id = self._transactional_id
        try:
            link = yield from self._doubt.link(leader)
            version = link.versions.choose(message, self._version_limit(batch.partition for batch in batches))
            pending: Pending = yield Submit(link, message, version, 2 * timeout_ms, answered=acks != 0)
        except BaseException as error:
            self._lost(batches, cluster.now_ms())
            if not isinstance(error, ClientError) or not cluster.may_pass(error):
                raise
            return
        if acks == 0:
            self._sent_unanswered(batches)
        else:
            self._sent.setdefault(leader, deque()).append(_Sent(link, pending, batches, cluster.now_ms()))

    def _collect(self) -> None:
        """Process the responses that have arrived, in request order."""
        for leader, requests in self._sent.items():
            while requests and requests[0].pending.is_done:
                sent = requests.popleft()
                try:
                    response = sent.pending.result()
                except ClientError as error:
                    if isinstance(error, RequestTimedOut):
                        self._doubt.add_silent(leader)
                    self._lost(sent.batches, self._cluster.now_ms())
                    if not self._cluster.may_pass(error):
                        raise
                    continue
                self._apply_response(sent.batches, response, self._cluster.now_ms())

    def _leave_replaced_leaders(self) -> Program[None]:
        """Close the links to leaders that have not answered for ``DOUBT_MS``, if others lead by now."""
        now_ms = self._cluster.now_ms()
        silent = {
            leader: Silent(requests[0].link, [batch.partition for sent in requests for batch in sent.batches])
            for leader, requests in self._sent.items()
            if requests and now_ms - requests[0].sent_ms >= DOUBT_MS and not requests[0].pending.is_done
        }
        yield from self._doubt.pursue(silent)
        if silent:
            self._collect()

    def _place(self, topic: str, record: Record, partition_count: int) -> TopicPartition:
        """The partition of a record that names none: by its key, or the one that is being filled."""
        if record.key is not None:
            return TopicPartition(TopicName(topic), partition_of_key(record.key, partition_count))
        return TopicPartition(TopicName(topic), self._sticky.choose(topic, record_size(record), partition_count))

    def _version_limit(self, partitions: Iterable[TopicPartition]) -> int | None:
        return produce_version_limit(self._cluster.view, partitions)

    def _apply_response(self, batches: Sequence[PendingBatch], message: ProduceResponse, now_ms: int) -> None:
        names = self._cluster.view.topic_ids(dict.fromkeys(batch.partition.topic for batch in batches)) or {}
        answers = {
            TopicPartition(TopicName(topic.name or names.get(bytes(topic.topic_id), "")), response.index): response
            for topic in message.responses
            for response in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._note(self.machine.lost(batch, now_ms))
                continue
            if remedy(answer.error_code) is Remedy.REFRESH_METADATA:
                self._cluster.view.forget(batch.partition.topic)
            refused = [record.batch_index for record in answer.record_errors]
            reason = _message_of(answer)
            self._note(self.machine.answered(batch, answer.error_code, answer.base_offset, reason, now_ms, refused))

    def _lost(self, batches: Sequence[PendingBatch], now_ms: int) -> None:
        for batch in batches:
            self._cluster.view.forget(batch.partition.topic)
            self._note(self.machine.lost(batch, now_ms))

    def _undeliverable(self, partition: TopicPartition, error: BrokerRefused) -> None:
        """Give up batches for a partition that does not exist or may not be written. Raises ``error`` if it may
        pass."""
        if remedy(error.code) is not Remedy.FAIL and not isinstance(error, UnknownTopic):
            raise error
        for failed in self.machine.undeliverable(partition, error.code, error.reason):
            self._note(failed)

    def _sent_unanswered(self, batches: Sequence[PendingBatch]) -> None:
        for batch in batches:
            self._note(self.machine.sent_unanswered(batch))

    def _note(self, outcome: BatchOutcome | None) -> None:
        """Handle an outcome; None means that the batch is sent again."""
        if self.on_outcome is not None and outcome is not None:
            self.on_outcome(outcome)
        if isinstance(outcome, Failed):
            self._failures.append(outcome)

    def _raise_failure(self) -> None:
        """Raise the first failure since the last call, if any."""
        if self._failures:
            failed = self._failures[0]
            self._failures.clear()
            raise DeliveryFailed(failed)


def _message_of(answer: PartitionProduceResponse) -> str | None:
    """The broker's message for a refusal: about the first refused record, else about the batch."""
    about_records = (record.batch_index_error_message for record in answer.record_errors)
    return next((text for text in about_records if text), answer.error_message)
