"""The outcomes of batches after a Produce response, or without one; shared by the blocking and the asyncio client.

The rule: each batch gets exactly one outcome a round, in the order sent. A batch that the response does not name is as
lost as one whose connection broke; the machine decides what of it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.producer import Outcome, PendingBatch, ProducerMachine
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.wire.messages.produce import ProduceResponse


def answered(
    machine: ProducerMachine, view: ClusterView, batches: Sequence[PendingBatch], message: ProduceResponse, now_ms: int
) -> Iterator[Outcome | None]:
    """The outcome of each batch, None where it is to be sent again. Metadata shown to be stale is forgotten."""
    names = view.topic_ids(dict.fromkeys(batch.partition.topic for batch in batches)) or {}
    answers = {
        TopicPartition(TopicName(topic.name or names.get(bytes(topic.topic_id), "")), one.index): one
        for topic in message.responses
        for one in topic.partition_responses
    }
    for batch in batches:
        one = answers.get(batch.partition)
        if one is None:
            yield machine.lost(batch, now_ms)
            continue
        if remedy(one.error_code) is Remedy.REFRESH_METADATA:
            view.forget(batch.partition.topic)
        yield machine.answered(batch, one.error_code, one.base_offset, one.error_message, now_ms)


def lost(
    machine: ProducerMachine, view: ClusterView, batches: Sequence[PendingBatch], now_ms: int
) -> Iterator[Outcome | None]:
    """The outcome of each batch of a request without a response, None where it is to be sent again."""
    for batch in batches:
        view.forget(batch.partition.topic)
        yield machine.lost(batch, now_ms)
