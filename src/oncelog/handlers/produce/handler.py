"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append what came, byte for byte, and answer when ``acks`` says so.

Records are never touched here: the log checks batch headers and checksums, sets offsets in place and writes the
received bytes. acks=1 is answered from the page cache, acks=all when the high watermark has passed the records, which
with ``log.sync.policy=commit`` means that they are on disk.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import Offset, TopicName, TopicPartition
from oncelog.core.producers.verification import Guard
from oncelog.core.transactions.model import Identity
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.produce.append import (
    ACKS_ALL,
    ACKS_NONE,
    Appending,
    Waiting,
    append_topic,
    attributes_of,
    name_of,
    records_of,
    refuse,
)
from oncelog.handlers.produce.record_validation import may_have_many_records, needs_validation, validated_records
from oncelog.handlers.produce.verification import ADDS_PARTITIONS, identity_of, known, verify
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.waits import NextSlice, Steps, UntilDurable
from oncelog.handlers.support.yielding import ITEMS_WHILE_CREATING, SliceBudget
from oncelog.records.batch import TRANSACTIONAL
from oncelog.wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log.record_validation import ValidatedRecords

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "the checksum or the structure of the batch is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 13)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal; its records are the broker's to write",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is not -1, 0 or 1",
    ErrorCode.NOT_ENOUGH_REPLICAS: "acks=all and fewer replicas in sync than min.insync.replicas",
    ErrorCode.REQUEST_TIMED_OUT: "acks=all and not durable within the request's time-out",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads the partition, or none; or it was deleted while acks=all "
    "was waiting",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp outside message.timestamp.before.max.ms or after.max.ms",
    ErrorCode.INVALID_RECORD: "old magic, not exactly one batch, a control batch, or no key on a compacted topic",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a gap in an idempotent producer's sequence",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional records without a transactional id, or another's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "zstd before version 7",
    ErrorCode.INVALID_PRODUCER_EPOCH: "an older epoch than the partition has seen",
    ErrorCode.INVALID_TXN_STATE: "a transactional batch outside a transaction",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id, or none",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still completing (version 12)",
    ErrorCode.TRANSACTION_ABORTABLE: "the same, told to clients that know the error (version 11)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to write to the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be written",
}

_NOT_VALIDATED: Final[Mapping[int, ValidatedRecords]] = {}


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    """Append every partition's records; None (no response) for acks=0."""
    if may_have_many_records(request) and needs_validation(request, context):
        return _validate_first(request, context)
    return _decide(request, context, _NOT_VALIDATED)


def _validate_first(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    validated = yield from validated_records(request, context)
    outcome = _decide(request, context, validated)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _decide(
    request: ProduceRequest, context: Context, validated: Mapping[int, ValidatedRecords]
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    in_slices = len(request.topic_data) > ITEMS_WHILE_CREATING or _partition_count(request) > ITEMS_WHILE_CREATING
    transactional = _transactional_partitions(request, context)
    if transactional is None:
        return _append_all(request, Appending(context, request.acks, True, {}, False, validated, in_slices))
    name = request.transactional_id
    allowed = name is not None and context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    verified = False
    if name is not None and allowed and transactional:
        # What is known now holds for what is appended now; for the rest there have to be guards.
        verified = not in_slices and known(name, transactional, context)
        if not verified:
            appending = Appending(context, request.acks, True, {}, True, validated, in_slices, transactional_id=name)
            return _verify_and_append(request, name, transactional, appending)
    appending = Appending(context, request.acks, allowed, {}, verified, validated, in_slices, transactional_id=name)
    return _append_all(request, appending)


def _partition_count(request: ProduceRequest) -> int:
    return sum([len(topic.partition_data) for topic in request.topic_data])


def _verify_and_append(
    request: ProduceRequest,
    name: str,
    transactional: Mapping[TopicPartition, Identity],
    appending: Appending,
) -> Steps[ProduceResponse | None]:
    context = appending.context
    first, *others = set(transactional.values())
    if others:
        appending.refused = dict.fromkeys(transactional, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        outcome = _append_all(request, appending)
        return (yield from outcome) if isinstance(outcome, Generator) else outcome
    logs = {partition: log for partition in transactional if (log := context.broker.log(partition)) is not None}
    for may_ask_anew in (context.version >= ADDS_PARTITIONS, False):
        verifications = {partition: log.producers.verifications for partition, log in logs.items()}
        appending.guards = {partition: each.begin(first.producer_id) for partition, each in verifications.items()}
        try:
            appending.refused = yield from verify(name, first, list(transactional), context)
            if may_ask_anew and not appending.refused and _is_overtaken(first, logs, appending.guards):
                continue
            outcome = _append_all(request, appending)
            if appending.in_slices and isinstance(outcome, Generator):
                return (yield from outcome)
        finally:  # also when the client is gone
            for partition, guard in appending.guards.items():
                verifications[partition].end(guard)
        break
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _is_overtaken(
    identity: Identity, logs: Mapping[TopicPartition, PartitionLog], guards: Mapping[TopicPartition, Guard]
) -> bool:
    """Whether a marker was written while partitions were being added. They have waited for it, if it ended the
    transaction before: EndTxn is answered before its markers are written. Or it has ended theirs, and the coordinator,
    asked anew, will say so."""
    return any(
        not log.producers.verifications.is_current(guards[partition])
        and not log.producers.has_open_transaction(identity.producer_id)
        for partition, log in logs.items()
    )


def _append_all(
    request: ProduceRequest, appending: Appending
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    if appending.in_slices:
        return _append_in_slices(request, appending)
    response = ProduceResponse()
    for topic in request.topic_data:
        response.responses.append(append_topic(topic, appending))
    return _answer(request, response, appending)


def _append_in_slices(request: ProduceRequest, appending: Appending) -> Steps[ProduceResponse | None]:
    response = ProduceResponse()
    budget = SliceBudget(appending.context.broker)
    for topic in request.topic_data:
        for start in range(0, max(1, len(topic.partition_data)), ITEMS_WHILE_CREATING):
            some = topic.partition_data[start : start + ITEMS_WHILE_CREATING]
            data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=some)
            answer = append_topic(data, appending)
            if start:
                response.responses[-1].partition_responses += answer.partition_responses
            else:
                response.responses.append(answer)
            if budget.spent(1 + len(some)):
                yield NextSlice()
    outcome = _answer(request, response, appending)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _answer(
    request: ProduceRequest, response: ProduceResponse, appending: Appending
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    if request.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    context = appending.context
    if request.acks == ACKS_ALL and not _are_durable(appending.waiting, context):
        return _when_durable(response, appending.waiting, context.now_ms + max(0, request.timeout_ms), context)
    return response


def _are_durable(waiting: Sequence[Waiting], context: Context) -> bool:
    """Whether nothing has to be waited for: with ``log.sync.policy=none`` the high watermark has moved already."""
    log_of = context.broker.log
    return all((log := log_of(each.partition)) is not None and log.high_watermark >= each.end for each in waiting)


def _transactional_partitions(request: ProduceRequest, context: Context) -> Mapping[TopicPartition, Identity] | None:
    """Partitions with transactional records whose leader does not know their transaction yet, with their producers;
    None when no records are transactional."""
    if not _has_transactional(request):
        return None
    found: dict[TopicPartition, Identity] = {}
    for topic in request.topic_data:
        name = topic.name or name_of(topic.topic_id, context)
        for data in topic.partition_data:
            partition = TopicPartition(TopicName(name), data.index)
            log, identity = context.broker.log(partition), identity_of(records_of(data))
            if log is not None and identity is not None and not _is_open(log, identity):
                found[partition] = identity
    return found


def _is_open(log: PartitionLog, identity: Identity) -> bool:
    entry = log.producers.entries.get(identity.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == identity.producer_epoch


def _close_on_error(response: ProduceResponse) -> None:
    """acks=0 has no response; an error is told as Apache Kafka does, by closing the connection."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise PeerError(f"produce with acks=0 failed: {ErrorCode(partition.error_code).name}")


def _when_durable(
    response: ProduceResponse, waiting: Sequence[Waiting], deadline_ms: int, context: Context
) -> Steps[ProduceResponse]:
    ends: dict[TopicPartition, Offset] = {}
    for each in waiting:  # the same partition twice: a duplicate that comes last must not end the wait early
        ends[each.partition] = max(each.end, ends.get(each.partition, each.end))
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms)
    for each in waiting:
        if each.partition in late:
            gone = context.broker.log(each.partition) is None
            refuse(each.result, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.REQUEST_TIMED_OUT)
    return response


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        attributes_of(records_of(partition)) & TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
    )
