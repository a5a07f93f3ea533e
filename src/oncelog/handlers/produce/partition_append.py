"""One partition's records on their way into its log: resolved once, and carried through every step of a Produce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, Offset, ProducerEpoch, ProducerId, TopicId, TopicName, TopicPartition
from oncelog.core.transactions.model import Identity
from oncelog.handlers.api import Operation, ResourceType
from oncelog.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL, CorruptBatch, read_header
from oncelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from oncelog.core.producers.verification import Guard
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.leadership import LeaderLog
    from oncelog.handlers.broker.ports import Partitions
    from oncelog.storage.log.record_validation import ValidatedRecords
    from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
_IDS_SINCE: Final = 13
_NO_END: Final = Offset(-1)


class PartitionAppend:
    """A batch, the partition it is for, and the answer about it."""

    __slots__ = ("attributes", "end", "guard", "leader", "partition", "records", "result", "unverified", "validated")

    def __init__(self, partition: TopicPartition, records: memoryview, result: PartitionProduceResponse) -> None:
        self.partition = partition
        self.records = records
        self.result = result
        self.attributes = attributes_of(records)
        self.leader: LeaderLog | None = None
        """The log to append to. Leadership may move in a wait: then it is resolved again."""
        self.validated: ValidatedRecords | None = None
        """The outcome of record validation, if a worker has done that."""
        self.guard: Guard | None = None
        """The guard under which the partition was verified as part of the transaction (KIP-890)."""
        self.unverified = ErrorCode.NONE
        """The reason for which the coordinator does not take the partition as part of the transaction."""
        self.end = _NO_END
        """The high watermark at which acks=all is answered, once the records are appended."""

    @property
    def is_refused(self) -> bool:
        """True if the answer is an error."""
        return bool(self.result.error_code)

    @property
    def is_pending(self) -> bool:
        """True while acks=all waits for what was appended. With ``log.sync.policy=none`` and no followers never."""
        return self.leader is not None and self.leader.log.high_watermark < self.end

    def replace_records(self, batch: bytearray) -> None:
        """Append ``batch`` in place of what came."""
        self.records = memoryview(batch)
        self.attributes = attributes_of(self.records)

    def resolve(self, partitions: Partitions) -> None:
        """Ask for the partition's log; where this broker does not lead it, the answer says so."""
        found = partitions.leader_log(self.partition)
        if isinstance(found, ErrorCode):
            self.leader = None
            self.refuse(found)
        else:
            self.leader = found
            self.result.error_code = ErrorCode.NONE

    @property
    def is_transactional(self) -> bool:
        """True if the batch says that it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        """The batch's compression, by its code."""
        return self.attributes & CODEC_MASK

    def identity(self) -> Identity | None:
        """The producer of a transactional batch; None where there is none, or no batch that reads."""
        try:
            header = read_header(self.records)
        except CorruptBatch:
            return None
        if not header.is_transactional or header.producer_id < 0:
            return None
        return Identity(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))

    def refuse(self, error_code: ErrorCode, message: str | None = None) -> None:
        """Answer that nothing was appended."""
        self.end = _NO_END
        result = self.result
        result.error_code = error_code
        result.error_message = message
        result.base_offset = -1
        result.log_append_time_ms = -1
        result.log_start_offset = -1


def appends_of(request: ProduceRequest, response: ProduceResponse, context: Context) -> list[PartitionAppend]:
    """The partitions of a request, in order, each with its answer in ``response``: refused where the topic is."""
    appends = []
    for topic in request.topic_data:
        name = topic_name_of(topic, context)
        refusal = _topic_refusal(topic, name, request.acks, context)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answer)
        for data in topic.partition_data:
            result = PartitionProduceResponse()
            result.index, result.base_offset = data.index, -1
            answer.partition_responses.append(result)
            append = PartitionAppend(TopicPartition(name, data.index), records_of(data), result)
            if refusal is not ErrorCode.NONE:
                append.refuse(refusal)
            appends.append(append)
    return appends


def _topic_refusal(topic: TopicProduceData, name: TopicName, acks: int, context: Context) -> ErrorCode:
    if not name and context.version >= _IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID  # no right is asked for: there is nothing to have it on
    if not context.allows(Operation.WRITE, ResourceType.TOPIC, name, len(topic.partition_data)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if acks not in (ACKS_ALL, ACKS_NONE, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def topic_name_of(topic: TopicProduceData, context: Context) -> TopicName:
    """The topic's name, also where it is given by id (version 13); empty when no topic has the id."""
    if topic.topic_id == NO_TOPIC_ID:
        return TopicName(topic.name or "")
    found = context.cluster.image.topic_of_id(TopicId(topic.topic_id))
    return TopicName("") if found is None else found.name


def records_of(data: PartitionProduceData) -> memoryview:
    """The received bytes, writable: the log sets offsets in them."""
    records = data.records
    if isinstance(records, memoryview):
        return records
    return memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes


def attributes_of(records: memoryview) -> int:
    """The low byte of a batch's attributes, 0 where there is none: the log will refuse a batch that short."""
    return records[ATTRIBUTES_POSITION + 1] if len(records) > ATTRIBUTES_POSITION + 1 else 0
