"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append the received batches, and answer according to ``acks``.

The log validates batches and records, sets offsets and the largest timestamp in place, and writes the received bytes.
acks=1 is answered from the page cache, acks=all when the high watermark has passed the records: with
``log.sync.policy=commit`` they are on disk.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import Offset, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import add_endpoint, leader_hint
from oncelog.handlers.broker.time_slices import ITEMS_WHILE_CREATING, SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Offload, Steps, UntilDurable
from oncelog.handlers.produce.partition_append import ACKS_ALL, ACKS_NONE, PartitionAppend, appends_of, unopened
from oncelog.records.batch import TRANSACTIONAL
from oncelog.records.errors import TooMuchWork
from oncelog.storage.log_config import INLINE_VALIDATION_BYTES
from oncelog.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceRequest, ProduceResponse

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
    ErrorCode.INVALID_RECORD: "old magic, not exactly one batch, a control batch, records that are not as many or not "
    "as long as they say, or no key on a compacted topic",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the records cannot be decompressed, or by no codec that there is",
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

_CURRENT_LEADER_SINCE: Final = 10
_SLICE_BYTES: Final = 4 * INLINE_VALIDATION_BYTES
"""Bytes of records inspected in one slice."""


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    """Append every partition's records. Returns None (no response) for acks=0."""
    response = ProduceResponse()
    return (yield from append_and_answer(request, response, appends_of(request, response, context), context))


def append_and_answer(
    request: ProduceRequest, response: ProduceResponse, appends: Sequence[PartitionAppend], context: Context
) -> Steps[ProduceResponse | None]:
    acks = request.acks
    transactional = _is_transactional(appends)
    if transactional and not _may_transact(request, context):
        for append in appends:
            append.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif transactional:
        yield from _append_in_transaction(request, appends, context)
    else:
        yield from _append_each(request, appends, None, context)
    if acks == ACKS_NONE:
        _close_on_error(appends)
        return None
    if acks == ACKS_ALL:
        waiting = [append for append in appends if append.is_pending]
        if waiting:
            yield from _until_durable(waiting, context.now_ms + max(0, request.timeout_ms), context)
    if context.version >= _CURRENT_LEADER_SINCE:
        _add_leader_hints(appends, response, context)
    return response


def _is_transactional(appends: Sequence[PartitionAppend]) -> bool:
    attributes = 0
    for append in appends:
        attributes |= append.attributes
    return bool(attributes & TRANSACTIONAL)


def _may_transact(request: ProduceRequest, context: Context) -> bool:
    name = request.transactional_id
    return name is not None and context.allows_transactional_id(Operation.WRITE, name)


def _append_each(
    request: ProduceRequest,
    appends: Sequence[PartitionAppend],
    transactional_id: str | None,
    context: Context,
    verified: Container[TopicPartition] = (),
) -> Steps[None]:
    """Resolve each log and append to it in the same step of the loop."""
    acks = request.acks
    many = len(appends) > ITEMS_WHILE_CREATING
    budget, left = SliceBudget(context.partitions), _SLICE_BYTES
    gave_way = False
    for append in appends:
        if append.result.error_code:
            continue
        if left <= 0 or (many and budget.spent()):  # resolving may create a log
            yield NextSlice()
            gave_way, left = True, _SLICE_BYTES
        append.resolve(context)
        is_verified = append.partition in verified
        try:
            left -= append.write(acks, transactional_id, context, verified=is_verified)
        except TooMuchWork:
            assert append.leader is not None
            validated = yield Offload(append.leader.log.validate_records(append.records, context.now_ms))
            gave_way, left = True, _SLICE_BYTES
            append.resolve(context)
            append.validated = validated
            if transactional_id is not None and unopened([append]) and not (is_verified and append.is_guarded):
                # The transaction ended while the worker validated the records: only the coordinator knows why.
                yield from _append_in_transaction(request, [append], context)
            else:
                append.write(acks, transactional_id, context, verified=is_verified)
    if gave_way and acks == ACKS_ALL:
        # Leadership may have moved between slices: acks=all vouches only for leaderships in which the records were
        # appended.
        reject_if_leadership_lost(appends, context)


def _append_in_transaction(
    request: ProduceRequest, appends: Sequence[PartitionAppend], context: Context
) -> Steps[None]:
    """Append once partitions without an open transaction are known to take part in this one."""
    # Imported by the first transaction: plain producers do not wait for it.
    from oncelog.handlers.produce.verification import ADDS_PARTITIONS, Verification, verifies

    name = request.transactional_id
    assert name is not None
    budget = SliceBudget(context.partitions)
    for append in appends:
        if not append.is_refused:
            append.resolve(context)
        if budget.spent():
            yield NextSlice()
    to_verify = unopened(appends)
    if not to_verify:
        yield from _append_each(request, appends, name, context)
        return
    identity, *others = set(to_verify.values())
    if others:
        for append in appends:
            if append.partition in to_verify:
                append.unverified = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        yield from _append_each(request, appends, name, context)
        return
    # Not verified: partitions whose transaction was open at this point and ends before the append.
    verified = to_verify if verifies(context) else {append.partition for append in appends}
    for may_ask_again in (context.version >= ADDS_PARTITIONS, False):
        verification = Verification(name, identity, [append for append in appends if append.partition in to_verify])
        verification.begin()
        try:
            yield from verification.ask(context)
            if may_ask_again and verification.is_overtaken():
                continue
            yield from _append_each(request, appends, name, context, verified)
        finally:  # runs if the client disconnects, too
            verification.end()
        break


def _close_on_error(appends: Sequence[PartitionAppend]) -> None:
    """Close the connection on an error of acks=0, which has no response, as in Apache Kafka."""
    for append in appends:
        if append.is_refused:
            raise PeerError(f"produce with acks=0 failed: {ErrorCode(append.result.error_code).name}")


def reject_if_leadership_lost(appends: Sequence[PartitionAppend], context: Context) -> None:
    """Refuse batches whose leadership ended between two slices of the request."""
    for append in appends:
        if append.leader is not None and append.end >= 0:
            leader = context.partitions.leader_log(append.partition)
            if isinstance(leader, ErrorCode) or leader.leader_epoch != append.leader.leader_epoch:
                # Another leader may have replaced the records, and the high watermark does not cover them.
                append.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _until_durable(appends: Sequence[PartitionAppend], deadline_ms: int, context: Context) -> Steps[None]:
    ends: dict[TopicPartition, Offset] = {}
    for append in appends:  # of a partition named twice the larger end counts
        ends[append.partition] = max(append.end, ends.get(append.partition, append.end))
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms)
    for append in appends:
        if append.partition in late:
            is_led = not isinstance(context.partitions.leader_log(append.partition), ErrorCode)
            append.refuse(ErrorCode.REQUEST_TIMED_OUT if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _add_leader_hints(appends: Sequence[PartitionAppend], response: ProduceResponse, context: Context) -> None:
    for append in appends:
        error_code = append.result.error_code
        hint = leader_hint(append.partition, error_code, context) if error_code else None
        if hint is not None:
            leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            append.result.current_leader = leader
            add_endpoint(response.node_endpoints, NodeEndpoint, hint.leader_id, context)
