"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append what came, byte for byte, and answer when ``acks`` says so.

The log validates batches and their records, sets offsets and the largest timestamp in place, and writes the received
bytes. acks=1 is answered from the page cache, acks=all when the high watermark has passed the records, which
with ``log.sync.policy=commit`` means that they are on disk.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import Offset, TopicPartition
from oncelog.core.transactions.model import Identity
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import add_endpoint, leader_hint
from oncelog.handlers.broker.slices import ITEMS_WHILE_CREATING, SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps, UntilDurable
from oncelog.handlers.produce.append import append
from oncelog.handlers.produce.partition_append import ACKS_ALL, ACKS_NONE, PartitionAppend, appends_of
from oncelog.handlers.produce.record_validation import may_take_long, validate
from oncelog.handlers.produce.verification import ADDS_PARTITIONS, Verification, is_verified_here, unopened, verifies
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


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    """Append every partition's records; None (no response) for acks=0."""
    response = ProduceResponse()
    return (yield from append_and_answer(request, response, appends_of(request, response, context), context))


def append_and_answer(
    request: ProduceRequest, response: ProduceResponse, appends: Sequence[PartitionAppend], context: Context
) -> Steps[ProduceResponse | None]:
    """Append those that are not refused; ``response``, which has the answers about them, when ``acks`` says so."""
    transactional = any(each.is_transactional for each in appends)
    if transactional and not _may_transact(request, context):
        for each in appends:
            each.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif transactional or len(appends) > ITEMS_WHILE_CREATING or may_take_long(appends):
        yield from _append_all(request, [each for each in appends if not each.is_refused], context)
    else:  # as nearly always: nothing to be known before
        for each in appends:
            if not each.is_refused:
                each.resolve(context.partitions)
                append(each, request.acks, None, context, verified=False)
    if request.acks == ACKS_NONE:
        _close_on_error(appends)
        return None
    if request.acks == ACKS_ALL:
        refuse_what_is_led_no_more(appends, context)
        waiting = [each for each in appends if each.is_pending]
        if waiting:
            yield from _until_durable(waiting, context.now_ms + max(0, request.timeout_ms), context)
    if context.version >= _CURRENT_LEADER_SINCE:
        _tell_leaders(appends, response, context)
    return response


def _tell_leaders(appends: Sequence[PartitionAppend], response: ProduceResponse, context: Context) -> None:
    for each in appends:
        if each.is_refused:
            hint = leader_hint(each.partition, each.result.error_code, context)
            if hint is not None:
                each.result.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
                add_endpoint(response.node_endpoints, NodeEndpoint, hint.leader_id, context)


def _may_transact(request: ProduceRequest, context: Context) -> bool:
    name = request.transactional_id
    return name is not None and context.allows_transactional_id(Operation.WRITE, name)


def _append_all(request: ProduceRequest, appends: Sequence[PartitionAppend], context: Context) -> Steps[None]:
    """Resolve each log once, see to what has to be known before the append, then append."""
    many = len(appends) > ITEMS_WHILE_CREATING
    waited = False
    if many:
        yield from _resolve_in_slices(appends, context)
    else:
        for each in appends:
            each.resolve(context.partitions)
    if may_take_long(appends):
        waited = yield from validate(appends, context)
    transactional = any(each.is_transactional for each in appends)
    name = request.transactional_id if transactional else None
    to_verify = unopened(appends) if transactional else {}
    if name is None or not to_verify:
        yield from _append_resolved(request, appends, name, context, waited=waited)
    elif not many and is_verified_here(name, to_verify, context):
        yield from _append_resolved(request, appends, name, context, verified=to_verify, waited=waited)
    else:
        yield from _verify_and_append(request, appends, name, to_verify, context)


def _resolve_in_slices(appends: Sequence[PartitionAppend], context: Context) -> Steps[None]:
    """Resolve in slices, for resolving may create a log. A client that leaves meanwhile loses the rest of its request;
    a producer's request has a thousandth of that many partitions."""
    budget = SliceBudget(context.partitions)
    for each in appends:
        each.resolve(context.partitions)
        if budget.spent():
            yield NextSlice()


def _verify_and_append(
    request: ProduceRequest,
    appends: Sequence[PartitionAppend],
    name: str,
    to_verify: Mapping[TopicPartition, Identity],
    context: Context,
) -> Steps[None]:
    identity, *others = set(to_verify.values())
    if others:
        for each in appends:
            if each.partition in to_verify:
                each.unverified = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        yield from _append_resolved(request, appends, name, context, verified=to_verify, waited=True)
        return
    # What was open when the coordinator was asked, and is not any more, was not asked about.
    verified = to_verify if verifies(context) else {each.partition for each in appends}
    for may_ask_anew in (context.version >= ADDS_PARTITIONS, False):
        verification = Verification(name, identity, [each for each in appends if each.partition in to_verify])
        verification.begin()
        try:
            yield from verification.ask(context)
            if may_ask_anew and verification.is_overtaken():
                continue
            yield from _append_resolved(request, appends, name, context, verified=verified, waited=True)
        finally:  # also when the client is gone
            verification.end()
        break


def _append_resolved(
    request: ProduceRequest,
    appends: Sequence[PartitionAppend],
    name: str | None,
    context: Context,
    *,
    verified: Container[TopicPartition] = (),
    waited: bool = False,
) -> Steps[None]:
    """Append to the logs that were resolved in this step of the loop; after a wait they are resolved anew. A partition
    of a transaction that was not led before is refused all the same: nobody has asked whether it takes part."""
    many = len(appends) > ITEMS_WHILE_CREATING
    waited |= many
    budget = SliceBudget(context.partitions)
    for each in appends:
        if waited and not (each.is_transactional and each.leader is None):
            each.resolve(context.partitions)
        append(each, request.acks, name, context, verified=each.partition in verified)
        if many and budget.spent():
            yield NextSlice()


def _close_on_error(appends: Sequence[PartitionAppend]) -> None:
    """acks=0 has no response; an error closes the connection, as in Apache Kafka."""
    for each in appends:
        if each.is_refused:
            raise PeerError(f"produce with acks=0 failed: {ErrorCode(each.result.error_code).name}")


def refuse_what_is_led_no_more(appends: Sequence[PartitionAppend], context: Context) -> None:
    """Refuse what was appended in a leadership that ended between two slices of the request: another leader may have
    replaced those records by now, and the high watermark says nothing of them."""
    for each in appends:
        if each.leader is not None and each.end >= 0:
            found = context.partitions.leader_log(each.partition)
            if isinstance(found, ErrorCode) or found.leader_epoch != each.leader.leader_epoch:
                each.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _until_durable(appends: Sequence[PartitionAppend], deadline_ms: int, context: Context) -> Steps[None]:
    """Wait until every high watermark has passed what was appended; what is late by the deadline is answered so."""
    ends: dict[TopicPartition, Offset] = {}
    for each in appends:  # the same partition twice: a duplicate that comes last must not end the wait early
        ends[each.partition] = max(each.end, ends.get(each.partition, each.end))
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms)
    for each in appends:
        if each.partition in late:
            found = context.partitions.leader_log(each.partition)
            led = not isinstance(found, ErrorCode)
            each.refuse(ErrorCode.REQUEST_TIMED_OUT if led else ErrorCode.NOT_LEADER_OR_FOLLOWER)
