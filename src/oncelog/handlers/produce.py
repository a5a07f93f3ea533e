"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append what came, byte for byte, and answer when ``acks`` says so.

Records are never touched here: the log checks batch headers and checksums, sets offsets in place and writes the
received bytes. acks=1 is answered from the page cache, acks=all when the high watermark has passed the records, which
with ``log.sync.policy=commit`` means that they are on disk.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import INTERNAL_TOPICS, NO_TOPIC_ID, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.producers.verification import Guard
from oncelog.core.transactions.model import Identity
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context
from oncelog.handlers.leadership import exists
from oncelog.handlers.pace import ITEMS_WHILE_CREATING, Pace
from oncelog.handlers.produce_looking import any_has_many, looked_into
from oncelog.handlers.produce_transactions import ADDS_PARTITIONS, identity_of, known, verify
from oncelog.handlers.waits import NextTurn, Steps, UntilDurable
from oncelog.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL
from oncelog.records.compression import Codec
from oncelog.storage.errors import AppendRefused
from oncelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from oncelog.storage.append_validation import Looked
    from oncelog.storage.log import PartitionLog

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

_NOT_LOOKED: Final[Mapping[int, Looked]] = {}
ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Apache Kafka lets write to internal topics."""
_KNOWS_ZSTD: Final = 7
_NOT_ADDED: Final = "Partition was not added to the transaction"
"""Apache Kafka's words for clients before version 11, whose error code says less."""


class _Waiting(NamedTuple):
    """What was appended, and the high watermark at which acks=all may be answered."""

    partition: TopicPartition
    end: Offset
    result: PartitionProduceResponse


@dataclass(slots=True)
class _Appending:
    """One request on its way into the logs."""

    context: Context
    acks: int
    allowed: bool
    """False refuses everything: transactional records without an id, or with one that is not the requester's."""
    refused: Mapping[TopicPartition, ErrorCode]
    """What the transaction coordinator does not know as part of the transaction."""
    verified: bool
    looked: Mapping[int, Looked]
    """What was found in batches of very many records, by the identity of their partition's data."""
    in_turns: bool
    """There are so many partitions that others have their turn in between. What a client has sent that leaves
    meanwhile is lost from there on; a producer's request has a thousandth of that."""
    guards: Mapping[TopicPartition, Guard] = field(default_factory=dict)
    """Under which partitions were verified."""
    transactional_id: str | None = None
    """Whose the transactional records are; only one whose requester may use it."""
    waiting: list[_Waiting] = field(default_factory=list)


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    """Append every partition's records; None (no response) for acks=0."""
    if any_has_many(request, _records):
        return _look_first(request, context)
    return _decide(request, context, _NOT_LOOKED)


def _look_first(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    def partition_of(topic: TopicProduceData, index: int) -> TopicPartition:
        return TopicPartition(TopicName(topic.name or _name_of(topic.topic_id, context)), index)

    looked = yield from looked_into(request, _records, partition_of, context)
    outcome = _decide(request, context, looked)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _decide(
    request: ProduceRequest, context: Context, looked: Mapping[int, Looked]
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    in_turns = len(request.topic_data) > ITEMS_WHILE_CREATING or _partition_count(request) > ITEMS_WHILE_CREATING
    transactional = _transactional_partitions(request, context)
    if transactional is None:
        return _append_all(request, _Appending(context, request.acks, True, {}, False, looked, in_turns))
    name = request.transactional_id
    allowed = name is not None and context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    verified = False
    if name is not None and allowed and transactional:
        # What is known now holds for what is appended now; for the rest there have to be guards.
        verified = not in_turns and known(name, transactional, context)
        if not verified:
            appending = _Appending(context, request.acks, True, {}, True, looked, in_turns, transactional_id=name)
            return _verify_and_append(request, name, transactional, appending)
    appending = _Appending(context, request.acks, allowed, {}, verified, looked, in_turns, transactional_id=name)
    return _append_all(request, appending)


def _partition_count(request: ProduceRequest) -> int:
    return sum([len(topic.partition_data) for topic in request.topic_data])


def _verify_and_append(
    request: ProduceRequest,
    name: str,
    transactional: Mapping[TopicPartition, Identity],
    appending: _Appending,
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
            if appending.in_turns and isinstance(outcome, Generator):
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
    request: ProduceRequest, appending: _Appending
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    if appending.in_turns:
        return _append_in_turns(request, appending)
    response = ProduceResponse()
    for topic in request.topic_data:
        response.responses.append(_append_topic(topic, appending))
    return _answer(request, response, appending)


def _append_in_turns(request: ProduceRequest, appending: _Appending) -> Steps[ProduceResponse | None]:
    response = ProduceResponse()
    pace = Pace(appending.context.broker)
    for topic in request.topic_data:
        for start in range(0, max(1, len(topic.partition_data)), ITEMS_WHILE_CREATING):
            some = topic.partition_data[start : start + ITEMS_WHILE_CREATING]
            data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=some)
            answer = _append_topic(data, appending)
            if start:
                response.responses[-1].partition_responses += answer.partition_responses
            else:
                response.responses.append(answer)
            if pace.done(1 + len(some)):
                yield NextTurn()
    outcome = _answer(request, response, appending)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _answer(
    request: ProduceRequest, response: ProduceResponse, appending: _Appending
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    if request.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    context = appending.context
    if request.acks == ACKS_ALL and not _are_durable(appending.waiting, context):
        return _when_durable(response, appending.waiting, context.now_ms + max(0, request.timeout_ms), context)
    return response


def _are_durable(waiting: Sequence[_Waiting], context: Context) -> bool:
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
        name = topic.name or _name_of(topic.topic_id, context)
        for data in topic.partition_data:
            partition = TopicPartition(TopicName(name), data.index)
            log, identity = context.broker.log(partition), identity_of(_records(data))
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
    response: ProduceResponse, waiting: Sequence[_Waiting], deadline_ms: int, context: Context
) -> Steps[ProduceResponse]:
    ends: dict[TopicPartition, Offset] = {}
    for each in waiting:  # the same partition twice: a duplicate that comes last must not end the wait early
        ends[each.partition] = max(each.end, ends.get(each.partition, each.end))
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms)
    for each in waiting:
        if each.partition in late:
            gone = context.broker.log(each.partition) is None
            _refuse(each.result, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.REQUEST_TIMED_OUT)
    return response


def _name_of(topic_id: bytes, context: Context) -> str:
    topic = context.broker.image.topic_of_id(TopicId(topic_id))
    return "" if topic is None else topic.name


def _append_topic(data: TopicProduceData, appending: _Appending) -> TopicProduceResponse:
    by_id = data.topic_id != NO_TOPIC_ID
    name = TopicName(_name_of(data.topic_id, appending.context) if by_id else data.name or "")
    answer = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    refusal = _topic_refusal(name, by_id, appending)
    for partition in data.partition_data:
        result = PartitionProduceResponse(index=partition.index, base_offset=-1, log_append_time_ms=-1)
        if refusal != ErrorCode.NONE:
            _refuse(result, refusal)
        else:
            _append_partition(TopicPartition(name, partition.index), partition, result, appending)
        answer.partition_responses.append(result)
    return answer


def _topic_refusal(name: TopicName, by_id: bool, appending: _Appending) -> ErrorCode:
    if not appending.allowed:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if by_id and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not appending.context.allows(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if appending.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _append_partition(
    partition: TopicPartition, data: PartitionProduceData, result: PartitionProduceResponse, appending: _Appending
) -> None:
    context, broker = appending.context, appending.context.broker
    log = broker.log(partition)
    if log is None:
        led_elsewhere = exists(broker, partition)
        _refuse(result, ErrorCode.NOT_LEADER_OR_FOLLOWER if led_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    records = _records(data)
    refusal = _partition_refusal(partition, log, records, appending)
    if refusal != ErrorCode.NONE:
        _refuse(result, refusal, _NOT_ADDED if refusal is ErrorCode.INVALID_TXN_STATE else None)
        return
    try:
        appended = log.append(
            records,
            now_ms=context.now_ms,
            leader_epoch=broker.leader_epoch(partition),
            verified=appending.verified,
            guard=appending.guards.get(partition),
            transactional_id=appending.transactional_id,
            looked=appending.looked.get(id(data)),
        )
    except AppendRefused as refused:
        _refuse_append(result, refused, log)
        return
    except OSError:
        _refuse(result, ErrorCode.KAFKA_STORAGE_ERROR)
        return
    broker.appended(partition, appended.record_count, appended.size_bytes)
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time_ms
    result.log_start_offset = appended.log_start_offset
    appending.waiting.append(_Waiting(partition, Offset(appended.last_offset + 1), result))


def _partition_refusal(
    partition: TopicPartition, log: PartitionLog, records: memoryview, appending: _Appending
) -> ErrorCode:
    context, broker = appending.context, appending.context.broker
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if appending.acks == ACKS_ALL and broker.in_sync_count(partition) < _least_in_sync(partition, log, context):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if context.version < _KNOWS_ZSTD and _codec(records) == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return appending.refused.get(partition, ErrorCode.NONE)


def _least_in_sync(partition: TopicPartition, log: PartitionLog, context: Context) -> int:
    """``min.insync.replicas``, but never more than there are replicas (KIP-966)."""
    topic = context.broker.image.topics[partition.topic]
    return min(log.config.min_insync_replicas, len(topic.partitions[partition.partition].replicas))


def _records(data: PartitionProduceData) -> memoryview:
    records = data.records
    if isinstance(records, memoryview):
        return records
    return memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes


def _attributes(records: memoryview) -> int:
    """The low byte of a batch's attributes, 0 where there is none: the log will refuse what is that short."""
    return records[ATTRIBUTES_POSITION + 1] if len(records) > ATTRIBUTES_POSITION + 1 else 0


def _codec(records: memoryview) -> int:
    return _attributes(records) & CODEC_MASK


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        _attributes(_records(partition)) & TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _refuse_append(result: PartitionProduceResponse, refusal: AppendRefused, log: PartitionLog) -> None:
    """What the log refused; its start is named only where the log itself was asked, as Apache Kafka does."""
    _refuse(result, refusal.error_code, refusal.message if refusal.spoken else None)
    if refusal.by_log:
        result.log_start_offset = log.log_start_offset
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in refusal.record_errors
    ]


def _refuse(result: PartitionProduceResponse, error_code: ErrorCode, message: str | None = None) -> None:
    result.error_code = error_code
    result.error_message = message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
