"""TxnOffsetCommit, versions 0 to 6 (KIP-98, KIP-447, KIP-890, KIP-1319): store a group's offsets in a transaction.

The offsets are records of the transaction in the group's partition of ``__consumer_offsets``, invisible until its
marker. Up to version 4 the client has added the group (AddOffsetsToTxn), which is verified here; from 5 on
(Transactions V2) this request adds the partition. Generation and member (version 3) are fenced as in OffsetCommit, but
the group's state does not matter, nor do clients that do not identify themselves (KIP-447). From version 6 on topics go
by id, and the errors of OffsetCommit 9 about groups and epochs replace ILLEGAL_GENERATION.

After every wait the transaction is verified again in the step that decides and appends; otherwise an offset could be
written behind its transaction's marker and stay open for ever. If another broker coordinates the transaction, the
group's partition has a guard instead, as for a produce (``core.producers.verification``): a marker written since the
question voids the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    GroupId,
    MemberId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.groups.model import CommitReply, GroupDecision, PartitionCommit, Producer, TransactionalCommitRequest
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, VerifyReply
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import AddToTransaction, Steps
from oncelog.handlers.groups.offset_commit import accepted_commits, topic_name
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.producers.state import ProducerState

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to write with the transactional id",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.INVALID_GROUP_ID: "an empty group id",
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text beside the offset is longer than offset.metadata.max.bytes",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist or has another producer id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the epoch is not the current one",
    ErrorCode.TRANSACTION_ABORTABLE: "the group's offsets are not part of the transaction (version 4)",
    ErrorCode.INVALID_TXN_STATE: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member (version 3)",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id (version 3)",
    ErrorCode.ILLEGAL_GENERATION: (
        "not the current generation (version 3); up to version 5 also a stale member epoch, or no such group"
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 6)",
    ErrorCode.GROUP_ID_NOT_FOUND: "a generation of a group that does not exist (version 6)",
    ErrorCode.STALE_MEMBER_EPOCH: "not the epoch of the member, and a partition was not assigned to it in that one "
    "(version 6)",
}

_KNOWS_LOADING: Final = 2
_KNOWS_TRANSACTION_ABORTABLE: Final = 4
_ADDS_PARTITION: Final = 5
_TOPIC_IDS_SINCE: Final = 6


class _Answer:
    """The growing response: refusals first, then the coordinator's answers, one entry a topic."""

    def __init__(self, request: TxnOffsetCommitRequest, version: int) -> None:
        self._request = request
        self._version = version
        self._topics: dict[tuple[str, TopicId], TxnOffsetCommitResponseTopic] = {}

    def add(self, topic: TxnOffsetCommitRequestTopic, partition: int, error_code: ErrorCode) -> None:
        if error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._version < _KNOWS_LOADING:
            error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # older clients may crash on it (KAFKA-7296)
        key = topic.name, TopicId(topic.topic_id)
        entry = self._topics.get(key)
        if entry is None:
            entry = self._topics[key] = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        entry.partitions.append(TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error_code))

    def response(self) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=list(self._topics.values()))

    def refuse_all(self, error_code: ErrorCode) -> TxnOffsetCommitResponse:
        for topic in self._request.topics:
            for part in topic.partitions:
                self.add(topic, part.partition_index, error_code)
        return self.response()


def handle(request: TxnOffsetCommitRequest, context: Context) -> Steps[TxnOffsetCommitResponse]:
    answer = _Answer(request, context.version)
    if not context.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return answer.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.allows_group(Operation.READ, request.group_id):
        return answer.refuse_all(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    by_id = context.version >= _TOPIC_IDS_SINCE
    accepted = [
        (topic, part)
        for topic in request.topics
        for part in accepted_commits(
            topic_name(topic, context, by_id=by_id), topic.partitions, context, partial(answer.add, topic)
        )
    ]
    if accepted:
        decided = yield from _commit(request, [part for _, part in accepted], context)
        errors = decided.partitions or [decided.error_code] * len(accepted)
        for (topic, part), error_code in zip(accepted, errors, strict=True):
            answer.add(topic, part.partition, error_code)
    return answer.response()


def _commit(request: TxnOffsetCommitRequest, accepted: list[PartitionCommit], context: Context) -> Steps[CommitReply]:
    if not request.group_id:
        return CommitReply(ErrorCode.INVALID_GROUP_ID)
    refusal = context.groups.refusal(GroupId(request.group_id))
    if refusal is not ErrorCode.NONE:
        return CommitReply(refusal)
    adding = _adding(request, context)
    leader = context.partitions.leader_log(adding.partitions[0])
    if isinstance(leader, ErrorCode):
        return CommitReply(ErrorCode.NOT_COORDINATOR)
    for may_retry in (context.version >= _ADDS_PARTITION, False):
        guarded = _Guarded(leader.log.producers, adding.identity.producer_id)
        try:
            refusal = yield from _add_or_verify(adding, context)
            if refusal is not ErrorCode.NONE:
                context.transactions.verification_failed(1)
                return CommitReply(refusal)
            if may_retry and not guarded.holds():
                continue  # the marker may be that of the producer's previous transaction, for which the addition waited
            return (yield from _decide(request, adding, accepted, guarded, context))
        finally:  # runs if the client disconnects, too
            guarded.end()
    raise AssertionError("the second round returns")


class _Guarded:
    """A running verification for the partition that stores a group."""

    def __init__(self, producers: ProducerState, producer_id: ProducerId) -> None:
        self._producers = producers
        self._guard = producers.verifications.begin(producer_id)

    def holds(self) -> bool:
        """True if the verification is still valid: the producer has no newer marker there, or an open transaction."""
        producers, guard = self._producers, self._guard
        return producers.verifications.is_current(guard) or producers.has_open_transaction(guard.producer_id)

    def end(self) -> None:
        self._producers.verifications.end(self._guard)


def _decide(
    request: TxnOffsetCommitRequest,
    adding: AddRequest,
    accepted: list[PartitionCommit],
    guarded: _Guarded,
    context: Context,
) -> Steps[CommitReply]:
    commit = TransactionalCommitRequest(
        GroupId(request.group_id),
        MemberId(request.member_id),
        request.generation_id,
        request.group_instance_id,
        accepted,
        Producer(adding.identity.producer_id, adding.identity.producer_epoch, request.transactional_id),
        knows_epochs=context.version >= _TOPIC_IDS_SINCE,
    )

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        refusal = _verified_now(adding, guarded, context)
        if refusal is not ErrorCode.NONE:
            context.transactions.verification_failed(1)
            return GroupDecision(reply=CommitReply(refusal))
        return shard.commit_transactional_offsets(commit, token, now_ms)

    return (yield from ask(request.group_id, decide, CommitReply))


def _adding(request: TxnOffsetCommitRequest, context: Context) -> AddRequest:
    # The topic exists: its partition is led here.
    count = len(context.cluster.image.topics[CONSUMER_OFFSETS].partitions)
    adds = context.version >= _ADDS_PARTITION
    return AddRequest(
        TransactionalId(request.transactional_id),
        Identity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        [TopicPartition(CONSUMER_OFFSETS, coordinator_partition(request.group_id, count))],
        TRANSACTIONS_V2 if adds else 0,
        verify_only=not adds,
    )


def _add_or_verify(adding: AddRequest, context: Context) -> Steps[ErrorCode]:
    if adding.verify_only and not _verifies(context):
        return ErrorCode.NONE
    # If a crash undid the addition, the offsets would leave a transaction open for ever.
    try:
        reply: AddReply | VerifyReply = yield AddToTransaction(adding)
    except CoordinatorRefusal as refusal:
        return error_for_version(refusal.error_code, context.version)
    return error_for_version(_error_of(reply), context.version)


def _verified_now(adding: AddRequest, guarded: _Guarded, context: Context) -> ErrorCode:
    """NONE if the partition takes part at this moment, or why not."""
    if not _verifies(context):
        return ErrorCode.NONE
    shard = context.transactions.shard_of(adding.transactional_id)
    if shard is None:  # another broker coordinates the transaction
        return ErrorCode.NONE if guarded.holds() else ErrorCode.INVALID_TXN_STATE
    reply = cast("VerifyReply", shard.verify_partitions(adding).reply)
    return error_for_version(_error_of(reply), context.version)


def _verifies(context: Context) -> bool:
    return bool(context.cluster.config.get("transaction.partition.verification.enable"))


def _error_of(reply: AddReply | VerifyReply) -> ErrorCode:
    if reply.error_code is ErrorCode.NONE and isinstance(reply, VerifyReply):
        return next(iter(reply.partitions.values()))
    return reply.error_code


def error_for_version(error_code: ErrorCode, version: int) -> ErrorCode:
    if error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error_code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # retried, without a search for another coordinator
    return error_code
