"""Adds partitions and groups to a transaction (KIP-98).

AddPartitionsToTxn, versions 0 to 5 (KIP-890). Up to version 3, a client adds partitions to its own transaction. From
version 4 on, leaders send requests for several transactions: to add partitions for a client (Transactions V2), or only
to verify them (``VerifyOnly``). All partitions of a transaction are added, or none: if some are refused, the others get
OPERATION_NOT_ATTEMPTED. While the previous transaction is completing, the coordinator waits; for a leader, whose other
transactions queue on the same connection, at most a tenth of a second (``add.partitions.to.txn.retry.backoff.max.ms``).

AddOffsetsToTxn, versions 0 to 4, adds the group's partition of ``__consumer_offsets``; with Transactions V2
TxnOffsetCommit does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
    by_topic,
)
from oncelog.core.transactions.decisions import add_error
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, VerifyReply
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import Steps, Transact, TransactEach
from oncelog.handlers.topics.creation import ensure_internal_topic
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS, ask, partitions_of
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

ADD_PARTITIONS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "another partition of the transaction was refused, so this was not added",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist or has another producer id",
    ErrorCode.PRODUCER_FENCED: "the epoch is not the current one (version 2)",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.INVALID_TXN_STATE: "the transaction was prepared and is only to be ended",
    ErrorCode.TRANSACTION_ABORTABLE: "verify only: the partition does not take part",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to write to the topic, or the topic is internal",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not a broker (version 4)",
}

_FROM_BROKERS_SINCE: Final = 4

Outcomes = Mapping[TopicPartition, ErrorCode]
TopicResults = list[AddPartitionsToTxnTopicResult]


def add_partitions(request: AddPartitionsToTxnRequest, context: Context) -> Steps[AddPartitionsToTxnResponse]:
    if context.version >= _FROM_BROKERS_SINCE:
        if not context.allows_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        outcomes = yield from _decide(request.transactions, context)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
                for transaction, results in zip(request.transactions, outcomes, strict=True)
            ]
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    if context.allows_transactional_id(Operation.WRITE, transaction.transactional_id):
        (results,) = yield from _decide([transaction], context)
    else:
        results = _same_for_all(transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _decide(transactions: Sequence[AddPartitionsToTxnTransaction], context: Context) -> Steps[list[TopicResults]]:
    refused = [_refused(transaction, context) for transaction in transactions]
    to_coordinators = [
        transaction for transaction, results in zip(transactions, refused, strict=True) if results is None
    ]
    replies: Sequence[AddReply | VerifyReply | CoordinatorRefusal] = ()
    if to_coordinators:
        # Side by side: a transaction that is still completing delays no other.
        replies = yield TransactEach([Transact(_add_request(transaction, context)) for transaction in to_coordinators])
    answered = (
        _result_of(transaction, reply, context) for transaction, reply in zip(to_coordinators, replies, strict=True)
    )
    return [next(answered) if results is None else results for results in refused]


def _refused(transaction: AddPartitionsToTxnTransaction, context: Context) -> TopicResults | None:
    refusals = {partition: _refusal(partition, context) for partition in partitions_of(transaction.topics)}
    if any(refusal is not ErrorCode.NONE for refusal in refusals.values()):
        return _topic_results(
            {
                partition: ErrorCode.OPERATION_NOT_ATTEMPTED if refusal is ErrorCode.NONE else refusal
                for partition, refusal in refusals.items()
            }
        )
    if transaction.transactional_id:
        return None
    if transaction.verify_only:
        return _topic_results(dict.fromkeys(refusals, ErrorCode.INVALID_REQUEST))
    return _same_for_all(transaction, ErrorCode.INVALID_REQUEST)


def _add_request(transaction: AddPartitionsToTxnTransaction, context: Context) -> AddRequest:
    from_broker = context.version >= _FROM_BROKERS_SINCE
    return AddRequest(
        TransactionalId(transaction.transactional_id),
        Identity(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch)),
        partitions_of(transaction.topics),
        TRANSACTIONS_V2 if from_broker else 0,
        transaction.verify_only,
        context.cluster.config.get("add.partitions.to.txn.retry.backoff.max.ms") if from_broker else None,
        None if from_broker else context.connection_id,
    )


def _result_of(
    transaction: AddPartitionsToTxnTransaction, reply: AddReply | VerifyReply | CoordinatorRefusal, context: Context
) -> TopicResults:
    if not transaction.verify_only:
        return _same_for_all(transaction, add_error(reply.error_code, context.version))
    if isinstance(reply, VerifyReply) and reply.error_code is ErrorCode.NONE:
        return _topic_results(reply.partitions)
    return _topic_results(dict.fromkeys(partitions_of(transaction.topics), reply.error_code))


def _refusal(partition: TopicPartition, context: Context) -> ErrorCode:
    # For brokers' requests the asking leader has authorised the client.
    if context.version < _FROM_BROKERS_SINCE and (
        partition.topic in INTERNAL_TOPICS or not context.allows_topic(Operation.WRITE, partition.topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if context.cluster.image.has_partition(partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _same_for_all(transaction: AddPartitionsToTxnTransaction, error_code: ErrorCode) -> TopicResults:
    """The same error for all partitions, as they were named, repetitions included."""
    return [_topic_result(topic.name, dict.fromkeys(topic.partitions, error_code)) for topic in transaction.topics]


def _topic_results(outcomes: Outcomes) -> TopicResults:
    return [
        _topic_result(topic, {index: outcomes[TopicPartition(topic, index)] for index in indexes})
        for topic, indexes in by_topic(outcomes).items()
    ]


def _topic_result(name: str, outcomes: Mapping[int, ErrorCode]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error_code)
            for index, error_code in outcomes.items()
        ],
    )


ADD_OFFSETS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist or has another producer id",
    ErrorCode.PRODUCER_FENCED: "the epoch is not the current one (version 2)",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.INVALID_TXN_STATE: "the transaction was prepared and is only to be ended",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read the group",
}


def add_offsets(request: AddOffsetsToTxnRequest, context: Context) -> Steps[AddOffsetsToTxnResponse]:
    if not context.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.allows_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    cluster = context.cluster
    # The topic may not exist yet: it is created at its first use.
    created = yield from ensure_internal_topic(cluster, CONSUMER_OFFSETS)
    if created is not ErrorCode.NONE:
        return AddOffsetsToTxnResponse(error_code=created)
    count = len(cluster.image.topics[CONSUMER_OFFSETS].partitions)
    added = AddRequest(
        TransactionalId(request.transactional_id),
        Identity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        [TopicPartition(CONSUMER_OFFSETS, coordinator_partition(request.group_id, count))],
        connection_id=context.connection_id,
    )
    reply: AddReply | ErrorCode = yield from ask(added)
    error_code = reply if isinstance(reply, ErrorCode) else reply.error_code
    return AddOffsetsToTxnResponse(error_code=add_error(error_code, context.version))
