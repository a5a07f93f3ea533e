"""The part of a producer that never waits: batches into requests, answers into outcomes, failures to whoever asks next.

``blocking.producer`` and ``aio.producer`` extend it by connections and waiting. Each batch gets at most one outcome a
round, in the order sent; a batch that was cut gets one for each of its parts. A batch that the response lacks is
as lost as one whose connection broke; the machine decides what of it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.partitioner import StickyPartitioner, partition_of_key
from oncelog.client.machine.producer import (
    Failed,
    Outcome,
    PendingBatch,
    ProducerMachine,
    ProducerSettings,
    record_size,
)
from oncelog.client.machine.requests import produce_request, produce_version_limit
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.records.record import Record
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

MAX_REQUESTS_IN_FLIGHT: Final = 5
"""Requests to one leader that wait for their answers."""
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1


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


def idempotent_id_request() -> InitProducerIdRequest:
    """The request for the id of a producer without transactions."""
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)


class BatchDelivery:
    """Batches of a producer on their way to the leaders. ``view``: the client's knowledge of the cluster; what proves
    stale is forgotten there."""

    def __init__(self, view: ClusterView, settings: ProducerSettings, transactional_id: str | None) -> None:
        self.machine = ProducerMachine(settings, transactional=transactional_id is not None)
        self.on_outcome: Callable[[Outcome], None] | None = None
        """Called with what came of every batch, in order of the answers."""
        self._view = view
        self._transactional_id = transactional_id
        self._sticky = StickyPartitioner(settings.batch_bytes)
        self._failures: list[Failed] = []

    def _place(self, topic: str, record: Record, partition_count: int) -> TopicPartition:
        """The partition for a record that names none: its key's, or the one that is being filled."""
        if record.key is not None:
            return TopicPartition(TopicName(topic), partition_of_key(record.key, partition_count))
        return TopicPartition(TopicName(topic), self._sticky.choose(topic, record_size(record), partition_count))

    def _request(self, batches: Sequence[PendingBatch], timeout_ms: int) -> ProduceRequest:
        """The request with these batches, one a partition."""
        contents = {batch.partition: batch.contents for batch in batches}
        message = produce_request(self._view, contents, self.machine.settings.acks, timeout_ms)
        message.transactional_id = self._transactional_id
        return message

    def _version_limit(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The highest version of Produce for these partitions."""
        return produce_version_limit(self._view, partitions)

    def _take(self, batches: Sequence[PendingBatch], message: ProduceResponse, now_ms: int) -> None:
        """Note the outcomes of the batches of a request that was answered."""
        names = self._view.topic_ids(dict.fromkeys(batch.partition.topic for batch in batches)) or {}
        answers = {
            TopicPartition(TopicName(topic.name or names.get(bytes(topic.topic_id), "")), one.index): one
            for topic in message.responses
            for one in topic.partition_responses
        }
        for batch in batches:
            one = answers.get(batch.partition)
            if one is None:
                self._note(self.machine.lost(batch, now_ms))
                continue
            if remedy(one.error_code) is Remedy.REFRESH_METADATA:
                self._view.forget(batch.partition.topic)
            refused = [record.batch_index for record in one.record_errors]
            reason = _message_of(one)
            self._note(self.machine.answered(batch, one.error_code, one.base_offset, reason, now_ms, refused))

    def _lost(self, batches: Sequence[PendingBatch], now_ms: int) -> None:
        """Note the outcomes of the batches of a request that will not be answered."""
        for batch in batches:
            self._view.forget(batch.partition.topic)
            self._note(self.machine.lost(batch, now_ms))

    def _undeliverable(self, partition: TopicPartition, error: BrokerRefused) -> None:
        """Give up what waits for a partition that does not exist or may not be written, and go on with the others.
        Raises ``error`` if it may pass."""
        if remedy(error.code) is not Remedy.FAIL and not isinstance(error, UnknownTopic):
            raise error
        for failed in self.machine.undeliverable(partition, error.code, error.reason):
            self._note(failed)

    def _sent_unanswered(self, batches: Sequence[PendingBatch]) -> None:
        """Note the outcomes of batches that were sent with acks=0."""
        for batch in batches:
            self._note(self.machine.sent_unanswered(batch))

    def _note(self, outcome: Outcome | None) -> None:
        """Take an outcome in; None: the batch is to be sent again."""
        if self.on_outcome is not None and outcome is not None:
            self.on_outcome(outcome)
        if isinstance(outcome, Failed):
            self._failures.append(outcome)

    def _raise_failure(self) -> None:
        """Raise the first failure since the last call, if there is one."""
        if self._failures:
            failed = self._failures[0]
            self._failures.clear()
            raise DeliveryFailed(failed)


def _message_of(answer: PartitionProduceResponse) -> str | None:
    """The broker's words for a refusal: about the first record that it names, else about the batch."""
    about_records = (record.batch_index_error_message for record in answer.record_errors)
    return next((text for text in about_records if text), answer.error_message)
