"""Appends one partition's batch to its log, or refuses it. All of it happens in one step of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import INTERNAL_TOPICS, Offset
from oncelog.handlers.produce.partition_append import ACKS_ALL, PartitionAppend
from oncelog.records.compression import Codec
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.append import append_batch
from oncelog.wire.messages.produce import BatchIndexAndErrorMessage

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.leadership import LeaderLog

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Apache Kafka lets write to internal topics."""
_NOT_ADDED: Final = "Partition was not added to the transaction"
"""Apache Kafka's words for clients before version 11, whose error code says less."""
_KNOWS_ZSTD: Final = 7


def append(each: PartitionAppend, acks: int, transactional_id: str | None, context: Context, *, verified: bool) -> None:
    """Write the batch at the end of its log and fill in the answer. ``verified``: the coordinator knows of the
    partition as part of the transaction of ``transactional_id``."""
    leader = each.leader
    if leader is None:
        return
    refusal = _refusal(each, leader, acks, context)
    if refusal is not ErrorCode.NONE:
        each.refuse(refusal, _NOT_ADDED if refusal is ErrorCode.INVALID_TXN_STATE else None)
        if refusal is ErrorCode.NOT_ENOUGH_REPLICAS:
            each.result.log_start_offset = leader.log.log_start_offset
        return
    try:
        appended = append_batch(
            leader.log,
            each.records,
            now_ms=context.now_ms,
            leader_epoch=leader.leader_epoch,
            verified=verified,
            guard=each.guard,
            transactional_id=transactional_id,
            validated=each.validated,
        )
    except AppendRefused as refused:
        _refuse(each, refused, leader)
        return
    except OSError:
        each.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        return
    context.partitions.appended(leader, appended.record_count, appended.size_bytes)
    result = each.result
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time_ms
    result.log_start_offset = appended.log_start_offset
    each.end = Offset(appended.last_offset + 1)


def _refusal(each: PartitionAppend, leader: LeaderLog, acks: int, context: Context) -> ErrorCode:
    if each.partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if acks == ACKS_ALL and not leader.has_enough_in_sync():
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if context.version < _KNOWS_ZSTD and each.codec == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return each.unverified


def _refuse(each: PartitionAppend, refusal: AppendRefused, leader: LeaderLog) -> None:
    """Answer what the log refused; its start is named only where the log itself was asked, as Apache Kafka does."""
    each.refuse(refusal.error_code, refusal.message if refusal.spoken else None)
    if refusal.by_log:
        each.result.log_start_offset = leader.log.log_start_offset
    each.result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in refusal.record_errors
    ]
